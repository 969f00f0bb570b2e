"""The interface of speed functions (`SpeedFunction`), and the base of ours (`Curve`)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol, overload, runtime_checkable

import numpy as np

from hetsched.errors import UsageError
from hetsched.models.curves.segments import Floats, Numbers, Segments
from hetsched.models.validation import require_argument

if TYPE_CHECKING:
    from hetsched.models.evidence.observations import ObservationWindows

__all__ = [
    "NO_POINTS",
    "Curve",
    "LearningCurve",
    "PlannerCurve",
    "SpeedFunction",
    "no_observations",
    "planner_curve",
]


@runtime_checkable
class SpeedFunction(Protocol):
    """psi, sigma: what partitioners and schedulers require of a model.

    Our curves accept a number or an array of units and return the same. Third-party models that
    accept only numbers also work with the partitioners, but more slowly.
    """

    def speed(self, x: Any, /) -> Any:
        """Return units per second at a load of `x` units."""

    def time(self, x: Any, /) -> Any:
        """Return the seconds of one operation of `x` units, fixed part included; 0 for x = 0."""


@runtime_checkable
class LearningCurve(SpeedFunction, Protocol):
    """A speed function that learns from observations, as all of ours do."""

    def observe(self, units: float, seconds: float) -> None:
        """Learn that `units` took `seconds`. Raises UsageError unless positive and finite."""

    @property
    def points(self) -> Floats:
        """Return (n, 2) float64, units and seconds: the papers' approximation points."""

    @property
    def repeats(self) -> int:
        """Observations of a size that was measured before (the papers' accuracy points)."""


class PlannerCurve:
    """Methods of a curve that the planner uses besides `speed` and `time`.

    The defaults apply to a curve that has only these two.
    """

    def closed_form(self) -> Segments | None:
        """Return the curve as pieces, the nearest rising ones if times fall; None: unavailable."""
        return None

    def fingerprint(self) -> bytes | None:
        """Return a key shared by curves of equal times; None: times may change or are opaque."""
        return None

    def evidence(self) -> ObservationWindows | None:
        """Return the observations behind the fit (don't modify them); None: not kept."""
        return None

    def scaled(self, factor: float) -> SpeedFunction | None:
        """Return a curve with times multiplied by `factor`, same evidence; None: unsupported."""
        return None


_TIME_AND_SPEED_ONLY = PlannerCurve()


def planner_curve(curve: SpeedFunction) -> PlannerCurve:
    """Return `curve` if it is one of ours, else the defaults for third-party curves."""
    return curve if isinstance(curve, PlannerCurve) else _TIME_AND_SPEED_ONLY


class Curve(PlannerCurve, ABC):
    """A speed function that learns from observations; evaluated by its `Segments`."""

    may_fall = False
    """Whether times may fall with size: `segments` is then the nearest curve that rises."""

    @abstractmethod
    def observe(self, units: float, seconds: float) -> None:
        """Learn that `units` took `seconds`.

        Raises
        ------
        UsageError
            Either is not a positive finite number.
        """

    @property
    @abstractmethod
    def points(self) -> Floats:
        """(n, 2) float64, units and seconds: the knots of the curve, by units."""

    @property
    @abstractmethod
    def repeats(self) -> int:
        """Observations of a size that was measured before (the papers' accuracy points)."""

    @property
    @abstractmethod
    def segments(self) -> Segments:
        """Return the closed form. Raises UsageError without observations."""

    def closed_form(self) -> Segments:
        return self.segments

    def fingerprint(self) -> bytes | None:
        return None if self.may_fall else self.segments.fingerprint

    @property
    def _evaluated(self) -> Segments:
        """Return the pieces that `time`, `speed`, `derivative` and `inverse` evaluate."""
        return self.segments

    @overload
    def time(self, x: float, /) -> float: ...
    @overload
    def time(self, x: Numbers, /) -> Floats: ...
    def time(self, x: float | Numbers, /) -> float | Floats:
        """Return the seconds for `x` units (number or array); 0 for x = 0.

        Raises
        ------
        UsageError
            There are no observations; `x` isn't numeric, or is negative or infinite.
        """
        return self._evaluated.time(require_argument("load", x))

    @overload
    def speed(self, x: float, /) -> float: ...
    @overload
    def speed(self, x: Numbers, /) -> Floats: ...
    def speed(self, x: float | Numbers, /) -> float | Floats:
        """Return units per second at `x` units (number or array). Raises UsageError as `time`."""
        return self._evaluated.speed(require_argument("load", x))

    @overload
    def derivative(self, x: float, /) -> float: ...
    @overload
    def derivative(self, x: Numbers, /) -> Floats: ...
    def derivative(self, x: float | Numbers, /) -> float | Floats:
        """Return dt/dx at `x` (number or array), seconds per unit; to the right at a knot."""
        return self._evaluated.derivative(require_argument("load", x))

    @overload
    def inverse(self, seconds: float, /) -> float: ...
    @overload
    def inverse(self, seconds: Numbers, /) -> Floats: ...
    def inverse(self, seconds: float | Numbers, /) -> float | Floats:
        """Return the largest real x with time(x) <= `seconds` (number or array); 0 if none."""
        return self._evaluated.inverse(require_argument("seconds", seconds, minimum=-math.inf))


def no_observations(name: str) -> UsageError:
    return UsageError(f"{name}: no observation yet; call observe(units, seconds) first")


NO_POINTS: Floats = np.empty((0, 2))
