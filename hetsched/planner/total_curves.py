"""psi_t of each device: seconds as a function of its share, for the partitioner.

Ilic & Sousa measure psi_t of the last executed plans. Here the curve of a device with a link is
based on its best plans: it is estimated in closed form, and made exact at the shares that the
partitioner returns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, PiecewiseLinear, SpeedFunction
from hetsched.models.curves.curve import planner_curve
from hetsched.models.curves.isotonic import rising
from hetsched.planner.plan_table import PlanTable
from hetsched.plans.device_plan import DevicePlan, Overlap
from hetsched.plans.measured_shares import correction, latest_shares
from hetsched.plans.phase_costs import Floats
from hetsched.plans.share_estimate import ShareEstimate


class TotalCurve:
    """Seconds of a device as a function of its share; this class is exact from the start.

    Attributes
    ----------
    is_refinable : bool
        Whether `refine` changes the curve.
    """

    is_refinable = False

    def __init__(self, curve: SpeedFunction) -> None:
        self._curve: SpeedFunction | None = curve

    @property
    def curve(self) -> SpeedFunction:
        """The curve as refined so far."""
        assert self._curve is not None
        return self._curve

    @property
    def fingerprint(self) -> Hashable | None:
        """Return the inputs of the curve, by value; None: they can't be compared."""
        return planner_curve(self.curve).fingerprint()

    def refine(self, share: int) -> None:
        """Make the curve exact at `share` units, 1 or more."""

    def fuller_share(self, share: int) -> int:
        """Return a larger share that may take hardly longer; `share` if there is none."""
        return share

    def adopt(self, curve: SpeedFunction) -> None:
        """Use the refined curve of an equal device."""
        self._curve = curve


class RefinedCurve(TotalCurve):
    """A curve that is estimated in closed form, and made exact share by share.

    Parameters
    ----------
    estimate : ShareEstimate
    exact : callable, units -> seconds
        Expensive: called once for each refined share.
    """

    is_refinable = True

    def __init__(self, estimate: ShareEstimate, exact: Callable[[int], float]) -> None:
        self._curve = None
        self._estimate = estimate
        self._compute_exact = exact
        self._exact: dict[int, float] = {}

    @property
    def curve(self) -> SpeedFunction:
        """The curve as refined so far."""
        if self._curve is None:
            self._curve = self._fitted()
        return self._curve

    @property
    def fingerprint(self) -> Hashable | None:
        return None

    def refine(self, share: int) -> None:
        """Make the curve exact at `share` units, 1 or more."""
        self._exact[share] = self._compute_exact(share)
        self._curve = None

    def _fitted(self) -> PiecewiseLinear:
        return _through(*self._knots())

    def _knots(self, extra_units: Sequence[float] = ()) -> tuple[Floats, Floats]:
        """Return (n,) units and seconds of the curve's knots, including `extra_units`."""
        estimate, units, seconds = self._estimate, self._estimate.units, self._estimate.seconds
        refined = np.array(sorted(self._exact), dtype=float)
        extra = np.union1d(refined, extra_units)
        if len(extra):
            all_units = np.union1d(units, extra)
            seconds = np.interp(all_units, units, seconds)
            seconds[np.searchsorted(all_units, extra)] = estimate.at(extra)
            units = all_units
        if len(refined):
            exact = np.array([self._exact[int(x)] for x in refined])
            ratios = exact / seconds[np.searchsorted(units, refined)]
            seconds = seconds * np.interp(units, refined, ratios)
        return units, seconds


class PlannedCurve(RefinedCurve):
    """The total of a device with a link, by its best plans.

    Scaled by the ratio of measured to planned times of the latest shares.

    Parameters
    ----------
    plans : PlanTable
    model : DeviceModel
        Its total holds the measured times of the latest shares.
    load : int, units
    is_corrected : bool
        Whether to scale: only if those shares were planned for the memory usable now.
    last : DevicePlan, optional
        Of the last run: the measured time of its share is compared with the planned time of these
        chunks. An estimate between other shares may be far off where a kernel has steps.
    """

    def __init__(
        self,
        plans: PlanTable,
        model: DeviceModel,
        load: int,
        *,
        is_corrected: bool = True,
        last: DevicePlan | None = None,
    ) -> None:
        super().__init__(plans.estimate, plans.seconds)
        self._plans = plans
        self._load = load
        self._latest = latest_shares(model) if is_corrected else []
        measured = [share for share, _, _ in self._latest]
        self._last = last if last is not None and last.share in measured else None
        if self._last is not None:
            self._exact[self._last.share] = plans.seconds_of(self._last)

    @property
    def fingerprint(self) -> Hashable | None:
        plans = self._plans.fingerprint
        return None if plans is None else (plans, self._last, *self._latest)

    def plan(self, share: int) -> DevicePlan:
        """Return the plan for `share` units, 1 or more."""
        return self._plans.plan(share)

    def fuller_share(self, share: int) -> int:
        return self._plans.fuller_share(share)

    def _fitted(self) -> PiecewiseLinear:
        measured = [share for share, _, _ in self._latest if share <= self._load]
        units, seconds = self._knots(measured)
        curve = _through(units, seconds)
        factor = correction(self._latest, curve)
        return curve if factor == 1.0 else _through(units, factor * seconds)


def _through(units: Floats, seconds: Floats) -> PiecewiseLinear:
    return PiecewiseLinear().through(units, rising(seconds, np.ones(len(units))))


def planned_total(
    model: DeviceModel, memory: MemoryDemand, overlap: Overlap, load: int
) -> SpeedFunction:
    """Return the unrefined total of a device with a link for shares of `load`.

    Parameters
    ----------
    model : DeviceModel
    memory : MemoryDemand
    overlap : Overlap
    load : int, units
        No share is larger.

    Raises
    ------
    DataError
        Not even one unit fits.
    """
    return PlannedCurve(PlanTable(model, memory, overlap, load), model, load).curve
