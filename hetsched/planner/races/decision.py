"""Which variants race in the next run, and which is the best so far.

In the first run all variants race. One whose time is above the best's by more than 2 %, with 90 %
confidence, is dropped; the others race again, three times at most, then the best mean decides.
Later the runner-up races again after 8, 32, 128, ... runs, and when the speed of a device is
believed to have changed. One that hasn't raced against the present best yet does so. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hetsched.models.evidence.races import Comparison, RaceRecord

DROP_LOG_RATIO = math.log(1.02)
"""A variant that is slower by less isn't dropped before `MAX_RACES`."""
MAX_RACES = 3
"""Races of two variants; if they don't decide, the difference doesn't matter."""
FIRST_REPEAT, REPEAT_FACTOR = 8, 4
"""The runner-up races again after so many runs, then after so many times as many."""
MAX_REPEATED_RATIO = 2.0
"""Ratio to the best time up to which a runner-up races again, and up to which a variant known
from earlier runs races at all. Arbitrary."""
MAX_CLOSE_RATIO = 1.25
"""Ratio up to which a race uses as many chunks as possible. Arbitrary."""
FIRST_ROUNDS = 3
"""Rounds of a first race, and of one against a slow variant: in the first of them kernels are
cold, two count."""
MAX_RACE_CHUNKS = 16
"""Chunks of a core in a race, if the variants are close: more rounds decide sooner."""


@dataclass(frozen=True)
class RaceDecision:
    """The best variant, those to race against it, and in how many rounds.

    `is_repeat`: it was decided before.
    """

    best: str
    rivals: tuple[str, ...] = ()
    rounds: int = 0
    is_repeat: bool = False


def decide(
    names: Sequence[str],
    record: RaceRecord,
    runs: int,
    default: str,
    slow: Collection[str] = (),
) -> RaceDecision:
    """Return the variants of the next run.

    Parameters
    ----------
    names : sequence of str
        The usable variants, at least one.
    record : RaceRecord
        Their races at similar loads.
    runs : int
        Runs of the job so far.
    default : str
        The best variant as long as none has raced.
    slow : collection of str
        Variants that earlier runs have shown to be slow.
    """
    best = record.fastest(names) or default
    others = [name for name in names if name != best]
    behind = {name: c for name in others if (c := record.compare(name, best))}
    # Also one that has raced, but not against a variant that has become the best since.
    new = [name for name in others if name not in behind and name not in slow]
    open_races = [name for name, c in behind.items() if _is_open(c)]
    if new:
        return RaceDecision(best, (*new, *open_races), FIRST_ROUNDS)
    if open_races:
        return RaceDecision(best, tuple(open_races), _rounds(open_races, behind))
    runner_up = min(behind, key=lambda name: behind[name].mean, default=None)
    if runner_up is not None and _is_due(behind[runner_up], runs, record.changed_at):
        return RaceDecision(best, (runner_up,), _rounds([runner_up], behind), is_repeat=True)
    return RaceDecision(best)


def max_runs_of_rival(runs: int) -> int:
    """Return the runs of a decided rival after `runs` of a job too small to race within a run."""
    repeats = 0
    while FIRST_REPEAT * REPEAT_FACTOR**repeats <= runs:
        repeats += 1
    return MAX_RACES + repeats


def is_dropped(behind: Comparison) -> bool:
    """Return whether a variant is known to be slower than the best."""
    return behind.low > DROP_LOG_RATIO


def _is_open(behind: Comparison) -> bool:
    return behind.races < MAX_RACES and not is_dropped(behind)


def _is_due(behind: Comparison, runs: int, changed_at: int) -> bool:
    """Return whether a decided race is repeated: after some runs, or after a change of speed."""
    if behind.ratio > MAX_REPEATED_RATIO:
        return False
    repeat = FIRST_REPEAT
    while repeat <= behind.last:
        repeat *= REPEAT_FACTOR
    return runs >= repeat or behind.last < changed_at


def _rounds(rivals: Sequence[str], behind: dict[str, Comparison]) -> int:
    if max(behind[name].ratio for name in rivals) > MAX_CLOSE_RATIO:
        return FIRST_ROUNDS
    return max(FIRST_ROUNDS, MAX_RACE_CHUNKS // (1 + len(rivals)))
