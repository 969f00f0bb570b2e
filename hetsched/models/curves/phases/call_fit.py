"""A phase whose chunks are cut into calls of powers of two: a cost per call and one per unit.

A batch of transforms that a library plans for powers of two takes a call for each set bit of its
number of units: 127 units are seven calls, 128 are one. Such a phase is no line, but three
parameters describe all its sizes, also those never run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.models.curves.isotonic import rising
from hetsched.models.curves.phases.polyline import linear_times
from hetsched.models.curves.segments import Floats, Segments

MIN_SIZES = 8
"""Sizes for three parameters; fewer may agree with any. Arbitrary."""
MIN_BIT_COUNTS = 3
"""Different numbers of calls: of two, the larger sizes may just be slower. Arbitrary."""
MAX_UNITS = 1024
"""The largest size with a knot of its own: a phase with larger ones isn't fitted. Arbitrary."""
MAX_CHI_SQUARE = 2.0
"""Sum of the squared errors over their variances, for each degree of freedom, up to which noise
explains them. Simulated with 2 % noise: 0.4 to 1.2 where calls cost, 12 and more for kernels with
steps, waves or slow small batches."""
MIN_NOISE = 0.02
"""Minimum standard deviation of the logarithm of a time: few repeats may agree by chance."""


class CallFit(NamedTuple):
    """time(x) = gap + slope x + call b, for b set bits of x. Seconds, none negative."""

    gap: float
    slope: float
    call: float

    def seconds(self, units: Floats) -> Floats:
        """Return the seconds of (n,) whole numbers of units."""
        return self.gap + self.slope * units + self.call * _set_bits(units)


def fitted_calls(units: Floats, seconds: Floats, counts: Floats, noise: float) -> CallFit | None:
    """Return the fit of least squares of relative errors; None if it isn't within the noise.

    Parameters
    ----------
    units, seconds, counts : (n,) float64
        By units: sizes, median times, and numbers of observations.
    noise : float
        Standard deviation of the logarithm of one time.
    """
    is_whole = bool((units == np.round(units)).all())
    if len(units) < MIN_SIZES or units[-1] > MAX_UNITS or not is_whole:
        return None
    bits = _set_bits(units)
    if len(np.unique(bits)) < MIN_BIT_COUNTS:
        return None
    columns = np.column_stack((bits, units, np.ones_like(units)))
    weights = np.sqrt(counts) / seconds
    for used in (3, 2):  # the gap is the parameter that noise makes negative
        solution = np.linalg.lstsq(
            columns[:, :used] * weights[:, None], seconds * weights, rcond=None
        )[0]
        if (solution >= 0).all():
            break
    else:
        return None
    call, slope, gap = [*solution.tolist(), 0.0][:3]
    fit = CallFit(gap, slope, call)
    errors = np.log(seconds / fit.seconds(units))
    variances = max(noise, MIN_NOISE) ** 2 / counts
    chi_square = float((errors**2 / variances).sum()) / (len(units) - used)
    return fit if chi_square <= MAX_CHI_SQUARE else None


def call_segments(fit: CallFit, largest: float) -> tuple[Segments, Segments]:
    """Return the curve with a knot at each size up to twice `largest`, and the nearest rising one.

    Parameters
    ----------
    fit : CallFit
    largest : float, units
        The largest size measured, at most `MAX_UNITS`.
    """
    units = np.arange(1.0, min(2 * largest, MAX_UNITS) + 1)
    seconds = fit.seconds(units)
    curve = linear_times(units, seconds, fit.slope)
    return curve, linear_times(units, rising(seconds, np.ones_like(units)), fit.slope)


def _set_bits(units: Floats) -> Floats:
    return np.bitwise_count(units.astype(np.int64)).astype(np.float64)
