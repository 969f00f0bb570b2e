"""Contestants in fresh processes, in random order, and ratios over these instances.

A single process is luck: where its pages lie in memory accounts for up to 15 % of its time. So
each contestant runs in several processes, one after the other, and a ratio is taken between the
medians of neighbouring ones.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.stats import Ratio, quartiles

INSTANCES = 5
"""Fresh processes of each contestant."""
MAX_LAG = 1.3
"""Contestants slower than this times the fastest of the first round take no part in the others."""


@dataclass(frozen=True)
class Instance:
    """What one process measured.

    Attributes
    ----------
    seconds : tuple of float
        Of its repetitions, warm.
    facts : dict
        Anything else that it reports.
    """

    seconds: tuple[float, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


Contestant = Callable[[], Instance | None]
"""Runs one fresh process; None: it can't (a library isn't installed)."""


def race(
    contestants: Mapping[str, Contestant], instances: int, seed: str, subject: str
) -> dict[str, list[Instance]]:
    """Return name -> its instances; instance i of all contestants ran in one round.

    `subject` takes part in each round, the others as long as they aren't clearly slower than the
    fastest of them.
    """
    draw = random.Random(seed)
    names = list(contestants)
    results: dict[str, list[Instance]] = {name: [] for name in names}
    for turn in range(instances):
        draw.shuffle(names)
        for name in list(names):
            instance = contestants[name]()
            if instance is None:
                names.remove(name)
                del results[name]
            else:
                results[name].append(instance)
        if turn == 0:
            names = _close(results, subject)
    return results


def _close(results: Mapping[str, Sequence[Instance]], subject: str) -> list[str]:
    others = {name: found[0].median for name, found in results.items() if name != subject}
    limit = MAX_LAG * min(others.values(), default=0.0)
    return [subject, *(name for name, seconds in others.items() if seconds <= limit)]


def fastest(results: Mapping[str, Sequence[Instance]], subject: str) -> str:
    """Return the contestant with the least median, of those in all rounds but `subject`."""
    rounds = len(results[subject])
    medians = {
        name: overall(found)
        for name, found in results.items()
        if name != subject and len(found) == rounds
    }
    return min(medians, key=lambda name: medians[name])


def overall(instances: Sequence[Instance]) -> float:
    """Return the median over instances, seconds."""
    return statistics.median(instance.median for instance in instances)


def speed(ours: Sequence[Instance], theirs: Sequence[Instance]) -> Ratio:
    """Return how many times as fast `ours` is: median and quartiles over the rounds."""
    ratios = sorted(their.median / our.median for our, their in zip(ours, theirs, strict=False))
    low, middle, high = quartiles(ratios)
    return Ratio(middle, low, high)
