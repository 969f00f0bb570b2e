"""Plans of one device: the chunks of its share, their predicted time, and bounds. Pure."""

from hetsched.memory import MemoryDemand
from hetsched.plans.best_plan import PlanComparison, best_plan, compare_plans, quick_plan
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
    "PlanComparison",
    "Timeline",
    "best_plan",
    "check",
    "compare_plans",
    "factoring",
    "largest_sub_distribution",
    "lower_bound",
    "multi_installment",
    "quick_plan",
    "timeline",
]
