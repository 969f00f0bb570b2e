"""Plans of one device: the chunks of its share, their timeline, and bounds. Pure."""

from hetsched.memory import MemoryDemand
from hetsched.plans.best_plan import Proposal, best_plan, even_plan, proposal
from hetsched.plans.bounds.lower_bound import lower_bound
from hetsched.plans.device_plan import DevicePlan, Mode, Overlap, check
from hetsched.plans.memory_fit import largest_sub_distribution
from hetsched.plans.paper.factoring import factoring
from hetsched.plans.paper.multi_installment import multi_installment
from hetsched.plans.timeline import ChunkTimeline, Timeline, timeline

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
    "proposal",
    "timeline",
]
