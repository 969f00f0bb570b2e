"""From shares to chunks: plans, what they cost, and who gets which chunk next. Pure."""

from hetsched.memory import MemoryDemand
from hetsched.schedule.equal import equal_ring, planned_total
from hetsched.schedule.factoring import factoring
from hetsched.schedule.plan import DevicePlan, Mode, Overlap, check
from hetsched.schedule.planner import plan_job
from hetsched.schedule.timeline import ChunkTimeline, Timeline, timeline

__all__ = [
    "ChunkTimeline",
    "DevicePlan",
    "MemoryDemand",
    "Mode",
    "Overlap",
    "Timeline",
    "check",
    "equal_ring",
    "factoring",
    "plan_job",
    "planned_total",
    "timeline",
]
