"""Equal times by root finding on smooth models: Clarke 6.1.

The equations are F_1 = n - sum x_i = 0 and F_i = t_i(x_i) - t_1(x_1) = 0 for i = 2..p, solved by
Powell's hybrid method with their Jacobian, as in the paper (MINPACK's HYBRJ).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hetsched.errors import UsageError
from hetsched.models.curves import EQUAL, Floats
from hetsched.partition.distribution import (
    Distribution,
    Limits,
    Models,
    check_request,
    distribution_of,
    evaluate,
    predict,
    speed_functions,
    time_of,
)
from hetsched.partition.equal_times import geometric, round_greedy

MIN_SHARE = 1e-6
"""Units: lower bound on shares, so that the fixed cost and slope of a curve are defined."""


def smooth(models: Models, load: int, limits: Limits | None = None) -> Distribution:
    """Split `load` so that all devices below their limits finish together.

    Parameters
    ----------
    models : sequence of SpeedFunction
        Best with continuous derivatives, such as `Akima`.
    load : int, units
    limits : sequence of int or None, units, optional
        The maximum for each device; devices at their limit finish earlier.

    Returns
    -------
    Distribution
        The optimum where times strictly increase; otherwise one of possibly several splits with
        equal times. Without a root, the result of `geometric`, with a `reason`.

    Raises
    ------
    UsageError
        A malformed argument; a model is unmeasured, fails, or returns an invalid time.
    DataError
        The limits leave no room for the load, or every split has an infinite time.
    """
    load, max_shares = check_request(models, load, limits)
    if load == 0:
        return distribution_of([0] * len(max_shares), np.zeros(len(max_shares)))
    try:
        parts, reason = _solve(models, load, np.array(max_shares, dtype=np.float64))
    except UsageError as error:
        # For example a model for whole units only, which suffices for geometric.
        parts, reason = np.empty(0), str(error)
    if reason:
        reason = f"smooth: {reason}; geometric's split instead"
        return replace(geometric(models, load, limits), reason=reason)
    return predict(models, round_greedy(models, parts.tolist(), load, max_shares))


def _solve(models: Models, load: int, high: Floats) -> tuple[Floats, str]:
    """Return the real shares at equal times, and why they are no root.

    Shares that would leave their range are fixed at its end, first on the side with the larger
    excess, and the others solved again (Bitran & Hax 1981).
    """
    from scipy.optimize import root  # importing it takes longer than all of this package

    curves = [
        _Tangent(i, model, limit)
        for i, (model, limit) in enumerate(zip(speed_functions(models), high, strict=True))
    ]
    low = np.minimum(MIN_SHARE, high)
    x = np.clip(load / len(curves), low, high)
    free = high > low
    while free.any():
        indices = np.flatnonzero(free)
        equations = _equations([curves[i] for i in indices], load - float(x[~free].sum()))
        x[indices] = root(equations, x[indices], jac=True, method="hybr", tol=1e-12).x
        over, under = np.maximum(x - high, 0.0), np.maximum(low - x, 0.0)
        if not np.isfinite(x).all() or not (over.any() or under.any()):
            break
        outside = over > 0 if over.sum() >= under.sum() else under > 0
        x, free = np.where(outside, np.clip(x, low, high), x), free & ~outside
    parts = np.maximum(x - max(MIN_SHARE, 1e-12 * load), 0.0)  # for rounding down
    return parts, _flaw(curves, x, load, low, high)


def _equations(curves: list[_Tangent], rest: float) -> Callable[[Floats], tuple[Floats, Floats]]:
    """Return a function of the shares: F, and its Jacobian, the paper's equation (5)."""

    def values(x: Floats) -> tuple[Floats, Floats]:
        times, slopes = np.array(
            [c.at(float(units)) for c, units in zip(curves, x, strict=True)]
        ).T
        jacobian = np.diag(slopes)
        jacobian[:, 0] = -slopes[0]
        jacobian[0] = -1.0
        return np.array([rest - x.sum(), *(times[1:] - times[0])]), jacobian

    return values


def _flaw(curves: list[_Tangent], x: Floats, load: int, low: Floats, high: Floats) -> str:
    """Return why `x` isn't the equal-time point; empty if it is."""
    if not abs(float(x.sum()) - load) <= EQUAL * load + len(x) * MIN_SHARE:
        return f"the shares sum to {float(x.sum()):.6g}"
    times = np.array([c.at(float(units))[0] for c, units in zip(curves, x, strict=True)])
    if not np.isfinite(times).all():
        return "a time is infinite"
    is_open, is_idle = x < high, x <= low
    seconds = float(np.median(times[is_open & ~is_idle])) if (is_open & ~is_idle).any() else 0.0
    seconds = seconds or float(times[~is_idle].max())
    early, late = times < seconds * (1 - EQUAL), times > seconds * (1 + EQUAL)
    # A device at its limit may end early. A device without a share would end late.
    wrong = (early & is_open) | (late & ~is_idle)
    return f"{int(wrong.sum())} devices don't finish with the others" if wrong.any() else ""


class _Tangent:
    """Time and slope of one model, by differences if it has no `derivative`."""

    def __init__(self, index: int, model: Any, limit: float) -> None:
        self._index, self._model, self._limit = index, model, limit

    def at(self, x: float) -> tuple[float, float]:
        """Return seconds and seconds per unit; outside of the device's range, on the tangent."""
        units = min(max(x, MIN_SHARE), self._limit)
        if not units:
            return 0.0, 1.0
        seconds = time_of(self._index, self._model, units)
        if hasattr(self._model, "derivative"):
            label = f"model of device {self._index}"
            slope = evaluate(label, self._model, "derivative", units)
        else:
            step = 1e-6 * units
            above, below = (time_of(self._index, self._model, units + s) for s in (step, -step))
            slope = (above - below) / (2 * step)
        return seconds + slope * (x - units), slope
