"""psi_t of each device: seconds as a function of its share, for the partitioner.

Ilic & Sousa measure psi_t of the last executed plans. Here the total of a device with a link
follows from its best plans: it is estimated in closed form, and exact at the shares that the
partitioner returns. That of another device is its learnt curve.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from statistics import median_low
from typing import Any, TypeVar

import numpy as np

from hetsched.bounded_cache import BoundedCache
from hetsched.job import Schedule
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, PiecewiseLinear, SpeedFunction
from hetsched.models.fits import rising
from hetsched.models.functions import planner_curve
from hetsched.models.windows import DEPTH, MIN_TRUSTED_COUNT
from hetsched.plans.costs import Floats, estimated_seconds
from hetsched.plans.device_plan import DevicePlan, Overlap, fits
from hetsched.plans.paper import factoring, paper_steps
from hetsched.plans.recurrence import price
from hetsched.plans.ring_search import best_plan

MIN_GAIN = 0.01
"""Relative gain below which a device keeps the chunks of its last run."""
MAX_ADJUSTMENT = 0.05
"""Relative change of the share up to which the last chunks are adjusted to it."""
MAX_SHARE_RATIO = 1.6
"""Shares that differ by more aren't compared: below 2, to exclude halves of shares."""
MAX_CORRECTION = 1.25
"""Bound on a correction that may be due to a single run."""

Value = TypeVar("Value")
MeasuredShare = tuple[float, float, int]
"""Units, seconds and number of observations."""


class PlanCache:
    """Results of planning that later plans reuse. For one thread.

    Keys hold all inputs of a result by value, so that no entry goes stale.
    """

    def __init__(self) -> None:
        self._results: dict[str, BoundedCache[Hashable, Any]] = {}

    def get(self, kind: str, key: Hashable | None, compute: Callable[[], Value]) -> Value:
        """Return a result of this kind, kept unless the key is None."""
        if key is None:
            return compute()
        if kind not in self._results:
            # A few loads for each device of a machine
            self._results[kind] = BoundedCache(max_entries=128)
        value: Value = self._results[kind].get_or_compute(key, compute)
        return value


class CoreTotal:
    """The total of a device without a link: its learnt curve, exact from the start.

    `fingerprint`: what the curve depends on, by value; None: it can't be compared.
    """

    is_refinable = False
    fingerprint: Hashable | None
    curve: SpeedFunction

    def __init__(self, curve: SpeedFunction) -> None:
        self.curve = curve
        self.fingerprint = planner_curve(self.curve).fingerprint()

    def refine(self, share: int) -> None:
        """Make the curve exact at `share` units, 1 or more."""


def scheduled_plan(
    schedule: Schedule, share: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap
) -> DevicePlan:
    """The search finds rings."""
    if schedule == "factoring":
        return factoring(share, memory)
    if schedule == "multi-installment":
        return paper_steps(share, model, memory, overlap=overlap)
    return best_plan(share, model, memory, overlap=overlap)


class PlanTable:
    """The plans of one device for shares of one load, each made on first request.

    `estimates`: the seconds of the best plans of some `units`, in closed form.
    """

    def __init__(
        self,
        model: DeviceModel,
        memory: MemoryDemand,
        overlap: Overlap,
        load: int,
        schedule: Schedule,
    ) -> None:
        self._model, self._memory, self._overlap = model, memory, overlap
        self._schedule: Schedule = schedule
        units = np.geomspace(1, load, 20).round().tolist()
        self.units = np.array(sorted({*units}))  # np.unique imports another 20,000 lines of NumPy
        self.estimates = estimated_seconds(self.units, model, memory, overlap)
        self._plans: dict[int, tuple[DevicePlan, float]] = {}

    def plan(self, share: int) -> tuple[DevicePlan, float]:
        if share not in self._plans:
            plan = scheduled_plan(self._schedule, share, self._model, self._memory, self._overlap)
            self._plans[share] = plan, price(plan, self._model, self._overlap)
        return self._plans[share]


