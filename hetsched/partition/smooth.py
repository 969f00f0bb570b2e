"""Equal times by root finding on smooth models: Clarke 6.1, in O(p) a step.

The equations are F_1 = n - sum x_i = 0 and F_i = t_i(x_i) - t_1(x_1) = 0 for i = 2..p. The paper's
update reads x - J F and must be x - J^-1 F; J is an arrowhead, so that the step has a closed form
with the common time T that the tangents predict::

    T = (n - sum x_i + sum t_i / t_i') / sum 1 / t_i'        x_i += (T - t_i) / t_i'

These are the iterates of Newton's method on F, starting from equal shares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsched.errors import UsageError
from hetsched.models.curves.segments import Floats
from hetsched.partition.distribution import (
    Distribution,
    Limits,
    Models,
    checked,
    described,
    priced,
)
from hetsched.partition.geometric import geometric
from hetsched.partition.model_queries import answer, speed_functions, time_of
from hetsched.partition.rounding import round_greedy

MOST_STEPS = 50
"""The paper tells of 2 steps on smooth curves and 30 on a cliff."""
LEAST = 1e-6
"""Units: shares are kept above it, where a fixed cost and the slope of a curve can be seen."""
SAME = 1e-9
"""Relative difference of times that are taken for equal."""
NUDGE = 1e-6
"""Relative step to tell the slope of a model that doesn't say it itself."""


def smooth(models: Models, load: int, limits: Limits | None = None) -> Distribution:
    """The split of `load` at which all devices within their limits finish together.

    Parameters
    ----------
    models : sequence of SpeedFunction
        Best with continuous derivatives, such as `Akima` or `Monotone`.
    load : int, units
    limits : sequence of int or None, units, optional
        The most that each device takes; devices at their limit finish earlier.

    Returns
    -------
    Distribution
        Where times strictly increase, the optimum; where they don't, one of possibly several
        splits with equal times. Without a root after `MOST_STEPS` it is that of `geometric`, and
        `.reason` says why. O(p) a step.

    Raises
    ------
    UsageError
        Malformed; a model knows nothing yet, fails for whole units, or has a time that can't be.
    DataError
        The limits leave no room for the load, or every split has an infinite time.
    """
    load, most = checked(models, load, limits)
    if load == 0:
        return described([0] * len(most), np.zeros(len(most)))
    try:
        found = solve(models, load, most)
    except UsageError as error:
        # A model that knows whole units only, say; geometric asks for no others.
        found = Root([], 0.0, 0, str(error))
    if found.reason:
        reason = f"smooth: {found.reason}; geometric's split instead"
        return replace(geometric(models, load, limits), reason=reason)
    return priced(models, round_greedy(models, found.parts, load, most))


@dataclass(frozen=True)
class Root:
    """Where the solver ended.

    Attributes
    ----------
    parts : list of float, units
        One a device; a little less than the root, for those who round down.
    seconds : float
        The common time.
    steps : int
    reason : str
        Why this is no root; empty if it is one.
    """

    parts: list[float]
    seconds: float
    steps: int
    reason: str


def solve(models: Models, load: int, most: list[int]) -> Root:
    """Newton's method from equal shares, each share kept between (almost) 0 and its limit."""
    curves = [
        _Tangent(i, model, limit)
        for i, (model, limit) in enumerate(zip(speed_functions(models), most, strict=True))
    ]
    high = np.array(most, dtype=np.float64)
    low = np.minimum(LEAST, high)
    x = np.clip(load / len(curves), low, high)
    near = max(LEAST, 1e-12 * load)
    for step in range(1, MOST_STEPS + 1):
        times, slopes = _tangents(curves, x)
        if not (np.isfinite(times).all() and np.isfinite(slopes).all() and slopes.all()):
            return Root([], 0.0, step, f"a model has no usable slope in step {step}")
        moved, seconds = newton(x, times, slopes, load, low, high)
        if not np.isfinite(moved).all():
            return Root([], 0.0, step, f"the tangents don't meet in step {step}")
        close = float(np.abs(moved - x).max()) <= near
        x = moved
        if close:
            times, _ = _tangents(curves, x)
            reason = _flaw(x, times, seconds, load, low, high)
            return Root(np.maximum(x - near, 0.0).tolist(), seconds, step, reason)
    return Root([], 0.0, MOST_STEPS, f"no root after {MOST_STEPS} steps")


def newton(
    x: Floats, times: Floats, slopes: Floats, load: float, low: Floats, high: Floats
) -> tuple[Floats, float]:
    """One step: where the tangents, kept between `low` and `high`, meet at a sum of `load`.

    Shares that the step would take out of their range are fixed at its end, those first on the
    side that is out by more, and the rest solved anew (Bitran & Hax 1981): exact for slopes above
    0, at most p rounds. Slopes that cancel give shares that aren't finite.

    Returns
    -------
    (p,) float64, units; float, seconds
    """
    free = high > low
    moved = np.where(free, x, high)
    seconds = 0.0
    for _ in range(len(x)):
        if not free.any():
            break
        left = load - float(moved[~free].sum())
        rates = 1 / slopes[free]
        with np.errstate(divide="ignore", invalid="ignore"):
            seconds = float((left - x[free].sum() + (times[free] * rates).sum()) / rates.sum())
            moved[free] = x[free] + (seconds - times[free]) * rates
        over = np.where(free, np.maximum(moved - high, 0.0), 0.0)
        under = np.where(free, np.maximum(low - moved, 0.0), 0.0)
        if not np.isfinite(seconds) or not (over.any() or under.any()):
            break
        outside = over > 0 if over.sum() >= under.sum() else under > 0
        moved = np.where(outside, np.clip(moved, low, high), moved)
        free &= ~outside
    return moved, seconds


def _flaw(x: Floats, times: Floats, seconds: float, load: int, low: Floats, high: Floats) -> str:
    """Why `x` isn't the equal-time point; empty if it is."""
    if abs(float(x.sum()) - load) > SAME * load + len(x) * LEAST:
        return f"the shares sum to {float(x.sum()):.6g}"
    early, late = times < seconds * (1 - SAME), times > seconds * (1 + SAME)
    # At its limit a device may end early; a device that gets nothing would end late.
    wrong: NDArray[np.bool_] = (early & (x < high)) | (late & (x > low))
    if wrong.any():
        return f"{int(wrong.sum())} devices don't finish with the others"
    return ""


class _Tangent:
    """Time and slope of one model, told by differences if it has no `derivative`."""

    def __init__(self, index: int, model: Any, limit: int) -> None:
        self._index, self._model = index, model
        self.slope = self._derivative if hasattr(model, "derivative") else self._difference
        self.idle = limit == 0

    def time(self, x: float) -> float:
        return time_of(self._index, self._model, x)

    def _derivative(self, x: float) -> float:
        return answer(self._index, self._model, "derivative", x)

    def _difference(self, x: float) -> float:
        step = NUDGE * x
        return (self.time(x + step) - self.time(x - step)) / (2 * step)


def _tangents(curves: list[_Tangent], x: Floats) -> tuple[Floats, Floats]:
    """(p,) float64, seconds, and seconds a unit, at `x`; 0 and 1 for a device that takes none."""
    pairs = list(zip(curves, x.tolist(), strict=True))
    times = [0.0 if curve.idle else curve.time(units) for curve, units in pairs]
    slopes = [1.0 if curve.idle else curve.slope(units) for curve, units in pairs]
    return np.array(times), np.array(slopes)
