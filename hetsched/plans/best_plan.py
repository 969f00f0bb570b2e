"""The best plan known for one device's share, and how far from the best possible it may be.

All ways to plan are compared by what `timeline` says: factoring by two, the steps of Ilic & Sousa,
rings with 1 to 4 slots that fill memory evenly or in patterns, with ramps at both ends. Loads of
few units are enumerated.
"""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.errors import UsageError
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.plans.bounds.bound_terms import device_of
from hetsched.plans.bounds.installment_bound import drained_bound
from hetsched.plans.bounds.lower_bound import bound_of, gap
from hetsched.plans.device_plan import DevicePlan, Overlap, fits
from hetsched.plans.memory_fit import largest_sub_distribution
from hetsched.plans.paper.factoring import factoring
from hetsched.plans.paper.multi_installment import multi_installment
from hetsched.plans.phase_costs import Costs, costs_of
from hetsched.plans.search.exhaustive import SMALL, best_installments, best_ring
from hetsched.plans.search.ring_search import Search
from hetsched.plans.timeline import timeline
from hetsched.plans.validation import request


@dataclass(frozen=True)
class Proposal:
    """A plan with its reasons.

    Attributes
    ----------
    plan : DevicePlan
    seconds : float
        What the timeline says that it takes.
    bound : float, seconds
        No plan for this share takes less.
    others : dict of str to float, seconds
        Kind of plan -> what the best of that kind takes; the plan's own kind among them.
    """

    plan: DevicePlan
    seconds: float
    bound: float
    others: dict[str, float]

    @property
    def gap(self) -> float:
        """How far the plan is above the bound, as a ratio."""
        return gap(self.seconds, self.bound)


def best_plan(
    share: int, model: DeviceModel, memory: MemoryDemand, *, overlap: Overlap
) -> DevicePlan:
    """The plan of least predicted time among all kinds; never worse than any of them.

    Parameters
    ----------
    share : int, units
    model : DeviceModel
        Of the phases; no more is needed of a curve than `time` of a number.
    memory : MemoryDemand
    overlap : Overlap

    Returns
    -------
    DevicePlan
        Fits `memory`; without chunks for a share of 0.

    Raises
    ------
    DataError
        Not even one unit fits.
    UsageError
        The share is negative or no whole number; a parameter isn't of its kind; the model says a
        time that is negative or no number.
    """
    share = request(share, model, memory, overlap)
    if share == 0:
        return DevicePlan(())
    costs = costs_of(model, memory.most(share))
    ring = ring_plan(share, costs, memory, overlap)
    seconds = timeline(ring, model, overlap).makespan
    room = largest_sub_distribution(share, memory)
    if share > room and seconds <= drained_bound(share, device_of(share, costs, room), overlap):
        return ring  # no installments are faster
    plans = [ring, *_installments(share, model, memory, overlap).values()]
    return min(plans, key=lambda plan: timeline(plan, model, overlap).makespan)


def proposal(
    share: int, model: DeviceModel, memory: MemoryDemand, *, overlap: Overlap
) -> Proposal:
    """`best_plan` with what it costs, the lower bound, and what other kinds of plans would cost.

    Parameters, errors: as for `best_plan`.
    """
    share = request(share, model, memory, overlap)
    if share == 0:
        return Proposal(DevicePlan(()), 0.0, 0.0, {})
    costs = costs_of(model, memory.most(share))
    ring = ring_plan(share, costs, memory, overlap)
    plans = {"ring": ring, **_installments(share, model, memory, overlap)}
    seconds = {kind: timeline(plan, model, overlap).makespan for kind, plan in plans.items()}
    best = min(seconds, key=lambda kind: seconds[kind])
    room = largest_sub_distribution(share, memory)
    bound = bound_of(share, costs, room, overlap)
    return Proposal(plans[best], seconds[best], bound, seconds)


def _installments(
    share: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap
) -> dict[str, DevicePlan]:
    plans = {
        "multi-installment": multi_installment(share, model, memory, overlap=overlap),
        "factoring": factoring(share, memory),
    }
    if share <= SMALL:
        costs = costs_of(model, memory.most(share))
        plans["installments"] = best_installments(share, costs, memory, overlap)[1]
    return plans


def ring_plan(share: int, costs: Costs, memory: MemoryDemand, overlap: Overlap) -> DevicePlan:
    """The best ring known, or chunks that are all in device memory together."""
    if share <= SMALL:
        found = best_ring(share, costs, memory, overlap)
        if found is not None:
            return _fitting(found[1], memory)
    return _fitting(Search(share, costs, memory, overlap).best().plan(), memory)


def _fitting(plan: DevicePlan, memory: MemoryDemand) -> DevicePlan:
    """`plan`; or one that fits, where a slot for its largest chunk is too small for others.

    Bytes need not grow with size: the work area of an odd batch may be the larger one.
    """
    return plan if fits(plan, memory) else factoring(plan.share, memory)


def even_plan(
    share: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap
) -> DevicePlan:
    """A good plan, quickly found: within a few tenths of a percent of `best_plan`.

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
        As for `best_plan`; the share is 0.
    """
    share = request(share, model, memory, overlap)
    if share == 0:
        raise UsageError("share: 0 units, a ring needs at least 1")
    costs = costs_of(model, memory.most(share))
    return _fitting(Search(share, costs, memory, overlap).quick().plan(), memory)
