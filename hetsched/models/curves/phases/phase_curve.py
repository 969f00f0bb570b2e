"""The phases of a chunk behind a link: a line or a cost of calls that fits, else a line per piece.

Kernels run in waves, batches are cut into powers of two, copies change their way at a size: such
times jump, and a line through them makes plans up to twice as long as necessary. They may also
fall with size where repeats confirm it (a batch of 128 FFTs is one call, one of 127 seven). Linear
in time rather than in speed (`PiecewiseLinear`), because on each side of a jump a phase is a fixed
cost and a cost per unit.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from hetsched.models.curves.curve import Curve
from hetsched.models.curves.fitted_curve import FittedCurve
from hetsched.models.curves.isotonic import rising
from hetsched.models.curves.non_monotone import pool_except_dips
from hetsched.models.curves.phases.affine import fitted_line, line_segments
from hetsched.models.curves.phases.call_fit import call_segments, fitted_calls
from hetsched.models.curves.phases.polyline import Polyline, linear_times
from hetsched.models.curves.segments import Floats, Segments
from hetsched.models.evidence.observations import ObservationWindows
from hetsched.models.evidence.smoothing import noise_deviation

MAX_MISFIT = 0.05
"""Relative distance of a well-measured size from the line beyond which the line doesn't fit."""
MAX_MISFIT_ERRORS = 4.0
"""That distance in standard errors of the size's median."""
MIN_NOISE = 0.025
"""Minimum standard deviation of the logarithm of a time: few repeats may agree by chance."""
MIN_RUNS = 2
"""Runs that must agree that a line doesn't fit."""
MIN_SIZES = 2
"""Sizes far from the line, in a run with others near it, that tell the same."""
MIN_PACE_RATIO = 1.05
"""Ratio of the times per unit of two neighbouring sizes from which a step may lie between them."""
MIN_HOPED_PACE = 0.95
"""Time per unit that is hoped for over the shortest measured. Arbitrary: a little more noise."""
FAR = 1024.0
"""Multiple of the largest size up to which its last slope counts in an optimistic curve."""
MAX_LAST_RATIO = 1.5
"""The slope beyond the largest size is taken from a size smaller by this factor, since noise
determines the slope between neighbours. Arbitrary."""


@dataclass(frozen=True)
class _PhaseFit:
    """`line`: gap and slope if it fits. `curve` is evaluated; `rising` has no dips.

    `counts_calls`: no line fits, but a cost of each call does.
    """

    line: tuple[float, float] | None
    curve: Segments
    rising: Segments
    counts_calls: bool = False


