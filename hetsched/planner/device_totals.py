"""psi_t from plans: what a device with a link takes for a share, when it follows its best plan.

Ilic & Sousa measure psi_t of whatever was executed last; here the partitioner weighs plans. The
curve is estimated by closed form, then made exact where the partitioner looks. Plans are kept by
what they follow from, so that what is asked again costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.models import Curve, DeviceModel, PiecewiseLinear, SpeedFunction
from hetsched.models.curves.isotonic import rising
from hetsched.planner.records import Candidate
from hetsched.planner.staging_memory import planning_memory
from hetsched.plans.best_plan import even_plan, ring_plan
from hetsched.plans.bounds.lower_bound import lower_bound
from hetsched.plans.device_plan import DevicePlan, Overlap
from hetsched.plans.phase_costs import Floats, costs_of
from hetsched.plans.search.equal_chunks import Estimate, correction, latest_shares
from hetsched.plans.search.exhaustive import SMALL
from hetsched.plans.search.ring_search import MOST_CLIMBED, MOST_UNITS_MOVED
from hetsched.plans.timeline import timeline

MOST_KEPT = 128
"""Devices and loads whose plans are kept: a few of each of a machine's devices."""
NEAR = 0.015
"""Relative distance to the bound from which on a plan is searched for longer. Arbitrary: what
that gains is mostly less, and it takes five times as long."""

Fingerprint = tuple[object, ...]


class Plans:
    """Plans of one device for shares of one load, each made when it is first asked for.

    Parameters
    ----------
    model : DeviceModel
        Of the phases; its total is not looked at.
    memory : MemoryDemand
    overlap : Overlap
    load : int, units
        No share is larger.
    key : hashable, optional
    plain : MemoryDemand, optional
        One that asks for no more, and is sooner asked: for bounds.

    Raises
    ------
    DataError
        Not even one unit fits.

    Attributes
    ----------
    key : hashable or None
        What the plans follow from, by value; None: that isn't known.
    """

    def __init__(
        self,
        model: DeviceModel,
        memory: MemoryDemand,
        overlap: Overlap,
        load: int,
        key: object | None = None,
        plain: MemoryDemand | None = None,
    ) -> None:
        self.key = key
        self._plain = memory if plain is None else plain
        self._model = model
        self._memory = memory
        self._overlap = overlap
        self._plans: dict[int, tuple[DevicePlan, float]] = {}
        self.estimate = Estimate(model, memory, overlap, load)

    def plan(self, share: int) -> DevicePlan:
        """What the device would do with `share` units, 1 or more."""
        return self._found(share)[0]

    def seconds(self, share: int) -> float:
        """What the plan for `share` units, 1 or more, takes by its timeline."""
        return self._found(share)[1]

    def _found(self, share: int) -> tuple[DevicePlan, float]:
        found = self._plans.get(share)
        if found is None:
            found = self._plans[share] = self._best(share)
        return found

    def _best(self, share: int) -> tuple[DevicePlan, float]:
        """A plan that is quickly found, unless it is far above the bound: then the best known."""
        if share <= SMALL:
            return self._timed(self._searched(share))
        plan, seconds = self._timed(even_plan(share, self._model, self._memory, self._overlap))
        if share > MOST_UNITS_MOVED or len(plan.chunks) > MOST_CLIMBED:
            return plan, seconds
        bound = lower_bound(share, self._model, self._plain, self._overlap)
        if seconds <= (1 + NEAR) * bound:
            return plan, seconds
        return min((plan, seconds), self._timed(self._searched(share)), key=lambda one: one[1])

    def _searched(self, share: int) -> DevicePlan:
        costs = costs_of(self._model, self._memory.most(share))
        return ring_plan(share, costs, self._memory, self._overlap)

    def _timed(self, plan: DevicePlan) -> tuple[DevicePlan, float]:
        return plan, timeline(plan, self._model, self._overlap).makespan


