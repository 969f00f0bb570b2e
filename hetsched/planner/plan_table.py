"""The best plan of one device for each share, computed on first request."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.models.curves.curve import planner_curve
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.records import Candidate
from hetsched.planner.staging_memory import planning_memory
from hetsched.plans.best_plan import PlanSearch
from hetsched.plans.bounds.lower_bound import lower_bound
from hetsched.plans.device_plan import DevicePlan, Overlap, fits
from hetsched.plans.kept_plan import adjusted, is_straight
from hetsched.plans.phase_costs import Floats, costs_of
from hetsched.plans.search.exhaustive import MAX_EXHAUSTIVE_SHARE
from hetsched.plans.share_estimate import ShareEstimate
from hetsched.plans.timeline import timeline

MAX_RELATIVE_GAP = 0.015
"""Relative gap to the lower bound above which the longer search is used. Arbitrary: it takes five
times as long and mostly gains less."""

MAX_SEARCHED_SHARE = 1024
"""Largest share, units, for the longer search."""
MAX_SEARCHED_CHUNKS = 80
"""Most chunks of a plan for the longer search."""
MAX_FILLED_PRICE = 0.25
"""Seconds of a further unit in a chunk, over those of its units so far, up to which it is filled.
Arbitrary: what a step saves is most of a unit."""

PlanAndSeconds = tuple[DevicePlan, float]


class PlanTable:
    """Plans of one device for shares of one load.

    Parameters
    ----------
    model : DeviceModel
        Only the phases are used, not the total.
    memory : MemoryDemand
    overlap : Overlap
    load : int, units
        No share is larger.
    fingerprint : hashable, optional
        The inputs of the plans, by value; None: they can't be compared.
    bound_memory : MemoryDemand, optional
        For lower bounds: demands at most as much as `memory` and evaluates faster.

    Raises
    ------
    DataError
        Not even one unit fits.
    """

    def __init__(
        self,
        model: DeviceModel,
        memory: MemoryDemand,
        overlap: Overlap,
        load: int,
        fingerprint: Hashable | None = None,
        bound_memory: MemoryDemand | None = None,
    ) -> None:
        self.fingerprint = fingerprint
        self.estimate = ShareEstimate(model, memory, overlap, load)
        self._bound_memory = memory if bound_memory is None else bound_memory
        self._model = model
        self._memory = memory
        self._load = load
        self._overlap = overlap
        self._plans: dict[int, PlanAndSeconds] = {}

    def plan(self, share: int) -> DevicePlan:
        """Return the plan for `share` units, 1 or more."""
        return self._planned(share)[0]

    def seconds(self, share: int) -> float:
        """Return the predicted seconds of the plan for `share` units, 1 or more."""
        return self._planned(share)[1]

    def seconds_of(self, plan: DevicePlan) -> float:
        """Return the predicted seconds of a plan that needn't be the best."""
        return timeline(plan, self._model, self._overlap).makespan

    def fuller_share(self, share: int) -> int:
        """Return a larger share whose plan may take hardly longer; `share` if there is none.

        Chunks are filled up where a phase has a step: 16 units may take as long as 15.
        """
        chunks = self.plan(share).chunks
        if not self._has_steps(share, chunks):
            return share
        costs = costs_of(self._model, min(2 * max(chunks), self._memory.max_chunk(self._load)))
        busiest = costs.busiest(self._overlap)
        fuller = {size: _filled(size, busiest) for size in dict.fromkeys(chunks)}
        return min(self._load, sum(fuller[size] for size in chunks))

    def _planned(self, share: int) -> PlanAndSeconds:
        planned = self._plans.get(share)
        if planned is None:
            planned = self._best(share)
            if self._has_steps(share, planned[0].chunks):
                planned = min([planned, *self._adjusted_to(share)], key=_seconds_of)
                self._improve_others(*planned)
            self._plans[share] = planned
        return planned

    def _has_steps(self, share: int, chunks: Sequence[int]) -> bool:
        """Return whether a phase isn't a line, and the share is small enough to follow it."""
        is_small = share <= MAX_SEARCHED_SHARE and len(chunks) <= MAX_SEARCHED_CHUNKS
        return is_small and not is_straight(self._model)

    def _adjusted_to(self, share: int) -> list[PlanAndSeconds]:
        """Return the plans of near shares, adjusted to this one, that fit."""
        plans = (self._adjusted(plan, share) for plan, _ in self._plans.values())
        return [planned for planned in plans if planned is not None]

    def _improve_others(self, plan: DevicePlan, seconds: float) -> None:
        """Replace slower plans of smaller shares by this one with fewer units.

        Where a phase has steps, the search may find a plan that takes less time for more units.
        """
        for share, (_, present) in self._plans.items():
            if share < plan.share and seconds < present:
                fewer = self._adjusted(plan, share)
                if fewer is not None and fewer[1] < present:
                    self._plans[share] = fewer

    def _adjusted(self, plan: DevicePlan, share: int) -> PlanAndSeconds | None:
        other = adjusted(plan, share, self._model, self._overlap)
        return self._timed(other) if other is not None and fits(other, self._memory) else None

    def _best(self, share: int) -> PlanAndSeconds:
        """Return a quick plan, or if that is far above its bound the best of a longer search."""
        search = PlanSearch(share, self._model, self._memory, self._overlap)
        if share <= MAX_EXHAUSTIVE_SHARE:
            return self._timed(search.best())
        plan, seconds = self._timed(search.quick())
        if share > MAX_SEARCHED_SHARE or len(plan.chunks) > MAX_SEARCHED_CHUNKS:
            return plan, seconds
        bound = lower_bound(share, self._model, self._bound_memory, self._overlap)
        if seconds <= (1 + MAX_RELATIVE_GAP) * bound:
            return plan, seconds
        longer = self._timed(search.best())
        return min((plan, seconds), longer, key=lambda planned: planned[1])

    def _timed(self, plan: DevicePlan) -> PlanAndSeconds:
        return plan, self.seconds_of(plan)


