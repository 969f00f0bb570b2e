"""Speed functions: how long x units take; and the model of one device, made of four of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np

from hetsched.errors import UsageError
from hetsched.models.confidence import Knot
from hetsched.models.curves import (
    Floats,
    Number,
    Segments,
    constant_speed,
    linear_times,
    straight_line,
    through_knots,
)
from hetsched.models.fits import fitted_line, pool_except_dips, rising, shape_fit
from hetsched.models.validation import (
    require_load,
    require_non_negative,
    require_observation,
    require_pairs,
    require_positive,
)
from hetsched.models.windows import Windows

Shape = Literal["rising", "paper", "dips"]
NO_POINTS: Floats = np.empty((0, 2))


@runtime_checkable
class SpeedFunction(Protocol):
    """psi, sigma: what partitioners and schedulers require of a model.

    Ours accept a number or an array of units; third-party models that accept only numbers work,
    but more slowly.
    """

    def speed(self, x: Any, /) -> Any:
        """Return units per second at a load of `x` units."""

    def time(self, x: Any, /) -> Any:
        """Return the seconds of one operation of `x` units, fixed part included; 0 for x = 0."""


class PlannerCurve:
    """What the planner uses besides `speed` and `time`; the defaults, of a third-party curve."""

    def fingerprint(self) -> bytes | None:
        """Return a key shared by curves of equal times; None: times may change or are opaque."""
        return None

    def evidence(self) -> Windows | None:
        """Return the observations behind the fit (don't modify them); None: not kept."""
        return None

    def scaled(self, factor: float) -> SpeedFunction | None:
        """Return a curve with times multiplied by `factor`, same evidence; None: unsupported."""
        return None


_TIME_AND_SPEED_ONLY = PlannerCurve()


def planner_curve(curve: SpeedFunction) -> PlannerCurve:
    return curve if isinstance(curve, PlannerCurve) else _TIME_AND_SPEED_ONLY


class Curve(PlannerCurve, ABC):
    """A speed function evaluated by its `Segments`."""

    may_fall = False
    """Whether times may fall with size: `segments` is then the nearest curve that rises."""

    @property
    @abstractmethod
    def segments(self) -> Segments:
        """Return the closed form. Raises UsageError without observations."""

    def fingerprint(self) -> bytes | None:
        return self._evaluated.fingerprint

    @property
    def _evaluated(self) -> Segments:
        return self.segments

    def time(self, x: Number, /) -> Number:
        """Return the seconds for `x` units (number or array); 0 for x = 0.

        Raises
        ------
        UsageError
            There are no observations; `x` isn't numeric, or is negative or infinite.
        """
        return self._evaluated.time(require_load(x))

    def speed(self, x: Number, /) -> Number:
        """Return units per second at `x` units (number or array). Raises UsageError as `time`."""
        return self._evaluated.speed(require_load(x))

    def derivative(self, x: Number, /) -> Number:
        """Return dt/dx at `x` (number or array), seconds per unit; to the right at a knot."""
        return self._evaluated.derivative(require_load(x))


def no_observations(name: str) -> UsageError:
    return UsageError(f"{name}: no observation yet; call observe(units, seconds) first")


class Constant(Curve):
    """Time proportional to the load (the CPM of Clarke 3): only the last observation counts.

    Parameters
    ----------
    speed : float, units/s, optional
        Used until the first observation.

    Raises
    ------
    UsageError
        The speed is not positive and finite.
    """

    def __init__(self, speed: float | None = None) -> None:
        self._last: tuple[float, float] | None = None
        self._segments: Segments | None = None
        self._repeats = 0
        if speed is not None:
            self._segments = constant_speed(require_positive("speed", speed, " units/s"))

    def observe(self, units: float, seconds: float) -> None:
        last = require_observation(units, seconds)
        self._repeats += self._last is not None and self._last[0] == last[0]
        self._last = last
        self._segments = constant_speed(last[0] / last[1])

    @property
    def points(self) -> Floats:
        """(n, 2) float64, units and seconds: of the last observation."""
        return NO_POINTS.copy() if self._last is None else np.array([self._last])

    @property
    def repeats(self) -> int:
        """Observations of the size before (the papers' accuracy points)."""
        return self._repeats

    @property
    def segments(self) -> Segments:
        if self._segments is None:
            raise no_observations("Constant")
        return self._segments


class Polyline(Curve):
    """Times linear between points; constant speed below the first and beyond the last.

    It doesn't learn. Times may fall with size; `segments` is then the nearest curve that rises.

    Parameters
    ----------
    points : iterable of (units, seconds)

    Raises
    ------
    UsageError
        There are no points; units don't increase; a number is not positive and finite.
    """

    def __init__(self, points: Iterable[tuple[float, float]]) -> None:
        valid = [require_observation(*pair) for pair in require_pairs(points)]
        units, seconds = np.array(valid).reshape(-1, 2).T
        if not len(units) or not (np.diff(units) > 0).all():
            raise UsageError("points: there must be at least one, and their units must increase")
        slope = float(seconds[-1] / units[-1])
        self.may_fall = bool((np.diff(seconds) <= 0).any())
        self._curve = self._segments = linear_times(units, seconds, slope)
        if self.may_fall:
            self._segments = linear_times(units, rising(seconds), slope)

    @property
    def segments(self) -> Segments:
        return self._segments

    @property
    def _evaluated(self) -> Segments:
        return self._curve


class Learnt(ABC):
    """A curve that is fitted again to its observations after each change to them."""

    def __init__(self, observations: Iterable[tuple[float, float]] | Windows = ()) -> None:
        if not isinstance(observations, Windows):
            observations = Windows(observations)
        self._windows = observations
        self._fit: Any = None

    def observe(self, units: float, seconds: float) -> None:
        self._windows.add(units, seconds)
        self._fit = None

    @property
    def points(self) -> Floats:
        """(n, 2) float64, units and seconds: median time of each size, by units."""
        evidence = self._windows.evidence
        return np.column_stack((evidence.units, evidence.seconds))

    @property
    def repeats(self) -> int:
        """Observations of a size that was measured before (the papers' accuracy points)."""
        return self._windows.repeats

    def knots(self) -> list[Knot]:
        """Return the evidence by units: observed times, from which the curve may differ."""
        return self._windows.knots()

    def _fitted(self) -> Any:
        if self._fit is None:
            if not len(self._windows):
                raise no_observations(type(self).__name__)
            self._fit = self._refit()
        return self._fit

    @abstractmethod
    def _refit(self) -> Any:
        """Fit the observations, at least one."""


@dataclass(frozen=True)
class Fit:
    """`curve` is evaluated; `rising` is the nearest one without dips; `line`: gap and slope.

    Of a `PhaseCurve`, `trend`: gap and slope of the line through most sizes; `misfit`: how far a
    size lies off it in the median, a logarithm.
    """

    points: Floats
    curve: Segments
    rising: Segments
    line: tuple[float, float] | None = None
    trend: tuple[float, float] = (0.0, 0.0)
    misfit: float = 0.0


class FittedCurve(Learnt, Curve):
    """A learnt curve with a closed form, its `Fit`."""

    @property
    def points(self) -> Floats:
        is_empty = self._fit is None and not len(self._windows)
        return NO_POINTS.copy() if is_empty else self._fitted().points.copy()

    @property
    def segments(self) -> Segments:
        """Return the closed form; of a curve with dips the nearest rising one."""
        fit: Fit = self._fitted()
        return fit.rising

    @property
    def _evaluated(self) -> Segments:
        fit: Fit = self._fitted()
        return fit.curve


class PiecewiseLinear(FittedCurve):
    """Speed is linear between knots and constant outside them; times strictly increase.

    The partial functional performance model (Clarke 5.2; DFPA). A new size is a new knot; more
    observations of a size are repeats, and the median of the last five is the knot's time.
    Refitting starts from the raw observations, so the order of different sizes doesn't matter.
    Times that fall with size count as noise: isotonic regression pools them, weighted with the
    number of observations.

    Parameters
    ----------
    observations : iterable of (units, seconds), optional
    shape : "rising", "paper" or "dips"
        "rising": times rise with size. "paper": Clarke's rule in addition (`shape_fit`): speed
        rises and is concave up to a peak, then falls. "dips": times may fall with size where
        repeats confirm it (`pool_except_dips`); only `partition.optimal` finds the best split of
        such curves.

    Raises
    ------
    UsageError
        An observation is not positive and finite; `shape` is unknown.
    """

    def __init__(
        self,
        observations: Iterable[tuple[float, float]] | Windows = (),
        *,
        shape: Shape = "rising",
    ) -> None:
        if shape not in get_args(Shape):
            raise UsageError(f'shape: {shape!r}, it must be "rising", "paper" or "dips"')
        super().__init__(observations)
        self._shape = shape
        self.may_fall = shape == "dips"

    def through(self, units: Floats, seconds: Floats) -> PiecewiseLinear:
        """Return a curve with this evidence that passes through other knots until it is refitted.

        `units` and `seconds` strictly increase, and are positive.
        """
        other = copy(self)
        other._windows = self._windows.copy()
        curve = through_knots(units, seconds)
        other._fit = Fit(np.column_stack((units, seconds)), curve, curve)
        return other

    def scaled(self, factor: float) -> PiecewiseLinear | None:
        if not len(self.points):
            return None
        units, seconds = self.points.T
        return self.through(units, factor * seconds)

    def evidence(self) -> Windows:
        return self._windows

    def _refit(self) -> Fit:
        _, units, _, seconds, counts, _ = self._windows.evidence
        paper = self._shape == "paper"
        shaped = shape_fit(units, seconds) if paper else rising(seconds, counts)
        curve = plain = through_knots(units, shaped)
        if self._shape == "dips":
            shaped = pool_except_dips(self.knots())
            curve = through_knots(units, shaped)
        return Fit(np.column_stack((units, shaped)), curve, plain)


class Affine(FittedCurve):
    """time(x) = gap + slope x for x > 0, both non-negative: the line of least relative error.

    Constant speed below the smallest knot would hide the cost of starting a copy or a kernel, and
    a planner would cut the load into chunks of one unit: Potts & Baker (1989) and later work on
    lot streaming have such a setup time for each sublot.

    Parameters
    ----------
    gap, slope : float, seconds and seconds/unit, optional
        Used until the first observation.
    observations : iterable of (units, seconds), optional

    Raises
    ------
    UsageError
        Gap or slope is negative or not finite; an observation is not positive and finite.
    """

    def __init__(
        self,
        gap: float | None = None,
        slope: float | None = None,
        observations: Iterable[tuple[float, float]] = (),
    ) -> None:
        super().__init__(observations)
        line = (
            require_non_negative("gap", 0.0 if gap is None else gap, " s"),
            require_non_negative("slope", 0.0 if slope is None else slope, " s/unit"),
        )
        if (gap, slope) != (None, None) and not len(self._windows):
            self._fit = line_fit(NO_POINTS, line)

    @property
    def gap(self) -> float:
        """Fixed cost of an operation, in seconds."""
        return self._line[0]

    @property
    def slope(self) -> float:
        """Seconds per unit."""
        return self._line[1]

    @property
    def _line(self) -> tuple[float, float]:
        line: tuple[float, float] = self._fitted().line
        return line

    def _refit(self) -> Fit:
        _, units, _, seconds, counts, _ = self._windows.evidence
        line = fitted_line(units, seconds, counts)
        return line_fit(np.column_stack((units, seconds)), line)


def line_fit(points: Floats, line: tuple[float, float]) -> Fit:
    segments = straight_line(*line)
    return Fit(points, segments, segments, line)


# ---- one device


@dataclass(frozen=True)
class DeviceModel:
    """The speed functions of one device; itself a speed function, that of its total.

    Attributes
    ----------
    total : SpeedFunction
        psi_t: a whole share, copies included.
    compute : SpeedFunction
        psi_w: one kernel call.
    h2d, d2h : SpeedFunction or None
        sigma_iota, sigma_o: one copy in, one copy out. None: no link, or nothing to copy.
    duplex : (float, float)
        Share of its one-way rate that h2d, d2h keeps while the other is busy; 0 < share <= 1.
    call_seconds : float, seconds
        Cost of each call of a core's kernel. 0: none that matters, or unknown.

    Raises
    ------
    UsageError
        A curve has no time and speed; a duplex share or `call_seconds` is out of range.
    """

    total: SpeedFunction
    compute: SpeedFunction
    h2d: SpeedFunction | None = None
    d2h: SpeedFunction | None = None
    duplex: tuple[float, float] = field(default=(1.0, 1.0), kw_only=True)
    call_seconds: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        curves = {"total": self.total, "compute": self.compute, "h2d": self.h2d, "d2h": self.d2h}
        for name, curve in curves.items():
            optional = name in ("h2d", "d2h") and curve is None
            if not (optional or (hasattr(curve, "time") and hasattr(curve, "speed"))):
                raise UsageError(f"{name}: {curve!r} has no time and speed")
        if self.call_seconds != 0.0:
            require_non_negative("call_seconds", self.call_seconds)
        if self.duplex == (1.0, 1.0):
            return
        try:
            first, second = (require_positive("duplex", share) for share in self.duplex)
        except (TypeError, ValueError):
            first = second = math.inf
        if max(first, second) > 1:
            raise UsageError(f"duplex: {self.duplex} must be two numbers above 0, at most 1")

    @property
    def link(self) -> bool:
        return self.h2d is not None or self.d2h is not None

    def time(self, x: Any, /) -> Any:
        """Return the seconds for a whole share of `x` units (number or array)."""
        return self.total.time(x)

    def speed(self, x: Any, /) -> Any:
        """Return units per second at a share of `x` units (number or array)."""
        return self.total.speed(x)
