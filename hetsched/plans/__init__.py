"""Plans of one device: the chunks of its share, their predicted time, and bounds. Pure."""

from hetsched.device import ChunkTimeline, Timeline
from hetsched.memory import MemoryDemand
from hetsched.plans.bounds import lower_bound
from hetsched.plans.device_plan import DevicePlan, Mode, Overlap, check
from hetsched.plans.paper import factoring, multi_installment
from hetsched.plans.recurrence import price, timeline
from hetsched.plans.ring_search import best_plan

__all__ = [
    "ChunkTimeline",
    "DevicePlan",
    "MemoryDemand",
    "Mode",
    "Overlap",
    "Timeline",
    "best_plan",
    "check",
    "factoring",
    "lower_bound",
    "multi_installment",
    "price",
    "timeline",
]
