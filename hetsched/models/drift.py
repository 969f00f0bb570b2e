"""A change of speed told from noise: a cumulative sum of what runs took over what was expected.

Page, Continuous inspection schemes, Biometrika 41 (1954): each run adds the logarithm of its ratio
less what noise may be; a sum that rises above a limit is a change, begun where the sum last was
nothing. One wild run must not be enough, so no run adds more than `MOST` (the robust variant of
Lucas & Crosier, Technometrics 24, 1982).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

NOISE = 0.05
"""Of the logarithm: less is noise, a core's speed varies by that much on a quiet machine."""
MOST = 0.25
"""Of the logarithm: a run that is further off counts as if it were only that far."""
BELIEVED = 3
"""Runs after which a change of `MOST` or more is believed; one or two may be a neighbour's doing.
A change by a tenth takes about twelve."""
LIMIT = (BELIEVED - 0.5) * (MOST - NOISE)
"""Of the sum: reached by `BELIEVED` runs, not by one fewer."""
MOST_RUNS = 64
"""Runs that are remembered; those before them would change nothing."""
SETTLED = 2
"""Runs before, that say what is to be expected."""

Ratio = tuple[int, float]
"""A run's number, and what it took over what was expected."""


@dataclass(frozen=True)
class Change:
    """A device takes `factor` times as long as before, as its last `runs` runs show."""

    factor: float
    runs: int

    def __str__(self) -> str:
        return f"takes {self.factor:.2g} times as long as before, by its last {self.runs} runs"


class Drift:
    """Both sums, of slower and of faster, and the runs that they are made of."""

    def __init__(self) -> None:
        self._sums = [0.0, 0.0]
        self._seen: tuple[deque[Ratio], deque[Ratio]] = (
            deque(maxlen=MOST_RUNS),
            deque(maxlen=MOST_RUNS),
        )

    def see(self, run: int, ratio: float) -> list[Ratio]:
        """The runs, this one the last, since a change that is now believed; empty: none is.

        Parameters
        ----------
        run : int
            Its number.
        ratio : float
            What it took over what was expected, > 0.
        """
        moved = min(max(math.log(ratio), -MOST), MOST)
        for side, off in enumerate((moved, -moved)):
            self._sums[side] = max(0.0, self._sums[side] + off - NOISE)
            if self._sums[side] == 0:
                self._seen[side].clear()
                continue
            self._seen[side].append((run, ratio))
            if self._sums[side] > LIMIT:
                found = list(self._seen[side])
                self._forget()
                return found
        return []

    @property
    def suspected(self) -> int | None:
        """The first run that may be of a changed speed: from it on, none says what to expect."""
        side = int(self._sums[1] > self._sums[0])
        return self._seen[side][0][0] if self._seen[side] else None

    def copy(self) -> Drift:
        """One that goes on by itself."""
        other = Drift()
        other._sums = list(self._sums)
        other._seen = (self._seen[0].copy(), self._seen[1].copy())
        return other

    def _forget(self) -> None:
        self._sums = [0.0, 0.0]
        for seen in self._seen:
            seen.clear()