class LinkedTotal(CoreTotal):
    """The total of a device with a link for shares of up to `load` units, by its plans.

    `last`: of the last run. Its chunks are kept if others gain little, and the measured time of
    its share corrects predictions by what these chunks were predicted to take. `is_corrected`:
    shares were measured with the memory usable now. `memory_key`: the same for equal memories.
    """

    is_refinable = True

    def __init__(
        self,
        model: DeviceModel,
        memory: MemoryDemand,
        overlap: Overlap,
        load: int,
        *,
        last: DevicePlan | None,
        is_corrected: bool,
        memory_key: Hashable,
        schedule: Schedule,
        cache: PlanCache,
    ) -> None:
        self._model, self._memory, self._overlap, self._load = model, memory, overlap, load
        self._schedule: Schedule = schedule
        self._last = last
        phases = phase_fingerprint(model)
        key = None if phases is None else (phases, memory_key, overlap, load, schedule)
        self._table = cache.get(
            "plans", key, lambda: PlanTable(model, memory, overlap, load, schedule)
        )
        self._latest = latest_shares(model) if is_corrected else []
        self.fingerprint = None if key is None else (key, last, *self._latest)
        self._plans: dict[int, tuple[DevicePlan, float]] = {}
        self._curve: SpeedFunction | None = None

    @property
    def curve(self) -> SpeedFunction:
        """Seconds by share: the estimate, scaled to what the plans made so far take."""
        if self._curve is None:
            self._curve = self._fitted()
        return self._curve

    @curve.setter
    def curve(self, curve: SpeedFunction) -> None:
        self._curve = curve

    def refine(self, share: int) -> None:
        if share not in self._plans:
            self._plan(share)
            self._curve = None

    def plan(self, share: int) -> DevicePlan:
        return self._plan(share)[0]

    def _plan(self, share: int) -> tuple[DevicePlan, float]:
        if share not in self._plans:
            best = self._table.plan(share)
            if not fits(best[0], self._memory):  # bytes are compared at some sizes only
                plan = scheduled_plan(
                    self._schedule, share, self._model, self._memory, self._overlap
                )
                best = plan, price(plan, self._model, self._overlap)
            self._plans[share] = self._kept(*best)
        return self._plans[share]

    def _kept(self, best: DevicePlan, seconds: float) -> tuple[DevicePlan, float]:
        """Return the last run's chunks, adjusted to the share, unless `best` gains 1 %.

        The search finds the plan that noise flatters most (Smith & Winkler, The Optimizer's Curse,
        2006), and sizes that ran are known better than others.
        """
        for kept in self._adjusted(best.share):
            kept_seconds = price(kept, self._model, self._overlap)
            if kept_seconds * (1 - MIN_GAIN) <= seconds and fits(kept, self._memory):
                return kept, kept_seconds
        return best, seconds

    def _adjusted(self, share: int) -> Iterator[DevicePlan]:
        """Yield the last plan with the missing units in one of its chunks, larger ones first."""
        last = self._last
        if last is None or len(last.sub_distributions) != 1 or self._schedule != "best":
            return
        more = share - last.share
        if not more:
            yield last
        elif abs(more) <= MAX_ADJUSTMENT * last.share:
            chunks = last.chunks
            for size in sorted(set(chunks), reverse=True):
                index = chunks.index(size)
                if size + more >= 1:
                    changed = (*chunks[:index], size + more, *chunks[index + 1 :])
                    yield replace(last, sub_distributions=(changed,))

    def _fitted(self) -> SpeedFunction:
        table, known = self._table, sorted(self._plans)
        measured = [share for share, _, _ in self._latest if share <= self._load]
        units = np.array(sorted({*table.units.tolist(), *known, *measured}))
        seconds = np.interp(units, table.units, table.estimates)
        if known:
            exact = np.array([self._plans[share][1] for share in known])
            ratios = exact / np.interp(known, table.units, table.estimates)
            seconds = seconds * np.interp(units, known, ratios)
        curve = _through(units, seconds)
        factor = self._correction(curve)
        return curve if factor == 1.0 else _through(units, factor * seconds)

    def _correction(self, curve: SpeedFunction) -> float:
        """Return the median ratio of measured to predicted time of the latest shares.

        Of the last plan's share, its own chunks are what took the time. The median ignores a
        single contended run after two further runs; until then the correction is bounded.
        """
        ratios: list[float] = []
        for share, seconds, count in self._latest:
            if self._last is not None and share == self._last.share:
                predicted = price(self._last, self._model, self._overlap)
            else:
                predicted = float(curve.time(share))
            ratios += [seconds / predicted] * count
        if not ratios:
            return 1.0
        ratio = median_low(ratios[:DEPTH])
        if len(ratios) >= MIN_TRUSTED_COUNT:
            return ratio
        return min(max(ratio, 1 / MAX_CORRECTION), MAX_CORRECTION)


def _through(units: Floats, seconds: Floats) -> PiecewiseLinear:
    return PiecewiseLinear().through(units, rising(seconds))


def latest_shares(model: DeviceModel) -> list[MeasuredShare]:
    """Return the last measured shares, latest first.

    Sizes with a measured computation were chunks: their total is the sum of their phases, without
    overlap, and says nothing about plans. Much smaller sizes may be parts of a factored share.
    """
    evidence = planner_curve(model.total).evidence()
    if evidence is None:
        return []
    chunks: Any = getattr(model.compute, "points", ())
    chunk_sizes = {float(point[0]) for point in chunks}
    shares = [entry for entry in evidence.latest() if entry[0] not in chunk_sizes]
    comparable = [
        entry
        for entry in shares
        if shares[0][0] / MAX_SHARE_RATIO <= entry[0] <= shares[0][0] * MAX_SHARE_RATIO
    ]
    return comparable[:DEPTH]


def phase_fingerprint(model: DeviceModel) -> Hashable | None:
    """Return the phase curves by value; None: one can't be compared."""
    fingerprints: list[bytes | None] = []
    for curve in (model.compute, model.h2d, model.d2h):
        fingerprint = None if curve is None else planner_curve(curve).fingerprint()
        if curve is not None and fingerprint is None:
            return None
        fingerprints.append(fingerprint)
    return model.duplex, *fingerprints


def demand_key(demand: MemoryDemand, load: int) -> Hashable:
    """Functions from units to bytes are compared at some sizes."""
    if not any(map(callable, (demand.input_bytes, demand.work_bytes, demand.output_bytes))):
        return demand
    sizes = {*range(1, 17), *(1 << n for n in range(4, load.bit_length())), load}
    needs = ((demand.data(size), demand.workspace(size)) for size in sizes if size <= load)
    return demand.limit, demand.resident_bytes, demand.work, *needs
