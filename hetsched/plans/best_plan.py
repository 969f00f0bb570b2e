"""The best plan for one device's share, and its gap to the lower bound.

All kinds of plans are compared by their timelines: factoring by two, the steps of Ilic & Sousa,
and rings of 1 to 4 slots that fill memory evenly or in patterns, with ramps at both ends. For
small shares every plan is enumerated.
"""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.errors import UsageError
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.plans.bounds.bound_terms import bound_inputs
from hetsched.plans.bounds.installment_bound import installment_bound
from hetsched.plans.bounds.lower_bound import lower_bound, relative_gap
from hetsched.plans.bounds.sampled_costs import sampled_costs
from hetsched.plans.device_plan import DevicePlan, Overlap, fits
from hetsched.plans.granules import MAX_GRANULES, granular
from hetsched.plans.memory_fit import largest_sub_distribution
from hetsched.plans.paper.factoring import factoring
from hetsched.plans.paper.multi_installment import multi_installment
from hetsched.plans.phase_costs import costs_of
from hetsched.plans.search.exhaustive import MAX_EXHAUSTIVE_SHARE, best_installments, best_ring
from hetsched.plans.search.ring_search import RingSearch
from hetsched.plans.timeline import timeline
from hetsched.plans.validation import validate_request

INSTALLMENT_GRANULES = 1 << 10
"""Granules of the largest chunk in the search of installments, which takes longer than others."""


@dataclass(frozen=True)
class PlanComparison:
    """The best plan, compared with the lower bound and with other kinds of plans.

    Attributes
    ----------
    plan : DevicePlan
    seconds : float
        Its makespan.
    bound : float, seconds
        A lower bound of all plans for this share.
    seconds_by_kind : dict of str to float, seconds
        Kind of plan -> makespan of the best of that kind, including the kind of `plan`.
    """

    plan: DevicePlan
    seconds: float
    bound: float
    seconds_by_kind: dict[str, float]

    @property
    def gap(self) -> float:
        """Relative distance of the plan to the bound."""
        return relative_gap(self.seconds, self.bound)


def best_plan(
    share: int, model: DeviceModel, memory: MemoryDemand, *, overlap: Overlap
) -> DevicePlan:
    """Return the fastest plan of all kinds, by predicted time.

    Parameters
    ----------
    share : int, units
    model : DeviceModel
        Only its phases are used; curves need only `time` of a number.
    memory : MemoryDemand
    overlap : Overlap

    Returns
    -------
    DevicePlan
        It fits `memory`; for a share of 0 it has no chunks.

    Raises
    ------
    DataError
        Not even one unit fits.
    UsageError
        The share is negative or not an integer; a parameter has the wrong type; the model returns
        a negative time or NaN.
    """
    share = validate_request(share, model, memory, overlap)
    if share == 0:
        return DevicePlan(())
    ring = PlanSearch(share, model, memory, overlap).best()
    seconds = timeline(ring, model, overlap).makespan
    room = largest_sub_distribution(share, memory)
    if share > room:
        inputs = bound_inputs(share, sampled_costs(model, memory.max_chunk(share)), room)
        if seconds <= installment_bound(share, inputs, overlap):
            return ring  # installments can't be faster
    plans = [ring, *_installments(share, model, memory, overlap).values()]
    return min(plans, key=lambda plan: timeline(plan, model, overlap).makespan)


def compare_plans(
    share: int, model: DeviceModel, memory: MemoryDemand, *, overlap: Overlap
) -> PlanComparison:
    """Return `best_plan` with its makespan, the lower bound, and the makespans of other kinds.

    Parameters and errors: as for `best_plan`.
    """
    share = validate_request(share, model, memory, overlap)
    if share == 0:
        return PlanComparison(DevicePlan(()), 0.0, 0.0, {})
    ring = PlanSearch(share, model, memory, overlap).best()
    plans = {"ring": ring, **_installments(share, model, memory, overlap)}
    seconds = {kind: timeline(plan, model, overlap).makespan for kind, plan in plans.items()}
    best = min(seconds, key=lambda kind: seconds[kind])
    bound = lower_bound(share, model, memory, overlap)
    return PlanComparison(plans[best], seconds[best], bound, seconds)


def _installments(
    share: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap
) -> dict[str, DevicePlan]:
    is_large = memory.max_chunk(share) > MAX_GRANULES
    max_granules = INSTALLMENT_GRANULES if is_large else MAX_GRANULES
    coarse = granular(share, model, memory, max_granules)
    steps = multi_installment(coarse.share, coarse.model, coarse.memory, overlap=overlap)
    plans = {"multi-installment": coarse.in_units(steps), "factoring": factoring(share, memory)}
    if share <= MAX_EXHAUSTIVE_SHARE:
        costs = costs_of(model, memory.max_chunk(share))
        plans["installments"] = best_installments(share, costs, memory, overlap)[1]
    return plans


class PlanSearch:
    """The search for a ring, or for a plan whose chunks are all in device memory together.

    Parameters
    ----------
    share : int, units, >= 1
    model : DeviceModel
    memory : MemoryDemand
    overlap : Overlap

    Raises
    ------
    DataError
        Not even one unit fits.
    """

    def __init__(
        self, share: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap
    ) -> None:
        self._coarse = coarse = granular(share, model, memory)
        self._costs = costs_of(coarse.model, coarse.largest)
        self._overlap = overlap
        self._rings = RingSearch(coarse.share, self._costs, coarse.memory, overlap)

    def quick(self) -> DevicePlan:
        """Return a plan after a shorter search: mostly within 0.5 % of the best."""
        return self._in_units(self._rings.quick().plan())

    def best(self) -> DevicePlan:
        """Return the best plan of the longer search, which reuses the shorter one."""
        coarse = self._coarse
        if coarse.share <= MAX_EXHAUSTIVE_SHARE:
            ring = best_ring(coarse.share, self._costs, coarse.memory, self._overlap)
            if ring is not None:
                return self._in_units(ring)
        return self._in_units(self._rings.best().plan())

    def _in_units(self, plan: DevicePlan) -> DevicePlan:
        return self._coarse.in_units(_fitting(plan, self._coarse.memory))


def _fitting(plan: DevicePlan, memory: MemoryDemand) -> DevicePlan:
    """Return `plan`, or factoring where a slot for its largest chunk is too small for others.

    Bytes don't always grow with size: an odd batch may need a larger work area.
    """
    return plan if fits(plan, memory) else factoring(plan.share, memory)


def quick_plan(
    share: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap
) -> DevicePlan:
    """Return a plan after a shorter search: mostly within 0.5 % of `best_plan`.

    Parameters
    ----------
    share : int, units, >= 1
    model : DeviceModel
    memory : MemoryDemand
    overlap : Overlap

    Raises
    ------
    DataError
        Not even one unit fits.
    UsageError
        As for `best_plan`, and for a share of 0.
    """
    share = validate_request(share, model, memory, overlap)
    if share == 0:
        raise UsageError("share: 0 units; it must be at least 1")
    return PlanSearch(share, model, memory, overlap).quick()
