"""Akima's spline through speeds (Clarke 6.2; Akima 1970), with the padding corrected.

It follows dips in speed, which `PiecewiseLinear` treats as noise, so its times may fall with size.
`Monotone` is the smooth curve whose times never fall.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hetsched.models.curves.cubics import Cubics, SmoothCurve
from hetsched.models.curves.segments import Floats
from hetsched.models.evidence.observations import ObservationWindows
from hetsched.models.validation import require_positive

MIN_SPEED_RATIO = 0.05
"""The spline is kept above this fraction of the lowest observed speed: it can undershoot, and a
speed of 0 would be an infinite time. The fraction itself is arbitrary."""
DEFAULT_LOAD_RATIO = 2.0
"""Without a load, the curve is padded as if the load were this many times the largest size."""


class Akima(SmoothCurve[tuple[Cubics, float, float]]):
    """Speed is a spline through the observed speeds, s(x); t(x) = x / s(x).

    Beyond the load, or the largest size if that is more, speed is constant.

    Parameters
    ----------
    observations : iterable of (units, seconds), or ObservationWindows, optional
    load : float, units, optional
        The whole load, up to which the paper pads the curve.

    Raises
    ------
    UsageError
        An observation or the load is not positive and finite.
    """

    def __init__(
        self,
        observations: Iterable[tuple[float, float]] | ObservationWindows = (),
        *,
        load: float | None = None,
    ) -> None:
        super().__init__(observations)
        self._load = None if load is None else require_positive("load", load, " units")

    def _at(self, x: Floats) -> tuple[Floats, Floats]:
        spline, lowest, last = self._fitted()
        speed, rise = spline.at(np.minimum(x, last))
        flat = (speed < lowest) | (x >= last)
        speed, rise = np.maximum(speed, lowest), np.where(flat, 0.0, rise)
        return x / speed, (speed - x * rise) / speed**2

    def _refit(self) -> tuple[Cubics, float, float]:
        units, seconds, _ = self._windows.medians()
        load = DEFAULT_LOAD_RATIO * float(units[-1]) if self._load is None else self._load
        x, speeds = padded(units, units / seconds, load)
        return (
            Cubics(x, speeds, slopes(x, speeds)),
            MIN_SPEED_RATIO * float(speeds.min()),
            float(x[-1]),
        )


def padded(x: Floats, speeds: Floats, load: float) -> tuple[Floats, Floats]:
    """Extend the knots to 0 and `load` with the speeds at both ends: at least five.

    The paper prints (n - x_k) / 2 for the knot halfway to the load; abscissae only increase with
    (x_k + n) / 2. Nothing is added on the right when the load is no more than the largest size.

    Parameters
    ----------
    x, speeds : (k,) float64, units and units/s, k >= 1
    load : float, units
    """
    knots = [0.0, *x.tolist()]
    if len(x) == 1:
        knots.insert(1, float(x[0]) / 2)
    if load > x[-1]:
        halfway = [(float(x[-1]) + load) / 2] if len(x) <= 2 else []
        knots += [*halfway, load]
    # np.interp extends the outermost speeds, which is what the padding is.
    return np.array(knots), np.interp(knots, x, speeds)


def slopes(x: Floats, y: Floats) -> Floats:
    """Return Akima's derivatives at n >= 2 knots, weighted towards the side that bends less.

    q_j = (|m_{j+1} - m_j| m_{j-1} + |m_{j-1} - m_{j-2}| m_j) / (sum of both weights), the mean of
    m_{j-1} and m_j where both weights are 0; two slopes are extrapolated linearly at each end.
    """
    m = np.diff(y) / np.diff(x)
    before, after = m[0], m[-1]
    # A single slope is repeated.
    second, second_last = (m[1], m[-2]) if len(m) > 1 else (m[0], m[0])
    ghost_before = 2 * before - second
    ghost_after = 2 * after - second_last
    m = np.concatenate(
        (
            [2 * ghost_before - before, ghost_before],
            m,
            [ghost_after, 2 * ghost_after - after],
        )
    )
    bends = np.abs(np.diff(m))
    bends_after, bends_before = bends[2:], bends[:-2]
    total = bends_after + bends_before
    # Rounding errors would choose a side by chance (SciPy has the same threshold).
    bent = total > 1e-9 * max(float(total.max()), np.finfo(float).tiny)
    weight = np.where(bent, bends_after / np.where(bent, total, 1.0), 0.5)
    result: Floats = weight * m[1:-2] + (1 - weight) * m[2:-1]
    return result
