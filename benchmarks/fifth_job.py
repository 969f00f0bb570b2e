"""The fifth job of a kind, from an empty models.db, compared with the fiftieth: submit to result.

    python -m benchmarks.fifth_job [CASE...] [--instances 9] [--minutes M] [--resume] [--unsaved]

CASE as for `warm_job`. Each instance is a fresh daemon with no models, so both jobs have their
pages in the same place; a single job is luck, so the figure is the median over instances of the
fifth job's time over the median of the 46th to 50th. `--resume` and `--minutes` as for `warm_job`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any

import hetsched
from benchmarks.peers.fft_case import fill
from benchmarks.results import Bar, Result
from benchmarks.resumable import measure_each
from benchmarks.serving import daemon, report
from benchmarks.stats import milliseconds, quartiles
from benchmarks.warm_cases import Case, selected

CASES = (
    "4096x64x64 complex64",
    "64x500x500 complex64",
    "200x320x480 complex64",
    "32x1024x1024 complex64",
    "61x509x509 complex64",
    "1024x256x256 complex128",
    "1x512x512 complex64",
    "8x256x256 complex64",
)
INSTANCES, QUICK_INSTANCES = 9, 2
EARLY, LATE = 5, 50
LATE_JOBS = 5
"""The last of these is the fiftieth; their median stands for it."""
SETTLE = 0.02
"""Seconds between jobs, as in `warm_job`."""
MAX_RATIO = 1.05
SMALL_SECONDS = 0.020
"""Shorter jobs have no bar: most of their time isn't the library's."""
COLUMNS = (
    "case", "jobs 1 to 5, ms", "job 50, ms", "job 5 over job 50 (quartiles)", "variants, job 5",
    "variants, job 50", "instances",
)  # fmt: skip


def measure(quick: bool) -> Result:
    if quick:
        return measure_cases(selected(["64x100x100 complex64"]), QUICK_INSTANCES, save=False)
    return measure_cases(default_cases(), INSTANCES, save=True)


def default_cases() -> list[Case]:
    return [case for case in selected(()) if case.name in CASES]


def measure_cases(
    cases: Sequence[Case],
    instances: int,
    *,
    save: bool,
    until: float = float("inf"),
    resume: bool = False,
) -> Result:
    """Measure `cases`; the other parameters are as for `measure_each`."""
    return measure_each(
        "fifth_job",
        cases,
        lambda case: measured(case, instances),
        row,
        as_result,
        save=save,
        until=until,
        resume=resume,
    )


def measured(case: Case, instances: int) -> dict[str, Any]:
    return {"case": case.name, "runs": [one_instance(case) for _ in range(instances)]}


def one_instance(case: Case) -> dict[str, Any]:
    """Return the seconds and variants of the first jobs of a daemon without models."""
    seconds: list[float] = []
    variants: list[list[str]] = []
    with daemon() as served:
        x, y = (served.client.empty(case.shape, case.dtype) for _ in "xy")
        fill(x)
        for _ in range(LATE):
            time.sleep(SETTLE)
            start = time.perf_counter()
            job: hetsched.Job = served.client.submit("fft", x, out=y)
            job.result()
            seconds.append(time.perf_counter() - start)
            variants.append(sorted({device.variant for device in report(job).devices}))
    return {"seconds": seconds, "early": variants[EARLY - 1], "late": variants[-1]}


def late(run: dict[str, Any]) -> float:
    """Return the seconds that stand for the fiftieth job."""
    return statistics.median(run["seconds"][-LATE_JOBS:])


def ratios(entry: dict[str, Any]) -> list[float]:
    """Return, for each instance, the fifth job's time over the fiftieth's."""
    return sorted(run["seconds"][EARLY - 1] / late(run) for run in entry["runs"])


def row(entry: dict[str, Any]) -> tuple[str, ...]:
    runs = entry["runs"]
    low, middle, high = quartiles(ratios(entry))
    first = (statistics.median(run["seconds"][i] for run in runs) for i in range(EARLY))
    return (
        entry["case"],
        " ".join(map(milliseconds, first)),
        milliseconds(statistics.median(map(late, runs))),
        f"{middle:.2f} ({low:.2f} to {high:.2f})",
        counts([run["early"] for run in runs]),
        counts([run["late"] for run in runs]),
        str(len(runs)),
    )


def counts(variants: Sequence[Sequence[str]]) -> str:
    """Return how many instances used which variants, the most frequent first."""
    names = ["+".join(used) for used in variants]
    ordered = sorted(set(names), key=lambda name: (-names.count(name), name))
    return ", ".join(f"{names.count(name)} {name}" for name in ordered)


def as_result(entries: list[dict[str, Any]]) -> Result:
    title = "The fifth job of a kind from an empty models.db"
    result = Result("fifth_job", title, COLUMNS, data=entries)
    result.rows = [row(entry) for entry in entries]
    judged = [
        statistics.median(ratios(entry))
        for entry in entries
        if statistics.median(map(late, entry["runs"])) >= SMALL_SECONDS
    ]
    if judged:
        result.bars = [
            Bar("fifth job over the fiftieth, worst case of 20 ms or more", max(judged),
                MAX_RATIO, at_least=False),
            Bar("the same, median of these cases", statistics.median(judged), MAX_RATIO,
                at_least=False),
        ]  # fmt: skip
    return result


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fifth_job")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--instances", type=int, default=INSTANCES)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--unsaved", action="store_true")
    given = parser.parse_args()
    result = measure_cases(
        selected(given.cases) if given.cases else default_cases(),
        given.instances,
        save=not given.unsaved,
        until=time.monotonic() + 60 * given.minutes,
        resume=given.resume,
    )
    print(f"\n{result.text()}", flush=True)


if __name__ == "__main__":
    main()
