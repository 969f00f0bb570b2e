"""The last times of each size of one curve, uninterpreted; `observations` interprets them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from hetsched.models.evidence.confidence import robust_median


class SizeWindows:
    """The times of each size, with the run in which each was observed.

    Parameters
    ----------
    window : int
        Observations kept per size.
    max_sizes : int, optional
        Sizes kept, the most recently observed.
    """

    def __init__(self, window: int, max_sizes: int | None) -> None:
        self._window = window
        self._max_sizes = max_sizes
        # Keyed by size, the most recently observed last.
        self._times: dict[float, deque[tuple[int, float, int]]] = {}
        """Of each size: run, seconds and chunks, oldest first."""

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, units: object) -> bool:
        return units in self._times

    def __iter__(self) -> Iterator[float]:
        """Iterate over the sizes, the most recently observed last."""
        return iter(self._times)

    def add(self, units: float, run: int, seconds: float, chunks: int = 1) -> float | None:
        """Add one observation; return the size that was dropped for it."""
        times = self._times.pop(units, None)
        if times is None:
            times = deque(maxlen=self._window)
        self._times[units] = times
        times.append((run, seconds, chunks))
        if self._max_sizes is None or len(self._times) <= self._max_sizes:
            return None
        oldest = next(iter(self._times))
        del self._times[oldest]
        return oldest

    def seconds(self, units: float, before: float = math.inf) -> list[float]:
        """Return the times of one size by runs before `before`, oldest first."""
        return [seconds for run, seconds, _ in self._times[units] if run < before]

    def chunks(self, units: float) -> list[int]:
        """Return the chunks of each time of one size, oldest first."""
        return [chunks for _, _, chunks in self._times[units]]

    def runs(self, units: float) -> set[int]:
        """Return the numbers of the runs that observed a size."""
        return {run for run, _, _ in self._times[units]}

    def paces(self, lower: float, upper: float, before: int) -> list[float]:
        """Return the seconds per unit of sizes in [lower, upper], of runs before `before`."""
        return [
            seconds / size
            for size, times in self._times.items()
            if lower <= size <= upper
            for run, seconds, _ in times
            if run < before
        ]

    def sizes(self, lower: float, upper: float, before: int) -> list[float]:
        """Return the sizes in [lower, upper] that runs before `before` observed, ascending."""
        return sorted(
            size
            for size, times in self._times.items()
            if lower <= size <= upper and any(run < before for run, _, _ in times)
        )

    def is_observed_since(self, units: float, first: int) -> bool:
        """Return whether a size was observed in run `first` or later."""
        return any(run >= first for run, _, _ in self._times[units])

    def drop_before(self, units: float, first: int, factor: float) -> None:
        """Drop the times of a size before run `first`; if none remains, keep one, scaled."""
        times = self._times[units]
        recent = [entry for entry in times if entry[0] >= first]
        if not recent:
            run, _, chunks = times[-1]
            recent = [(run, robust_median(self.seconds(units)) * factor, chunks)]
        self._times[units] = deque(recent, maxlen=self._window)

    def scale(self, units: float, factor: float, before: int) -> None:
        """Multiply the times of a size before run `before` by `factor`."""
        scaled = [
            (run, seconds * factor if run < before else seconds, chunks)
            for run, seconds, chunks in self._times[units]
        ]
        self._times[units] = deque(scaled, maxlen=self._window)

    def observations(self) -> list[tuple[float, float, int]]:
        """Return (units, seconds, chunks) of all observations, oldest first."""
        ordered = [
            (run, position, size, seconds, chunks)
            for position, (size, times) in enumerate(self._times.items())
            for run, seconds, chunks in times
        ]
        ordered.sort(key=lambda observation: observation[:2])
        return [observation[2:] for observation in ordered]

    def copy(self) -> SizeWindows:
        """Return an independent copy."""
        other = SizeWindows(self._window, self._max_sizes)
        other._times = {size: times.copy() for size, times in self._times.items()}
        return other