class Refined:
    """A curve that is estimated by closed form, and made exact where somebody looks.

    Parameters
    ----------
    estimate : Estimate
    exact : callable, units -> seconds
        Takes its time.
    """

    def __init__(self, estimate: Estimate, exact: Callable[[int], float]) -> None:
        self._estimate = estimate
        self._ask = exact
        self._exact: dict[int, float] = {}

    @property
    def key(self) -> Fingerprint | None:
        """What the curve follows from, by value; None: that isn't known."""
        return None

    def look(self, share: int) -> None:
        """Make the curve exact at `share` units, 1 or more."""
        self._exact[share] = self._ask(share)

    def total(self) -> PiecewiseLinear:
        """Seconds as a function of the share."""
        return _through(*self._points())

    def _points(self, more: Sequence[float] = ()) -> tuple[Floats, Floats]:
        """(n,) units and seconds that the curve goes through, those of `more` among them."""
        estimate, units, seconds = self._estimate, self._estimate.units, self._estimate.seconds
        looked = np.array(sorted(self._exact), dtype=float)
        some = np.union1d(looked, more)
        if len(some):
            found = estimate.at(some)
            every = np.union1d(units, some)
            seconds = np.interp(every, units, seconds)
            seconds[np.searchsorted(every, some)] = found
            units = every
        if len(looked):
            exact = np.array([self._exact[int(x)] for x in looked])
            off = exact / seconds[np.searchsorted(units, looked)]
            seconds = seconds * np.interp(units, looked, off)
        return units, seconds


class Planned(Refined):
    """What one device with a link takes for its share, as the partitioner gets to know it.

    Parameters
    ----------
    plans : Plans
    model : DeviceModel
        Its total tells how much longer or shorter the latest shares took than planned.
    load : int, units
    corrected : bool
        Those shares were planned for the memory that there is now.
    """

    def __init__(
        self, plans: Plans, model: DeviceModel, load: int, *, corrected: bool = True
    ) -> None:
        super().__init__(plans.estimate, plans.seconds)
        self._plans = plans
        self._load = load
        self._latest = latest_shares(model) if corrected else []

    @property
    def key(self) -> Fingerprint | None:
        known = self._plans.key
        return None if known is None else (known, *self._latest)

    def plan(self, share: int) -> DevicePlan:
        """What the device would do with `share` units, 1 or more."""
        return self._plans.plan(share)

    def total(self) -> PiecewiseLinear:
        """Seconds as a function of the share, by plans.

        Scaled by how much longer or shorter the latest shares took than it says.
        """
        anchors = [share for share, _, _ in self._latest if share <= self._load]
        units, seconds = self._points(anchors)
        curve = _through(units, seconds)
        factor = correction(self._latest, curve)
        return curve if factor == 1.0 else _through(units, factor * seconds)


def _through(units: Floats, seconds: Floats) -> PiecewiseLinear:
    return PiecewiseLinear().through(units, rising(seconds, np.ones(len(units))))


@dataclass(frozen=True)
class _Key:
    """What plans follow from, by value: models that say the same have the same plans."""

    curves: Fingerprint
    demand: MemoryDemand
    staged: bool
    overlap: Overlap
    load: int
    candidate: Candidate = field(compare=False, repr=False)
    model: DeviceModel = field(compare=False, repr=False)


def plans_for(candidate: Candidate, model: DeviceModel, load: int) -> Plans:
    """Plans of a candidate with a link for shares of `load`: those made before, if there are any.

    Raises DataError when not even one unit fits.
    """
    curves = fingerprint(model)
    overlap = Overlap.of(candidate.info.engines)
    if curves is None:
        return Plans(model, planning_memory(candidate), overlap, load)
    staged = candidate.staged
    return _kept(_Key(curves, candidate.demand, staged, overlap, load, candidate, model))


@lru_cache(maxsize=MOST_KEPT)
def _kept(key: _Key) -> Plans:
    return Plans(key.model, planning_memory(key.candidate), key.overlap, key.load, key, key.demand)


def fingerprint(model: DeviceModel) -> Fingerprint | None:
    """The phases as values; None: somebody else's curves, which may change unseen."""
    found: list[object] = [model.duplex]
    for curve in (model.compute, model.h2d, model.d2h):
        if curve is not None and (not isinstance(curve, Curve) or curve.falls):
            return None
        found.append(_value(curve))
    return tuple(found)


def _value(curve: SpeedFunction | None) -> object:
    return None if not isinstance(curve, Curve) else curve.segments.table.tobytes()


def planned_total(
    model: DeviceModel, memory: MemoryDemand, overlap: Overlap, load: int
) -> PiecewiseLinear:
    """`Planned.total` for shares of `load`, nowhere made exact. Parameters as for `Plans`."""
    return Planned(Plans(model, memory, overlap, load), model, load).total()