def _seconds_of(planned: PlanAndSeconds) -> float:
    return planned[1]


def _filled(size: int, busiest: Floats) -> int:
    """Return the largest size up to twice `size` of which the further units cost little.

    `busiest`: seconds of a chunk on its busiest engine, by its units.
    """
    sizes = np.arange(size + 1, min(2 * size, len(busiest) - 1) + 1)
    prices = (busiest[sizes] - busiest[size]) / (sizes - size)
    cheap = sizes[prices <= MAX_FILLED_PRICE * busiest[size] / size]
    return int(cheap[-1]) if len(cheap) else size


def plan_table(candidate: Candidate, model: DeviceModel, load: int, cache: PlanCache) -> PlanTable:
    """Return the plans of a candidate with a link for shares of `load`, from `cache` if possible.

    Raises
    ------
    DataError
        Not even one unit fits.
    """
    phases = phase_fingerprint(model)
    overlap = Overlap.of(candidate.info.engines)
    key = None
    if phases is not None:
        key = phases, candidate.demand, candidate.is_staged, overlap, load

    def compute() -> PlanTable:
        memory = planning_memory(candidate)
        bound_memory = None if key is None else candidate.demand
        return PlanTable(model, memory, overlap, load, key, bound_memory)

    return cache.plan_tables.get_or_compute(key, compute)


def phase_fingerprint(model: DeviceModel) -> Hashable | None:
    """Return the phase curves by value; None if a curve can't be compared."""
    fingerprints: list[bytes | None] = []
    for curve in (model.compute, model.h2d, model.d2h):
        fingerprint = None if curve is None else planner_curve(curve).fingerprint()
        if curve is not None and fingerprint is None:
            return None
        fingerprints.append(fingerprint)
    return model.duplex, *fingerprints
