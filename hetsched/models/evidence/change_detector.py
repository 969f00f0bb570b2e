"""Detect changes of speed by a cumulative sum of measured over expected times.

Page, Continuous inspection schemes, Biometrika 41 (1954): each run adds the logarithm of its ratio
less an allowance for noise; a sum above a limit is a change, which began when the sum last was 0.
One outlier must not be enough, so no run adds more than `MAX_LOG` (the robust variant of Lucas &
Crosier, Technometrics 24, 1982).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from hetsched.models.evidence.confidence import robust_median

NOISE_LOG = 0.075
"""Smaller logarithms are noise: one and a half times the variation of a core's speed on a quiet
machine (5 %), so that wrong expectations don't look like a change."""
MAX_LOG = 0.3
"""Larger logarithms count as this much."""
RUNS_TO_CONFIRM = 3
"""Runs that confirm a change of `MAX_LOG` or more; one or two may be contended. A change of 20 %
takes six; the medians absorb a change within the noise."""
SUM_LIMIT = (RUNS_TO_CONFIRM - 0.5) * (MAX_LOG - NOISE_LOG)
"""Reached by `RUNS_TO_CONFIRM` runs, not by one fewer."""
MAX_SAME_SPEED = 1.5
"""Ratios that differ by less may reflect the same speed. Arbitrary."""
MAX_RUNS = 64
"""Runs kept; earlier ones would change nothing."""
MIN_EXPECTED_RUNS = 2
"""Earlier runs needed to expect a time."""

RunRatio = tuple[int, float]
"""A run's number, and its measured over its expected time."""


@dataclass(frozen=True)
class SpeedChange:
    """A device takes `factor` times as long as before, as its last `runs` runs show."""

    factor: float
    runs: int

    def __str__(self) -> str:
        return f"takes {self.factor:.2g} times as long as before, by its last {self.runs} runs"


class ChangeDetector:
    """Two cumulative sums, for slower and for faster, and the runs that they consist of."""

    def __init__(self) -> None:
        self._sums = [0.0, 0.0]
        self._runs: tuple[deque[RunRatio], deque[RunRatio]] = (
            deque(maxlen=MAX_RUNS),
            deque(maxlen=MAX_RUNS),
        )

    def add(self, run: int, ratio: float) -> list[RunRatio]:
        """Add a run; if it confirms a change, return the runs since then, this one last.

        Parameters
        ----------
        run : int
            Its number.
        ratio : float
            Measured over expected time, > 0.
        """
        log = min(max(math.log(ratio), -MAX_LOG), MAX_LOG)
        for side, excess in enumerate((log, -log)):
            total = max(0.0, self._sums[side] + excess - NOISE_LOG)
            self._sums[side] = min(total, SUM_LIMIT + MAX_LOG)
            if self._sums[side] == 0:
                self._runs[side].clear()
                continue
            self._runs[side].append((run, ratio))
            if self._sums[side] <= SUM_LIMIT:
                continue
            changed = _since_change(list(self._runs[side]))
            if changed and _is_confirmed(changed):
                self._reset()
                return changed
        return []

    def first_run_slowed_by(self, factor: float) -> int | None:
        """Return the first run that may take `factor` times as long; None if none does."""
        runs = self._runs[int(factor < 1)]
        return runs[0][0] if runs else None

    @property
    def suspected_since(self) -> int | None:
        """The first run of a suspected change: no later run is used for predictions."""
        side = int(self._sums[1] > self._sums[0])
        return self._runs[side][0][0] if self._runs[side] else None

    def copy(self) -> ChangeDetector:
        """Return an independent copy."""
        other = ChangeDetector()
        other._sums = list(self._sums)
        other._runs = (self._runs[0].copy(), self._runs[1].copy())
        return other

    def _reset(self) -> None:
        self._sums = [0.0, 0.0]
        for runs in self._runs:
            runs.clear()


def _since_change(runs: list[RunRatio]) -> list[RunRatio]:
    """Return the last runs that are at the new speed: noise may have started the sum.

    A single run unlike them is an outlier; two in a row predate the change. The result is empty
    if the last runs themselves are within the noise.
    """
    present = math.log(robust_median([ratio for _, ratio in runs[-RUNS_TO_CONFIRM:]]))
    if abs(present) <= NOISE_LOG:
        return []
    first, outliers = len(runs) - RUNS_TO_CONFIRM, 0
    for index in range(first, -1, -1):
        if math.log(runs[index][1]) / present >= 0.5:
            first, outliers = index, 0
        elif index < first:
            outliers += 1
        if outliers == 2:
            break
    return runs[max(first, 0) :]


def _is_confirmed(runs: list[RunRatio]) -> bool:
    """Return whether enough runs agree on a speed; several different outliers don't."""
    typical = robust_median([ratio for _, ratio in runs])
    similar = [
        ratio for _, ratio in runs if typical / MAX_SAME_SPEED <= ratio <= typical * MAX_SAME_SPEED
    ]
    return sum(min(abs(math.log(ratio)), MAX_LOG) - NOISE_LOG for ratio in similar) > SUM_LIMIT
