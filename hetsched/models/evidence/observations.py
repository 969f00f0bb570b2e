"""Raw observations, independent of any fit: the last few of each size.

After a change of speed (`change_detector`) older ones are scaled, so that the curve keeps its
shape, and count as a single observation per size. New shares then never meet knots of the old
speed. A change detected in other work on the same device is applied too, until observations of
this curve contradict it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np

from hetsched.models.curves.segments import Floats
from hetsched.models.evidence.change_detector import (
    MIN_EXPECTED_RUNS,
    ChangeDetector,
    RunRatio,
    SpeedChange,
)
from hetsched.models.evidence.confidence import (
    NARROW_HALF_WIDTH,
    Knot,
    knot_of,
    robust_median,
    run_median,
)
from hetsched.models.evidence.size_windows import SizeWindows
from hetsched.models.evidence.smoothing import noise_deviation, smoothed
from hetsched.models.validation import require_observation, require_pairs

SIZE_BYTES, OBSERVATION_BYTES = 1700, 130
"""Memory of one size and of one observation. Estimates for 64-bit Python."""
WINDOW = 30
"""Observations kept per size: with noise of 5 %, their confidence interval is about as narrow as
required (`confidence.NARROW_HALF_WIDTH`)."""
SAME_SIZE = 1.03
"""Sizes that differ by less are one size to the detector: shares that begin to move after a change
of speed must not seem to leave the known sizes. Arbitrary."""

Observed = tuple[float, float]
"""Units, seconds."""


class ObservationWindows:
    """The last times of each size, whose median counts, and changes of speed in them.

    Parameters
    ----------
    observations : iterable of (units, seconds), optional
        Oldest first.
    window : int
        Observations kept per size.
    max_sizes : int, optional
        Sizes kept, the most recently observed.
    near : float, optional
        Sizes that differ by less than this factor are monitored together, by their seconds per
        unit, and a change of speed scales the observations of all sizes. As shares move with a
        change, no size may be observed twice, so neighbours also correct each other's medians
        (`smoothing`). Without it each size is monitored separately, because a curve may have a
        cliff; the order of different sizes then doesn't matter.
    detects_changes : bool
    may_step : bool
        Times may jump between two sizes, so only a size observed before makes a change suspected.

    Attributes
    ----------
    repeats : int
        Observations of sizes already measured (the papers' accuracy points).
    change : SpeedChange or None
        The change that the last run confirmed.

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
        max_sizes: int | None = None,
        near: float | None = None,
        detects_changes: bool = True,
        may_step: bool = False,
    ) -> None:
        self._sizes = SizeWindows(window, max_sizes)
        self._near = near
        self._detects_changes = detects_changes
        self._may_step = may_step
        # Keyed by size, or a single one (None) for all sizes.
        self._detectors: dict[float | None, ChangeDetector] = {}
        self._run = 0
        self._presumed = 1.0
        self.repeats = 0
        self.change: SpeedChange | None = None
        for units, seconds in require_pairs(observations):
            self.add(units, seconds)

    def add(self, units: float, seconds: float) -> None:
        """Add one observation. Raises UsageError unless both are positive and finite."""
        self.add_run([(units, seconds)])

    def add_run(self, observations: Iterable[Observed], chunks: Iterable[int] = ()) -> None:
        """Add the observations of one run, which contention may have slowed down together.

        `chunks`: of which each is the median; default: 1 each.
        """
        valid = [require_observation(*pair) for pair in require_pairs(observations)]
        self.change = None
        self._check_presumed(valid)
        self._run += 1
        ratios = self._ratios(valid) if self._detects_changes else {}
        self._put_run(valid, chunks)
        for size, ratio in ratios.items():
            changed = self._detectors.setdefault(size, ChangeDetector()).add(self._run, ratio)
            if changed:
                self._accept_change(size, changed)

    def restore_run(self, observations: Iterable[Observed], chunks: Iterable[int] = ()) -> None:
        """Add the observations of a run that was checked before: it never signals a change."""
        self._run += 1
        self._put_run(observations, chunks)

    def _put_run(self, observations: Iterable[Observed], chunks: Iterable[int]) -> None:
        counts = itertools.chain(chunks, itertools.repeat(1))
        for (units, seconds), count in zip(observations, counts, strict=False):
            self.repeats += units in self._sizes
            dropped = self._sizes.add(units, self._run, seconds, count)
            if dropped is not None:
                self._detectors.pop(dropped, None)

    def _ratios(self, observations: Iterable[Observed]) -> dict[float | None, float]:
        """Return the ratio of measured to expected time for each detector with an expectation."""
        ratios: dict[float | None, list[float]] = {}
        for units, seconds in observations:
            ratio = self._ratio(units, seconds / units)
            if ratio is not None:
                ratios.setdefault(self._detector_key(units), []).append(ratio)
        return {size: robust_median(values) for size, values in ratios.items()}

    def _ratio(self, units: float, pace: float) -> float | None:
        """Return `pace`, seconds per unit, over that of runs before any suspected change.

        None without enough of them. A size beyond the known ones is a new point and says nothing
        about a change (caches end there), unless a change is already suspected: shares move with
        it. Between known sizes both their median and the curve must differ, because a few noisy
        sizes may be far from the one and sizes on the other side of a step from the other.
        """
        detector = self._detectors.get(self._detector_key(units))
        suspected = detector.suspected_since if detector else None
        for end in (self._run if suspected is None else suspected, self._run):
            same_size = self._sizes.paces(units, units, end)
            if len(same_size) >= MIN_EXPECTED_RUNS:
                return pace / robust_median(same_size)
            if self._near is None:
                continue
            similar = self._sizes.paces(units / self._near, units * self._near, end)
            if len(similar) < MIN_EXPECTED_RUNS:
                continue
            ratio = pace / robust_median(similar)
            interpolated = self._interpolated_pace(units, end)
            if self._may_step and suspected is None:
                return None
            if interpolated is not None:
                return _closer_to_one(ratio, pace / interpolated)
            if suspected is not None:
                return ratio
        return None

    def _interpolated_pace(self, units: float, end: int) -> float | None:
        """Return the curve's seconds per unit between two sizes that runs before `end` observed.

        None outside the known sizes, or if those on both sides are far.
        """
        assert self._near is not None
        known = self._sizes.sizes(units / self._near, units * self._near, end)
        if not known or not known[0] / SAME_SIZE <= units <= known[-1] * SAME_SIZE:
            return None
        windows = [self._sizes.seconds(size, end) for size in known]
        seconds = smoothed(
            known,
            [robust_median(times) for times in windows],
            [len(times) for times in windows],
            noise_deviation(windows),
        )
        paces = np.log(np.array(seconds) / known)
        return float(np.exp(np.interp(math.log(units), np.log(known), paces)))

    def _detector_key(self, units: float) -> float | None:
        return units if self._near is None else None

    def _accept_change(self, size: float | None, changed: list[RunRatio]) -> None:
        """Scale by a change of speed in these runs, at one size or (None) at all sizes."""
        factor = robust_median([ratio for _, ratio in changed])
        for units in list(self._sizes) if size is None else [size]:
            self._sizes.drop_before(units, changed[0][0], factor)
        self.change = SpeedChange(factor, len(changed))

    def apply_change(self, factor: float, recent_runs: int = 0) -> None:
        """Scale times by `factor`, a change detected in other work on the same device.

        Observations since the suspected start of the change are not scaled. If there are none,
        the change is only presumed, and the next observation may revert it.

        Parameters
        ----------
        factor : float
            > 0.
        recent_runs : int
            Last runs observed here that are known to be later than the change.
        """
        has_recent = False
        for size in list(self._sizes):
            detector = self._detectors.get(self._detector_key(size))
            began = detector.first_run_slowed_by(factor) if detector else None
            end = self._run + 1 - recent_runs
            if began is not None:
                end = min(end, began)
            has_recent = has_recent or self._sizes.is_observed_since(size, end)
            self._sizes.scale(size, factor, end)
        self._detectors.clear()
        self._presumed = 1.0 if has_recent or not len(self._sizes) else self._presumed * factor

    def is_change_suspected(self, units: float) -> bool:
        """Return whether the last runs of a size may be the start of a change."""
        detector = self._detectors.get(self._detector_key(units))
        return detector is not None and detector.suspected_since is not None

    @property
    def is_presumed(self) -> bool:
        """Whether a change is only presumed, from other work on the device."""
        return self._presumed > 1 + NARROW_HALF_WIDTH

    def _check_presumed(self, observations: Iterable[Observed]) -> None:
        """Revert the presumed change if this run is closer to the speed before it.

        Runs are compared at the nearest size, because shares move with a change of speed.
        """
        if self._presumed == 1.0:
            return
        ratios = []
        for units, seconds in observations:
            nearest = min(self._sizes, key=lambda size: abs(math.log(size / units)))
            expected = robust_median(self._sizes.seconds(nearest))
            ratios.append(seconds / units * nearest / expected)
        log = math.log(robust_median(ratios))
        if abs(log + math.log(self._presumed)) < abs(log):
            self._scale_all(1 / self._presumed)
        self._presumed = 1.0

    def _scale_all(self, factor: float) -> None:
        for size in list(self._sizes):
            self._sizes.scale(size, factor, self._run + 1)

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, units: object) -> bool:
        return units in self._sizes

    def medians(self) -> tuple[Floats, Floats, Floats]:
        """Return units (ascending), median seconds and observations, (n,) float64 each."""
        sizes = sorted(self._sizes)
        windows = [self._sizes.seconds(size) for size in sizes]
        seconds = [run_median(self._sizes.seconds(x), self._sizes.chunks(x)) for x in sizes]
        counts = [len(times) for times in windows]
        if self._near is not None:
            seconds = smoothed(sizes, seconds, counts, noise_deviation(windows))
        return np.array(sizes), np.array(seconds), np.array(counts, dtype=np.float64)

    def times(self) -> dict[float, list[float]]:
        """Return the seconds observed at each size, by units."""
        return {size: self._sizes.seconds(size) for size in sorted(self._sizes)}

    def runs(self, units: float) -> set[int]:
        """Return the numbers of the runs that observed a size; of restored ones, any numbers."""
        return self._sizes.runs(units)

    def knots(self) -> list[Knot]:
        """Return the evidence for each size, by units."""
        return [
            knot_of(size, self._sizes.seconds(size), self._sizes.chunks(size))
            for size in sorted(self._sizes)
        ]

    def latest(self) -> list[tuple[float, float, int]]:
        """Return units, median seconds and number of observations, the latest size first."""
        times = [(size, self._sizes.seconds(size)) for size in self._sizes]
        return [(size, robust_median(seconds), len(seconds)) for size, seconds in reversed(times)]

    @property
    def nbytes(self) -> int:
        """Estimated bytes: of each size two queues, and its observations."""
        sizes = sum(1 for _ in self._sizes)
        return SIZE_BYTES * sizes + OBSERVATION_BYTES * len(self.observations())

    def observations(self) -> list[Observed]:
        """Return all observations, oldest first."""
        return [(units, seconds) for units, seconds, _ in self._sizes.observations()]

    def run_medians(self) -> list[tuple[float, float, int]]:
        """Return units, seconds and chunks of all; `restore_run` of each gives equal windows."""
        return self._sizes.observations()

    def scaled(self, factor: float) -> ObservationWindows:
        """Return a copy with all times multiplied by `factor`."""
        other = self.copy()
        other._scale_all(factor)
        return other

    def copy(self) -> ObservationWindows:
        """Return an independent copy."""
        other = ObservationWindows(
            near=self._near, detects_changes=self._detects_changes, may_step=self._may_step
        )
        other._sizes = self._sizes.copy()
        other._detectors = {size: detector.copy() for size, detector in self._detectors.items()}
        other._run, other.repeats, other.change = self._run, self.repeats, self.change
        other._presumed = self._presumed
        return other


def _closer_to_one(ratio: float, other: float) -> float:
    """Return the ratio that differs less from 1; 1 if they differ in opposite directions."""
    if (ratio > 1) != (other > 1):
        return 1.0
    return min(ratio, other) if ratio > 1 else max(ratio, other)
