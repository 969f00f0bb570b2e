"""What iterations have shown of one device: times of the sizes it had, and changes of its speed.

Other than for single-pass jobs, times of neighbouring sizes don't correct each other where they
differ by more than their noise: a cliff between them must stay where it was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hetsched.models import PiecewiseLinear
from hetsched.models.curves.isotonic import rising
from hetsched.models.curves.segments import Floats
from hetsched.models.evidence.observations import ObservationWindows
from hetsched.models.evidence.smoothing import noise_deviation
from hetsched.partition.iterations.adaptive.beyond_capacity import (
    first_excess,
    is_on_line,
    trusted_size,
    with_capacity,
    with_lines,
)
from hetsched.partition.iterations.adaptive.doubts import Doubt

WINDOW = 16
"""Times kept of each size."""
MAX_SIZES = 64
"""Sizes kept, the latest."""
NEAR = 1.1
"""Sizes within this ratio may correct each other."""
SAME_PACE_ERRORS = 2.5
"""Standard errors within which the paces of two near sizes are the same."""
MIN_CLIFF_RATIO = 1.2
"""Ratio of the seconds per unit of two measured sizes above which there is a cliff in between,
somewhere. Arbitrary: far above noise."""
EXPIRY_READINGS = 256
"""Readings after which a cliff that was measured once doesn't count: it may have been an outlier.
Arbitrary."""

CAPACITY_RISK = 0.5
"""Probability that a device is slower with more than its memory holds. Arbitrary."""
CAPACITY_SLOWDOWN = 4.0
"""Presumed factor by which it is slower then, before it is measured. Arbitrary."""
SAFE_GROWTH = 1.5
"""Ratio by which a share may grow without doubt."""


class DeviceEvidence:
    """The times of one device.

    Attributes
    ----------
    capacity : int or None, units
        What its memory holds.
    change : float or None
        By how much the last reading showed the device to be slower than before.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity or None
        self._windows = ObservationWindows(window=WINDOW, max_sizes=MAX_SIZES)
        self._last_seen: dict[float, int] = {}
        self._readings = 0
        self._curve: PiecewiseLinear | None = None
        self._points: Floats = np.empty((0, 2))
        self.change: float | None = None

    @property
    def is_measured(self) -> bool:
        return len(self._windows) > 0

    def add(self, units: int, seconds: float) -> None:
        """Add a reading. A change of speed rescales everything measured before it."""
        self._readings += 1
        self._windows.add(units, seconds)
        self._last_seen[float(units)] = self._readings
        if len(self._last_seen) > 2 * MAX_SIZES:
            seen = self._last_seen.items()
            self._last_seen = {size: reading for size, reading in seen if size in self._windows}
        change = self._windows.change
        self.change = None if change is None else change.factor
        if change is not None:
            self._windows.apply_change(change.factor, change.runs)
        self._curve = None

    def is_suspected(self, units: int) -> bool:
        """Return whether the last readings of this size may be the start of a change."""
        return self._windows.is_change_suspected(units)

    @property
    def noise(self) -> float:
        """Standard deviation of the logarithm of a time; 0 without repeats."""
        return noise_deviation(list(self._windows.times().values()))

    @property
    def curve(self) -> PiecewiseLinear:
        """The times by size. Raises UsageError without readings."""
        if self._curve is None:
            units, seconds, counts = self._windows.medians()
            counted = [
                i for i in range(len(units)) if not self._is_expired(units, seconds, counts, i)
            ]
            units, seconds, counts = units[counted], seconds[counted], counts[counted]
            pace_list = self._paces(units.tolist(), (seconds / units).tolist(), counts.tolist())
            fitted = rising(np.array(pace_list) * units, counts)
            points = with_capacity(np.column_stack([units, fitted]), self.capacity)
            self._points = points
            points = with_lines(points, self.capacity)
            self._curve = PiecewiseLinear([(1.0, 1.0)]).through(points[:, 0], points[:, 1])
        return self._curve

    @property
    def points(self) -> Floats:
        """(n, 2) float64, units and seconds: measured sizes, and the capacity between two."""
        assert self.curve is not None
        return self._points

    def _is_expired(self, units: Floats, seconds: Floats, counts: Floats, index: int) -> bool:
        """Return whether a size was seen once, long ago, far slower than a smaller one."""
        if index == 0 or counts[index] > 1 or units[index] > (self.capacity or math.inf):
            return False
        is_old = self._readings - self._last_seen[float(units[index])] > EXPIRY_READINGS
        ratio = seconds[index] / units[index] * units[index - 1] / seconds[index - 1]
        return bool(is_old and ratio > MIN_CLIFF_RATIO)

    def _paces(
        self, units: Sequence[float], paces: Sequence[float], counts: Sequence[float]
    ) -> list[float]:
        """Return the seconds per unit of each size, corrected by near sizes of the same pace.

        Not beyond the capacity, where each size has another one.
        """
        noise, capacity = self.noise, self.capacity or math.inf
        if noise == 0:
            return list(paces)
        corrected = []
        for size, pace, count in zip(units, paces, counts, strict=True):
            weights = [
                other_count
                if 1 / NEAR <= other / size <= NEAR
                and (other == size or max(other, size) <= capacity)
                and abs(math.log(other_pace / pace))
                <= SAME_PACE_ERRORS * noise * math.sqrt(1 / count + 1 / other_count)
                else 0.0
                for other, other_pace, other_count in zip(units, paces, counts, strict=True)
            ]
            pairs = zip(weights, paces, strict=True)
            corrected.append(sum(w * p for w, p in pairs) / sum(weights))
        return corrected

    def doubt_at(self, units: int) -> Doubt | None:
        """Return what isn't known of a share of `units`: a cliff, measured or possible."""
        capacity, largest = self.capacity, int(self.points[-1, 0])
        cliff = self._measured_cliff(units)
        if cliff is not None or (
            capacity is not None and units <= max(capacity, self.trusted or 0)
        ):
            return cliff
        if capacity is not None and largest <= capacity:
            pace = CAPACITY_SLOWDOWN * float(self.curve.time(capacity)) / capacity
            first = first_excess(capacity)
            return Doubt(capacity, units, pace, CAPACITY_RISK, is_measured=False, first=first)
        if units <= SAFE_GROWTH * largest:
            return None
        pace = CAPACITY_SLOWDOWN * float(self.curve.time(largest)) / largest
        return Doubt(largest, units, pace, is_measured=False)

    @property
    def trusted(self) -> int | None:
        """The units up to which the line beyond the capacity is trusted; None: there is none."""
        if self.capacity is None or not self.is_measured:
            return None
        largest = int(self.points[-1, 0])
        return trusted_size(self.capacity, largest) if largest > self.capacity else None

    def _measured_cliff(self, units: int) -> Doubt | None:
        """Return the cliff between two measured sizes around `units`."""
        points = self.points
        above = int(np.searchsorted(points[:, 0], units))
        if above in (0, len(points)) or points[above, 0] == units:
            return None
        (small, small_seconds), (large, large_seconds) = points[above - 1], points[above]
        pace = large_seconds / large
        if pace <= MIN_CLIFF_RATIO * small_seconds / small:
            return None
        if is_on_line(points, self.capacity, above):
            return None
        edge = CAPACITY_RISK if small == self.capacity else 0.0
        return Doubt(int(small), int(large), float(pace), edge)

    def curve_below(self, units: int) -> PiecewiseLinear:
        """Return the curve as it would be if nothing beyond `units` were measured."""
        points = self.curve.points
        points = points[points[:, 0] <= units]
        return self.curve.through(points[:, 0], points[:, 1])