class PhaseCurve(FittedCurve[_PhaseFit], Curve):
    """time(x) = gap + slope x where that fits all well-measured sizes; else piecewise linear."""

    @property
    def gap(self) -> float | None:
        """Fixed cost of an operation, in seconds; None: no line fits."""
        line = self._fitted().line
        return None if line is None else line[0]

    @property
    def slope(self) -> float | None:
        """Seconds per unit; None: no line fits."""
        line = self._fitted().line
        return None if line is None else line[1]

    @property
    def follows_rule(self) -> bool:
        """Whether few parameters describe all sizes: a line, or a cost of each call."""
        fit = self._fitted()
        return fit.line is not None or fit.counts_calls

    @property
    def segments(self) -> Segments:
        return self._fitted().rising

    @property
    def _evaluated(self) -> Segments:
        return self._fitted().curve

    def fingerprint(self) -> bytes:
        return self._fitted().curve.fingerprint

    def evidence(self) -> ObservationWindows:
        return self._windows

    def optimistic(self) -> Polyline | None:
        """Return the curve if each step were right before the larger of two measured sizes.

        Between neighbouring sizes that differ in time per unit, it stays at the lower one's time
        until its time per unit is the shortest measured; or it continues the slope below, down to
        `MIN_HOPED_PACE` of the shortest. None: it follows a rule, or there is no such gap.
        """
        fit = self._fitted()
        if self.follows_rule:
            return None
        units = np.array([knot.units for knot in self._windows.knots()])
        seconds = fit.curve.time(units)
        shortest = float((seconds / units).min())
        points = [] if units[0] <= 1 else [(1.0, fit.curve.time(1.0))]
        steps = 0
        pairs = list(zip(units.tolist(), seconds.tolist(), strict=True))
        slope_below, previous = 0.0, (0.0, 0.0)
        for (low, low_seconds), (high, high_seconds) in itertools.pairwise(pairs):
            slope_below = (low_seconds - previous[1]) / (low - previous[0])
            previous = low, low_seconds
            points.append((low, low_seconds))
            before = high - 1
            paces = low_seconds / low, high_seconds / high
            is_step = max(paces) > MIN_PACE_RATIO * min(paces) and high_seconds > low_seconds
            if before <= low or not is_step:
                continue
            steps += 1
            corner = low_seconds / shortest
            if low < corner < before:
                points.append((corner, low_seconds))
            continued = low_seconds + slope_below * (before - low)
            hoped = min(shortest * before, max(continued, MIN_HOPED_PACE * shortest * before))
            reached = max(low_seconds, hoped)
            points.append((before, min(reached, fit.curve.time(before))))
        far = FAR * float(units[-1])
        points += [pairs[-1], (far, fit.curve.time(far))]
        return Polyline(points) if steps else None

    def pessimistic(self) -> Polyline | None:
        """Return the curve if each step were right after the smaller of two measured sizes.

        Sizes in between then take as long as the larger one. None: it follows a rule.
        """
        fit = self._fitted()
        if self.follows_rule:
            return None
        units = [knot.units for knot in self._windows.knots()]
        points = [] if units[0] <= 1 else [(1.0, fit.curve.time(1.0))]
        points.append((units[0], fit.curve.time(units[0])))
        for low, high in itertools.pairwise(units):
            seconds = fit.curve.time(high)
            if low + 1 < high:
                points.append((low + 1, max(seconds, fit.curve.time(low + 1))))
            points.append((high, seconds))
        far = FAR * units[-1]
        return Polyline([*points, (far, fit.curve.time(far))])

    def _refit(self) -> _PhaseFit:
        gap, slope = fitted_line(*self._windows.medians())
        if fits(gap, slope, self._windows):
            segments = line_segments(gap, slope)
            return _PhaseFit((gap, slope), segments, segments)
        knots = self._windows.knots()
        units = np.array([knot.units for knot in knots])
        counts = np.array([float(knot.count) for knot in knots])
        medians = np.array([knot.seconds for knot in knots])
        noise = noise_deviation(list(self._windows.times().values()))
        calls = fitted_calls(units, medians, counts, noise)
        if calls is not None:
            return _PhaseFit(None, *call_segments(calls, units[-1]), counts_calls=True)
        seconds = pool_except_dips(knots)
        curve = _pieces(units, seconds, gap + slope)
        if not (np.diff(seconds) <= 0).any():
            return _PhaseFit(None, curve, curve)
        return _PhaseFit(None, curve, _pieces(units, rising(seconds, counts), gap + slope))


def fits(gap: float, slope: float, windows: ObservationWindows) -> bool:
    """Return whether the line is near all sizes, but for runs that may be outliers as a whole.

    It doesn't fit if at least `MIN_RUNS` runs were too slow for it at sizes of theirs, or if as
    many were too fast. Of a single run the shape counts: an outlier is off at all of its sizes, or
    at one that was held up.

    Parameters
    ----------
    gap, slope : float, seconds and seconds/unit
    windows : ObservationWindows
    """
    noise = max(noise_deviation(list(windows.times().values())), MIN_NOISE)
    slow: Counter[int] = Counter()
    fast: Counter[int] = Counter()
    near: set[int] = set()
    for knot in windows.knots():
        misfit = math.log(knot.seconds / (gap + slope * knot.units))
        error = noise / math.sqrt(knot.count)
        runs = windows.runs(knot.units)
        if abs(misfit) <= max(MAX_MISFIT, MAX_MISFIT_ERRORS * error):
            near |= runs
        else:
            (slow if misfit > 0 else fast).update(runs)
    has_shape = any((slow + fast)[run] >= MIN_SIZES for run in near)
    is_crossed = bool(slow.keys() & fast.keys())
    return max(len(slow), len(fast)) < MIN_RUNS and not has_shape and not is_crossed


def _pieces(units: Floats, seconds: Floats, first_seconds: float) -> Segments:
    """Return the pieces through these knots, and one at one unit."""
    steep = float(seconds[-1]) / float(units[-1])
    smaller = np.flatnonzero(units * MAX_LAST_RATIO <= units[-1])
    if len(smaller):
        other = int(smaller[-1])
        # A jump between the two must not count as a slope.
        steep = min(steep, float((seconds[-1] - seconds[other]) / (units[-1] - units[other])))
    if units[0] > 1:
        units = np.concatenate(([1.0], units))
        seconds = np.concatenate(([min(first_seconds, seconds[0])], seconds))
    return linear_times(units, seconds, max(steep, 0.0))
