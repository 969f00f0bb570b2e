"""A smooth curve, for the root finder of `partition.smooth`, on SciPy's interpolator."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from hetsched.models.curves import Floats, Number
from hetsched.models.functions import Learnt
from hetsched.models.validation import require_load, require_positive
from hetsched.models.windows import Windows

MIN_SPEED_RATIO = 0.05
"""A spline is kept above this fraction of the lowest observed speed: it can undershoot, and a
speed of 0 would be an infinite time."""

Spline = Callable[..., Floats]
"""(x, order of the derivative) -> values."""


def _loads(x: Number) -> Floats:
    return np.asarray(require_load(x), dtype=np.float64)


def _like(x: Number, values: Floats) -> Number:
    return values if isinstance(x, np.ndarray) else float(values)


class Akima(Learnt):
    """Speed is Akima's spline through the observed speeds, s(x); t(x) = x / s(x) (Clarke 6.2).

    It follows dips in speed, which `PiecewiseLinear` treats as noise, so its times may fall with
    size. Beyond the load, or the largest size if that is more, speed is constant.

    Parameters
    ----------
    observations : iterable of (units, seconds), or Windows, optional
    load : float, units, optional
        The whole load, up to which the paper pads the curve. Default: twice the largest size.

    Raises
    ------
    UsageError
        An observation or the load is not positive and finite.
    """

    def __init__(
        self,
        observations: Iterable[tuple[float, float]] | Windows = (),
        *,
        load: float | None = None,
    ) -> None:
        super().__init__(observations)
        self._load = None if load is None else require_positive("load", load, " units")

    def time(self, x: Number, /) -> Number:
        """Return the seconds for `x` units (number or array); 0 for x = 0. Raises UsageError."""
        return _like(x, self._at(_loads(x))[0])

    def derivative(self, x: Number, /) -> Number:
        """Return dt/dx at `x` units (number or array), seconds per unit."""
        return _like(x, self._at(_loads(x))[1])

    def speed(self, x: Number, /) -> Number:
        """Return units per second at `x` units (number or array). Raises UsageError as `time`."""
        loads = _loads(x)
        seconds, derivative = self._at(loads)
        is_loaded = loads > 0
        ratio = np.where(is_loaded, loads, 1.0) / np.where(is_loaded, seconds, derivative)
        return _like(x, ratio)

    def _at(self, x: Floats) -> tuple[Floats, Floats]:
        """Return seconds and seconds per unit at `x` >= 0."""
        spline, lowest, last = self._fitted()
        inside = np.minimum(x, last)
        speed, rise = spline(inside), spline(inside, 1)
        flat = (speed < lowest) | (x >= last)
        speed, rise = np.maximum(speed, lowest), np.where(flat, 0.0, rise)
        return x / speed, (speed - x * rise) / speed**2

    def _refit(self) -> tuple[Spline, float, float]:
        from scipy.interpolate import Akima1DInterpolator  # late: 0.4 s that few programs need

        _, units, _, seconds, _, _ = self._windows.evidence
        load = 2 * float(units[-1]) if self._load is None else self._load
        x, speeds = padded(units, units / seconds, load)
        return Akima1DInterpolator(x, speeds), MIN_SPEED_RATIO * speeds.min(), float(x[-1])


def padded(x: Floats, speeds: Floats, load: float) -> tuple[Floats, Floats]:
    """Extend the knots to 0 and `load` with the speeds at both ends: at least five.

    The paper prints (n - x_k) / 2 for the knot halfway to the load; abscissae only increase with
    (x_k + n) / 2.
    """
    knots = [0.0, *x.tolist()]
    if len(x) == 1:
        knots.insert(1, float(x[0]) / 2)
    if load > x[-1]:
        halfway = [(float(x[-1]) + load) / 2] if len(x) <= 2 else []
        knots += [*halfway, load]
    # np.interp extends the outermost speeds, which is what the padding is.
    return np.array(knots), np.interp(knots, x, speeds)
