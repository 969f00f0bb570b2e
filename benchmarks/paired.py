"""Runs contestants in turn: one repetition each per round, in rotating order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from benchmarks.stats import Sample

SETTLE = 0.25
"""Seconds between two repetitions: MKL's threads spin for 0.2 s after theirs."""


def interleave(
    contestants: Mapping[str, Callable[[], float]], rounds: int, settle: float = SETTLE
) -> dict[str, Sample]:
    """Return name -> seconds of each round; equal rounds were measured next to each other."""
    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            time.sleep(settle)
            seconds[name].append(contestants[name]())
    return {name: Sample(tuple(values)) for name, values in seconds.items()}


def fastest(samples: Mapping[str, Sample]) -> str:
    return min(samples, key=lambda name: samples[name].median)
