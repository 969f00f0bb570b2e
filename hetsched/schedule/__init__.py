"""From shares to chunks: plans, what they cost, and who gets which chunk next. Pure."""

from hetsched.memory import MemoryDemand
from hetsched.schedule.best import Proposal, best_plan, even_plan, proposal
from hetsched.schedule.bound import lower_bound
from hetsched.schedule.factoring import factoring
from hetsched.schedule.multi_installment import multi_installment
from hetsched.schedule.plan import DevicePlan, Mode, Overlap, check
from hetsched.schedule.planned import planned_total
from hetsched.schedule.planner import plan_job
from hetsched.schedule.room import largest_sub_distribution
from hetsched.schedule.timeline import ChunkTimeline, Timeline, timeline

__all__ = [
    "ChunkTimeline",
    "DevicePlan",
    "MemoryDemand",
    "Mode",
    "Overlap",
    "Proposal",
    "Timeline",
    "best_plan",
    "check",
    "even_plan",
    "factoring",
    "largest_sub_distribution",
    "lower_bound",
    "multi_installment",
    "plan_job",
    "planned_total",
    "proposal",
    "timeline",
]
