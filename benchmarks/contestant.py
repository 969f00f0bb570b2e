"""One contestant in a process of its own: warms up, measures, checks its result.

    python -m benchmarks.contestant MODULE NAME CASE STATE

The module's ``contestant(NAME, CASE, STATE)`` is a context manager whose value is a `Subject`.
All contestants get the same warm-ups, pauses and repetitions. Writes one line of JSON.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

WARM_UPS, WARM_SECONDS = 3, 1.0
"""Repetitions that aren't measured: at least so many, for at least so long."""
PAUSE = 0.25
"""Seconds before each repetition: MKL's threads spin for 0.2 s after theirs."""
MIN_REPEATS, MAX_REPEATS, SECONDS = 5, 9, 1.0
"""Repetitions: as many as take these seconds, within limits."""


@dataclass(frozen=True)
class Subject:
    """What is measured -> one repetition of it; the relative error of the last result."""

    runs: Mapping[str, Callable[[], object]]
    error: Callable[[], float]
    limit: float
    facts: Callable[[], Mapping[str, str | float]] = field(default=dict)


def main() -> None:
    module, name, case, state = sys.argv[1:]
    try:
        context = importlib.import_module(module).contestant(name, case, state)
        with context as subject:
            values = {what: median_seconds(run) for what, run in subject.runs.items()}
            error, facts = subject.error(), dict(subject.facts())
    except ImportError as missing:
        print(json.dumps({"missing": str(missing)}))
        return
    if not error <= subject.limit:
        raise SystemExit(f"{name} is wrong on {case}: relative error {error:.1e}")
    print(json.dumps({"values": values, "facts": facts}))


def median_seconds(run: Callable[[], object]) -> float:
    warm = [0.0]
    while len(warm) <= WARM_UPS or sum(warm) < WARM_SECONDS:
        warm.append(timed(run))
    seconds: list[float] = []
    while len(seconds) < MIN_REPEATS or (sum(seconds) < SECONDS and len(seconds) < MAX_REPEATS):
        time.sleep(PAUSE)
        seconds.append(timed(run))
    return statistics.median(seconds)


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
