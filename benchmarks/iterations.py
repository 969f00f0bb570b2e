"""Balance of iterative jobs at run time, beside a busy process and on a quiet machine.

Jobs of the heat workload on two cores, with `--balance auto` from the even split, against the same
job with fixed splits. All take turns in one process, and each begins without models.
"""

from __future__ import annotations

import functools
import os
import statistics
from collections.abc import Callable
from typing import Any

import hetsched
from benchmarks.results import Bar, Result
from benchmarks.split import neighbour
from hetsched.config import parse
from hetsched.job import JobReport
from hetsched.models import Constant
from hetsched.partition import iterations
from hetsched.partition.iterations import IterationBalance

CONFIG = '[[device]]\nkind = "cpu"\ncount = 2\nteam = false\n'
GRID, STEPS, QUICK_STEPS = "4096x4096", 100, 100
ROUNDS, QUICK_ROUNDS = 5, 1
PARTS = (0.2, 0.25, 0.3, 0.35, 0.4, 0.5)
"""Fixed shares of the first core, whose neighbour is busy; the last is the even split."""
BUSY_LIMIT, QUIET_LIMIT = 1.15, 1.02


def measure(quick: bool) -> Result:
    columns = ("case", "split", "seconds, median (least)", "over the best", "rows moved, times")
    result = Result("iterations", "Balance of iterative jobs at run time", columns)
    for busy in (True, False):
        add(result, busy, times(busy, quick))
    return result


def times(busy: bool, quick: bool) -> dict[str, list[dict[str, Any]]]:
    """Return split -> its runs."""
    parts = PARTS if busy else PARTS[-1:]
    splits: dict[str, float | None] = {"auto": None} | {f"{part:.0%}": part for part in parts}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in splits}
    core = min(os.sched_getaffinity(0))
    with neighbour(core, busy), hetsched.Local(parse(CONFIG, "benchmark"), learn=False) as local:
        for number in range((QUICK_ROUNDS if quick else ROUNDS) + 1):
            for name, part in splits.items():
                steps = QUICK_STEPS if quick else STEPS
                report = run(local, part, steps)
                if number:
                    runs[name].append({"seconds": report.seconds, "moves": report.moves})
    return runs


def run(local: hetsched.Local, part: float | None, steps: int) -> JobReport:
    """Run one job with a fixed share of the first core, or balanced."""
    original = iterations.IterationBalance
    iterations.IterationBalance = balance_of(part)  # type: ignore[misc, assignment]
    try:
        job = local.submit("heat", grid=GRID, steps=steps)
        job.result()
    finally:
        iterations.IterationBalance = original  # type: ignore[misc]
    report = job.report
    assert isinstance(report, JobReport)
    return report


def balance_of(part: float | None) -> Callable[..., IterationBalance]:
    """Return a constructor of balances that know nothing, or keep a split."""

    def make(rows: int, devices: int, method: str, **options: Any) -> IterationBalance:
        models = None if part is None else [Constant(part), Constant(1 - part)]
        options = {**options, "models": models}
        return IterationBalance(rows, devices, "auto" if part is None else "none", **options)

    return functools.wraps(IterationBalance)(make)


def add(result: Result, busy: bool, runs: dict[str, list[dict[str, Any]]]) -> None:
    case = "one core with a busy neighbour" if busy else "no neighbour"
    seconds = {name: [run["seconds"] for run in each] for name, each in runs.items()}
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    best = min(value for name, value in medians.items() if name != "auto")
    for name, each in runs.items():
        result.rows.append(
            (
                case,
                name,
                f"{medians[name]:.3f} ({min(seconds[name]):.3f})",
                f"{medians[name] / best:.2f}",
                f"{statistics.median(run['moves'] or 0 for run in each):g}",
            )
        )
        result.data.append({"case": case, "split": name, "runs": each})
        print(f"  {' | '.join(result.rows[-1])}", flush=True)
    limit = BUSY_LIMIT if busy else QUIET_LIMIT
    what = f"{case}: time over that of the best fixed split"
    result.bars.append(Bar(what, medians["auto"] / best, limit, at_least=False))
