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

from hetsched.models.evidence.confidence import middle

NOISE = 0.075
"""Of the logarithm: less is noise, one and a half times what a core's speed varies by on a quiet
machine (5 %), so that expectations which are off themselves start no change."""
MOST = 0.3
"""Of the logarithm: a run that is further off counts as if it were only that far."""
BELIEVED = 3
"""Runs after which a change of `MOST` or more is believed; one or two may be a neighbour's doing.
A change by a fifth takes six; one that is within the noise is left to the medians."""
LIMIT = (BELIEVED - 0.5) * (MOST - NOISE)
"""Of the sum: reached by `BELIEVED` runs, not by one fewer."""
ALIKE = 1.5
"""Ratios that differ by less may be of the same speed. Arbitrary."""
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
            self._sums[side] = min(max(0.0, self._sums[side] + off - NOISE), LIMIT + MOST)
            if self._sums[side] == 0:
                self._seen[side].clear()
                continue
            self._seen[side].append((run, ratio))
            found = _after(list(self._seen[side])) if self._sums[side] > LIMIT else []
            if found and _agree(found):
                self._forget()
                return found
        return []

    def began(self, factor: float) -> int | None:
        """The first run that may take `factor` times as long; None: nothing speaks for it yet."""
        seen = self._seen[int(factor < 1)]
        return seen[0][0] if seen else None

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


def _after(seen: list[Ratio]) -> list[Ratio]:
    """The last ones, that look more like now than like before: noise may have begun the sum.

    One of another kind among them is a hiccup; two in a row are from before the change. Empty if
    the very last are no more than noise themselves.
    """
    now = math.log(middle([ratio for _, ratio in seen[-BELIEVED:]]))
    if abs(now) <= NOISE:
        return []
    first, missed = len(seen) - BELIEVED, 0
    for index in range(first, -1, -1):
        if math.log(seen[index][1]) / now >= 0.5:
            first, missed = index, 0
        elif index < first:
            missed += 1
        if missed == 2:
            break
    return seen[max(first, 0) :]


def _agree(seen: list[Ratio]) -> bool:
    """Whether those suffice for belief that tell of the same speed: several wild ones don't."""
    now = middle([ratio for _, ratio in seen])
    alike = [ratio for _, ratio in seen if now / ALIKE <= ratio <= now * ALIKE]
    return sum(min(abs(math.log(ratio)), MOST) - NOISE for ratio in alike) > LIMIT
