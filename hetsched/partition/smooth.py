"""Equal times by root finding on smooth models: Clarke 6.1, in O(p) per step.

The equations are F_1 = n - sum x_i = 0 and F_i = t_i(x_i) - t_1(x_1) = 0 for i = 2..p. The paper's
update x - J F must be x - J^-1 F; J is an arrowhead matrix, so the step has a closed form with the
common time T of the tangents::

    T = (n - sum x_i + sum t_i / t_i') / sum 1 / t_i'        x_i += (T - t_i) / t_i'

These are the iterates of Newton's method on F, starting from equal shares. They stand for the
paper's HYBRJ; where they find no root, `geometric` is as fast as that (docs/papers.md).
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
    check_request,
    distribution_of,
    predict,
)
from hetsched.partition.geometric import geometric
from hetsched.partition.model_queries import evaluate, speed_functions, time_of
from hetsched.partition.rounding import round_greedy

MAX_STEPS = 50
"""The paper reports 2 steps on smooth curves and 30 on a cliff."""
MIN_SHARE = 1e-6
"""Units: lower bound on shares, so that the fixed cost and slope of a curve are defined."""
EQUAL = 1e-9
"""Relative difference up to which times count as equal."""
SLOPE_STEP = 1e-6
"""Relative step for the slope of a model without `derivative`."""


def smooth(models: Models, load: int, limits: Limits | None = None) -> Distribution:
    """Split `load` so that all devices below their limits finish together.

    Parameters
    ----------
    models : sequence of SpeedFunction
        Best with continuous derivatives, such as `Akima` or `Monotone`.
    load : int, units
    limits : sequence of int or None, units, optional
        The maximum for each device; devices at their limit finish earlier.

    Returns
    -------
    Distribution
        The optimum where times strictly increase; otherwise one of possibly several splits with
        equal times. Without a root after `MAX_STEPS`, the result of `geometric`, with a `reason`.
        O(p) per step.

    Raises
    ------
    UsageError
        A malformed argument; a model is unmeasured, fails for whole units, or returns an invalid
        time.
    DataError
        The limits leave no room for the load, or every split has an infinite time.
    """
    load, max_shares = check_request(models, load, limits)
    if load == 0:
        return distribution_of([0] * len(max_shares), np.zeros(len(max_shares)))
    try:
        root = solve(models, load, max_shares)
    except UsageError as error:
        # For example a model for whole units only, which suffices for geometric.
        root = Root([], 0.0, 0, str(error))
    if root.reason:
        reason = f"smooth: {root.reason}; geometric's split instead"
        return replace(geometric(models, load, limits), reason=reason)
    return predict(models, round_greedy(models, root.parts, load, max_shares))


@dataclass(frozen=True)
class Root:
    """The point where the solver stopped.

    Attributes
    ----------
    parts : list of float, units
        One per device; slightly below the root, for rounding down.
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


def solve(models: Models, load: int, max_shares: list[int]) -> Root:
    """Run Newton's method from equal shares, each kept between (almost) 0 and its limit."""
    curves = [
        _Tangent(i, model, limit)
        for i, (model, limit) in enumerate(zip(speed_functions(models), max_shares, strict=True))
    ]
    high = np.array(max_shares, dtype=np.float64)
    low = np.minimum(MIN_SHARE, high)
    x = np.clip(load / len(curves), low, high)
    precision = max(MIN_SHARE, 1e-12 * load)
    for step in range(1, MAX_STEPS + 1):
        times, slopes = _tangents(curves, x)
        if not (np.isfinite(times).all() and np.isfinite(slopes).all() and slopes.all()):
            return Root([], 0.0, step, f"a model has no usable slope in step {step}")
        moved, seconds = newton(x, times, slopes, load, low, high)
        if not np.isfinite(moved).all():
            return Root([], 0.0, step, f"the tangents don't meet in step {step}")
        has_converged = float(np.abs(moved - x).max()) <= precision
        x = moved
        if has_converged:
            times, _ = _tangents(curves, x)
            reason = _flaw(x, times, seconds, load, low, high)
            return Root(np.maximum(x - precision, 0.0).tolist(), seconds, step, reason)
    return Root([], 0.0, MAX_STEPS, f"no root after {MAX_STEPS} steps")


def newton(
    x: Floats, times: Floats, slopes: Floats, load: float, low: Floats, high: Floats
) -> tuple[Floats, float]:
    """Take one step: shares in `low` to `high` with sum `load` at which the tangents are equal.

    Shares that would leave their range are fixed at its end, first on the side with the larger
    excess, and the others solved again (Bitran & Hax 1981): exact for positive slopes, at most p
    rounds. Slopes that cancel give shares that aren't finite.

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
        remaining = load - float(moved[~free].sum())
        rates = 1 / slopes[free]
        with np.errstate(divide="ignore", invalid="ignore"):
            seconds = float(
                (remaining - x[free].sum() + (times[free] * rates).sum()) / rates.sum()
            )
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
    """Return why `x` isn't the equal-time point; empty if it is."""
    if abs(float(x.sum()) - load) > EQUAL * load + len(x) * MIN_SHARE:
        return f"the shares sum to {float(x.sum()):.6g}"
    early, late = times < seconds * (1 - EQUAL), times > seconds * (1 + EQUAL)
    # A device at its limit may end early. A device without a share would end late.
    wrong: NDArray[np.bool_] = (early & (x < high)) | (late & (x > low))
    if wrong.any():
        return f"{int(wrong.sum())} devices don't finish with the others"
    return ""


class _Tangent:
    """Time and slope of one model, by differences if it has no `derivative`."""

    def __init__(self, index: int, model: Any, limit: int) -> None:
        self._index, self._model = index, model
        self.slope = self._derivative if hasattr(model, "derivative") else self._difference
        self.is_idle = limit == 0

    def time(self, x: float) -> float:
        return time_of(self._index, self._model, x)

    def _derivative(self, x: float) -> float:
        return evaluate(self._index, self._model, "derivative", x)

    def _difference(self, x: float) -> float:
        step = SLOPE_STEP * x
        return (self.time(x + step) - self.time(x - step)) / (2 * step)


def _tangents(curves: list[_Tangent], x: Floats) -> tuple[Floats, Floats]:
    """Return (p,) float64, seconds and seconds per unit at `x`; 0 and 1 without a share."""
    pairs = list(zip(curves, x.tolist(), strict=True))
    times = [0.0 if curve.is_idle else curve.time(units) for curve, units in pairs]
    slopes = [1.0 if curve.is_idle else curve.slope(units) for curve, units in pairs]
    return np.array(times), np.array(slopes)
