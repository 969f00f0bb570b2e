"""Contestants in fresh processes, one after the other, each of them in each round.

A single process is luck: where its pages lie in memory accounts for up to 15 % of its time. So a
figure is the median over several processes, and a ratio that of the medians of one round.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OURS = "hetsched"


@dataclass(frozen=True)
class Measured:
    """What a contestant measured in one round: seconds, or bytes, by what was measured."""

    values: Mapping[str, float]
    facts: Mapping[str, str | float] = field(default_factory=dict)


Contestant = Callable[[], Measured | None]
"""Takes part in one round; None: it can't, for a library isn't installed."""
Benchmarks = list[Any]
"""pyperf's. It is imported where they are made, so that other environments can plan."""
Found = Mapping[str, Sequence[float]]
"""The values of all rounds of one case, by what was measured."""


def race(
    case: str, contestants: Mapping[str, Contestant], rounds: int, *, unit: str = "second"
) -> Benchmarks:
    """Return what was measured of a case; run i of all of it is from round i.

    Contestants that can't take part are left out from the first round on. Prints each turn as it
    begins and ends, since one of large arrays takes a minute.
    """
    import pyperf

    draw = random.Random(case)
    names = list(contestants)
    runs: dict[str, list[Any]] = defaultdict(list)
    for number in range(1, rounds + 1):
        draw.shuffle(names)
        for name in list(names):
            print(f"    round {number} of {rounds}, {name}: ", end="", flush=True)
            measured = contestants[name]()
            if measured is None:
                names.remove(name)
                continue
            print(", ".join(f"{value:.4g}" for value in measured.values.values()), f"{unit}s")
            facts = {"load_avg_1min": os.getloadavg()[0], **measured.facts}
            for what, value in measured.values.items():
                metadata = {"name": f"{case}: {what}", "unit": unit, **facts}
                values = [float(f"{value:.5g}")]
                runs[what].append(pyperf.Run(values, metadata=metadata, collect_metadata=False))
    return [pyperf.Benchmark(found) for found in runs.values()]


def process(module: str, name: str, case: str, state: str = "") -> Contestant:
    """Return the contestant `name` of a module, in a fresh process; see `benchmarks.contestant`.

    `state` is a folder that the processes of a contestant share.
    """
    environment = dict(os.environ)
    if name != OURS:  # else MKL takes as many threads as it thinks worth it
        environment |= {"MKL_DYNAMIC": "FALSE", "OMP_DYNAMIC": "FALSE"}

    def contestant() -> Measured | None:
        command = [sys.executable, "-m", "benchmarks.contestant", module, name, case, state]
        done = subprocess.run(
            command, check=False, stdout=subprocess.PIPE, text=True, env=environment
        )
        if done.returncode:
            raise RuntimeError(f"{name} failed on {case}")
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        if "missing" in answer:
            print(f"left out, {answer['missing']}", flush=True)
            return None
        return Measured(answer["values"], answer["facts"])

    return contestant


def fastest(found: Found, names: Sequence[str]) -> str:
    """Return which of `names` has the least median."""
    return min((n for n in names if n in found), key=lambda name: statistics.median(found[name]))


def ratio(over: Sequence[float], under: Sequence[float]) -> str:
    """Format the ratios of equal rounds: "1.02 (0.98 to 1.05)", median and quartiles."""
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    if len(ratios) == 1:
        return f"{ratios[0]:.2f}"
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def milliseconds(seconds: Sequence[float]) -> str:
    """Format the median."""
    value = statistics.median(seconds) * 1e3
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
