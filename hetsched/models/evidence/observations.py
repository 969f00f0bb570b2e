"""Raw observations, kept apart from any fit: the last few of each size.

They outlive a change of speed (`drift`): what was known before is scaled by it, so that the curve
keeps its shape, and counts as a single observation a size. A larger or smaller share, which a
change brings about, then doesn't meet knots that tell of the old speed. A change that other work
on the same device has shown is followed, until what happens here says otherwise.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

import numpy as np

from hetsched.models.curves.segments import Floats
from hetsched.models.evidence.confidence import NARROW, Knot, knot, middle
from hetsched.models.evidence.drift import SETTLED, Change, Drift, Ratio
from hetsched.models.evidence.smoothing import noise, smoothed
from hetsched.models.validation import checked, pairs

WINDOW = 30
"""Observations of one size that are remembered: with noise of 5 %, the confidence interval of so
many is about as narrow as is asked for (`evidence.NARROW`)."""

Observed = tuple[float, float]
"""Units, seconds."""


class Windows:
    """The last times of each size; their median counts.

    Parameters
    ----------
    observations : iterable of (units, seconds), optional
        Oldest first.
    window : int
        Observations of one size that are remembered.
    most_sizes : int, optional
        Sizes that are remembered, the latest.
    near : float, optional
        Sizes that differ by less tell together, by their seconds a unit, whether speed has
        changed; if it has, what is known of other sizes is scaled by as much. While a change is
        being followed no size may come twice: so neighbours also correct each other's medians
        (`smoothing`). Without it each size is watched by itself: for a
        curve may have a cliff, and the order of different sizes then doesn't matter.
    watched : bool
        Whether changes are looked for.

    Attributes
    ----------
    repeats : int
        Observations of a size that was known already (the papers' accuracy points).
    change : Change or None
        What the last observation made believed.

    Raises
    ------
    UsageError
        An observation is not positive and finite.
    """

    def __init__(
        self,
        observations: Iterable[Observed] = (),
        *,
        window: int = WINDOW,
        most_sizes: int | None = None,
        near: float | None = None,
        watched: bool = True,
    ) -> None:
        self._window = window
        self._most_sizes = most_sizes
        self._near = near
        self._watched = watched
        # By size, or one (None) for all of them.
        self._drifts: dict[float | None, Drift] = {}
        # By size: the run in which it was observed, and seconds.
        self._times: dict[float, deque[tuple[int, float]]] = {}
        self._run = 0
        self._presumed = 1.0
        self.repeats = 0
        self.change: Change | None = None
        for units, seconds in pairs(observations):
            self.add(units, seconds)

    def add(self, units: float, seconds: float) -> None:
        """Remember one observation. Raises UsageError unless both are positive and finite."""
        self.add_run([(units, seconds)])

    def add_run(self, observations: Iterable[Observed]) -> None:
        """Remember what one run showed: whatever disturbed it is no more than one disturbance."""
        found = [checked(units, seconds) for units, seconds in pairs(observations)]
        self.change = None
        self._verify(found)
        self._run += 1
        watched = self._watch(found) if self._watched else {}
        for units, seconds in found:
            self._put(units, seconds)
        for size, ratio in watched.items():
            since = self._drifts.setdefault(size, Drift()).see(self._run, ratio)
            if since:
                self._believe(size, since)

    def restore(self, units: float, seconds: float) -> None:
        """Remember one observation that was looked at before: no change is looked for."""
        self._run += 1
        self._put(units, seconds)

    def _put(self, units: float, seconds: float) -> None:
        times = self._times.pop(units, None)
        self.repeats += times is not None
        if times is None:
            times = deque(maxlen=self._window)
        # Put back at the end: the order of the dict is that of the latest observations.
        self._times[units] = times
        times.append((self._run, seconds))
        if self._most_sizes is not None and len(self._times) > self._most_sizes:
            gone = next(iter(self._times))
            del self._times[gone]
            self._drifts.pop(gone, None)

    def _watch(self, found: Iterable[Observed]) -> dict[float | None, float]:
        """What one run took over what was expected, for each Drift that it tells something."""
        ratios: dict[float | None, list[float]] = {}
        for units, seconds in found:
            paces = self._paces(units)
            if len(paces) >= SETTLED:
                size = units if self._near is None else None
                ratios.setdefault(size, []).append(seconds / units / middle(paces))
        return {size: middle(some) for size, some in ratios.items()}

    def _paces(self, units: float) -> list[float]:
        """Seconds a unit of runs of such a size, before anything was suspected if there are."""
        drift = self._drifts.get(units if self._near is None else None)
        suspected = drift.suspected if drift else None
        for end in (self._run if suspected is None else suspected, self._run):
            same = [time / units for run, time in self._times.get(units, ()) if run < end]
            if len(same) >= SETTLED:
                return same
            near = self._neighbours(units, end)
            if len(near) >= SETTLED:
                return near
        return []

    def _neighbours(self, units: float, end: int) -> list[float]:
        """Seconds a unit of sizes near `units`, of the runs before `end`."""
        if self._near is None:
            return []
        return [
            time / size
            for size, times in self._times.items()
            if units / self._near <= size <= units * self._near
            for run, time in times
            if run < end
        ]

    def _believe(self, size: float | None, since: list[Ratio]) -> None:
        """Speed has changed in these runs, at one size or (None) at all."""
        factor = middle([ratio for _, ratio in since])
        for units in self._times if size is None else [size]:
            times = self._times[units]
            fresh = [one for one in times if one[0] >= since[0][0]]
            if not fresh:
                before = middle([seconds for _, seconds in times])
                fresh = [(times[-1][0], before * factor)]
            self._times[units] = deque(fresh, maxlen=self._window)
        self.change = Change(factor, len(since))

    def follow(self, factor: float) -> None:
        """Take over that the device takes `factor` times as long, as other work has shown.

        What was observed since it may have begun here, too, stays. Without such observations it
        is presumed until the next one, which may show that it isn't so here.

        Parameters
        ----------
        factor : float
            > 0.
        """
        seen = False
        for size, times in self._times.items():
            drift = self._drifts.get(size if self._near is None else None)
            began = drift.began(factor) if drift else None
            end = self._run + 1 if began is None else began
            seen = seen or any(run >= end for run, _ in times)
            self._scale(size, factor, end)
        self._drifts.clear()
        self._presumed = 1.0 if seen or not self._times else self._presumed * factor

    @property
    def doubtful(self) -> bool:
        """Whether it is only presumed, from other work, that the device takes longer."""
        return self._presumed > 1 + NARROW

    def _verify(self, found: Iterable[Observed]) -> None:
        """Take back what was presumed, if this run looks more like before.

        By the nearest size: a changed speed is what shares move for.
        """
        if self._presumed == 1.0:
            return
        ratios = []
        for units, seconds in found:
            near = min(self._times, key=lambda size: abs(math.log(size / units)))
            ratios.append(seconds / units * near / middle(self._seconds(near)))
        off = math.log(middle(ratios))
        if abs(off + math.log(self._presumed)) < abs(off):
            for size in self._times:
                self._scale(size, 1 / self._presumed, self._run + 1)
        self._presumed = 1.0

    def _scale(self, size: float, factor: float, end: int) -> None:
        """What was observed of `size` before run `end` took `factor` times as long."""
        self._times[size] = deque(
            [(run, one * factor if run < end else one) for run, one in self._times[size]],
            maxlen=self._window,
        )

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, units: object) -> bool:
        return units in self._times

    def medians(self) -> tuple[Floats, Floats, Floats]:
        """Units (ascending), median seconds and number of observations, (n,) float64 each."""
        sizes = sorted(self._times)
        windows = [self._seconds(size) for size in sizes]
        seconds = [middle(times) for times in windows]
        counts = [len(times) for times in windows]
        if self._near is not None:
            seconds = smoothed(sizes, seconds, counts, noise(windows))
        return np.array(sizes), np.array(seconds), np.array(counts, dtype=np.float64)

    def times(self) -> dict[float, list[float]]:
        """Seconds of each size, by units."""
        return {size: self._seconds(size) for size in sorted(self._times)}

    def knots(self) -> list[Knot]:
        """What is known of each size, by units."""
        return [knot(size, self._seconds(size)) for size in sorted(self._times)]

    def latest(self) -> list[tuple[float, float, int]]:
        """Units, median seconds and number of observations, the size observed last first."""
        return [
            (size, middle(self._seconds(size)), len(self._times[size]))
            for size in reversed(self._times)
        ]

    def observations(self) -> list[Observed]:
        """All that counts, oldest first: `restore` in another Windows makes it know the same."""
        found = [
            (run, place, size, seconds)
            for place, (size, times) in enumerate(self._times.items())
            for run, seconds in times
        ]
        found.sort(key=lambda one: one[:2])
        return [(size, seconds) for _, _, size, seconds in found]

    def scaled(self, factor: float) -> Windows:
        """A copy in which everything takes `factor` times as long."""
        other = self.copy()
        for size in other._times:
            other._scale(size, factor, other._run + 1)
        return other

    def copy(self) -> Windows:
        """One that learns by itself."""
        other = Windows(
            window=self._window,
            most_sizes=self._most_sizes,
            near=self._near,
            watched=self._watched,
        )
        other._drifts = {size: drift.copy() for size, drift in self._drifts.items()}
        other._times = {size: times.copy() for size, times in self._times.items()}
        other._run, other.repeats, other.change = self._run, self.repeats, self.change
        other._presumed = self._presumed
        return other

    def _seconds(self, size: float) -> list[float]:
        return [seconds for _, seconds in self._times[size]]
