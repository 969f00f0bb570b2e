"""Predictions of `hetsched run` in fresh processes, after different histories.

Each case has models with another history: none, `models measure`, runs of the daemon, other sizes.
Then `hetsched run` predicts and measures, in a fresh process each time. The figure is the relative
error of the prediction from the third of these runs on. Beside it stand the error if the time of
the previous run had been the prediction, and the spread of the measured times, the error of their
own median as prediction, which is known only afterwards: how steady the machine was.

    python -m benchmarks fresh_runs
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hetsched
from benchmarks.results import Bar, Result
from benchmarks.serving import daemon, places
from benchmarks.stats import milliseconds

RUNS = 6
JUDGED_FROM = 2
"""Index of the first run that is judged, the third."""
DAEMON_JOBS = 12
MEASURED_REPEATS = "5"
"""Of each size: with the default of 30 a case takes ten minutes on a noisy machine."""


@dataclass(frozen=True)
class FreshCase:
    batch: str
    history: str
    dtype: str = "complex64"


CASES = (
    FreshCase("256x512x512", "measure"),
    FreshCase("256x512x512", "daemon"),
    FreshCase("256x512x512", "none"),
    FreshCase("64x500x500", "measure"),
    FreshCase("64x500x500", "other sizes"),
    FreshCase("2048x128x128", "daemon"),
    FreshCase("2048x128x128", "measure"),
    FreshCase("32x1024x1024", "none", "complex128"),
    FreshCase("8x2048x2048", "measure"),
    FreshCase("200x320x480", "daemon"),
)
QUICK_CASES = (FreshCase("64x128x128", "none"), FreshCase("64x128x128", "daemon"))


def measure(quick: bool) -> Result:
    columns = (
        "case", "history", "predicted, ms", "measured, ms", "error, median from run 3 on",
        "by the previous run", "spread of these runs",
    )  # fmt: skip
    result = Result("fresh_runs", "Predictions of `hetsched run` in fresh processes", columns)
    for case in QUICK_CASES if quick else CASES:
        with tempfile.TemporaryDirectory(prefix="hs-") as folder:
            HISTORIES[case.history](case, folder)
            with places(folder):
                runs = [one_run(case) for _ in range(4 if quick else RUNS)]
        add(result, case, runs)
    errors = [entry["error"] for entry in result.data]
    by_previous = statistics.median(entry["by_previous"] for entry in result.data)
    spread = statistics.median(entry["spread"] for entry in result.data)
    result.bars = [
        Bar("prediction error from run 3 on, median of the cases", statistics.median(errors),
            0.10, at_least=False),
    ]  # fmt: skip
    middle = (statistics.median(errors), by_previous, spread)
    result.rows.append(("median", "", "", "", *(f"{value:.3f}" for value in middle)))
    return result


def one_run(case: FreshCase) -> tuple[float | None, float]:
    """Run it in a fresh process; return the seconds predicted and measured."""
    command = ["run", "fft", "--batch", case.batch, "--dtype", case.dtype, "--config", "cpu-only"]
    report = _hetsched(*command, "--json")
    return report["predicted_seconds"], report["seconds"]


def add(result: Result, case: FreshCase, runs: Sequence[tuple[float | None, float]]) -> None:
    error, by_previous, spread = judged_error(runs), error_by_previous(runs), judged_spread(runs)
    predicted = ["-" if p is None else milliseconds(p) for p, _ in runs]
    seconds = [milliseconds(measured) for _, measured in runs]
    name = f"{case.batch} {case.dtype}"
    row = (
        name,
        case.history,
        " ".join(predicted),
        " ".join(seconds),
        f"{error:.3f}",
        f"{by_previous:.3f}",
        f"{spread:.3f}",
    )
    result.rows.append(row)
    entry = {
        "case": name,
        "history": case.history,
        "runs": runs,
        "error": error,
        "by_previous": by_previous,
        "spread": spread,
    }
    result.data.append(entry)
    print(f"  {' | '.join(row)}", flush=True)


def judged_error(runs: Sequence[tuple[float | None, float]]) -> float:
    """Return the median relative error from the third run on; infinite without a prediction."""
    errors = [
        float("inf") if predicted is None else abs(measured / predicted - 1)
        for predicted, measured in runs[JUDGED_FROM:]
    ]
    return statistics.median(errors)


def error_by_previous(runs: Sequence[tuple[float | None, float]]) -> float:
    """Return the `judged_error` if the time of each run were the prediction of the next."""
    seconds = [measured for _, measured in runs]
    previous = [(None, seconds[0]), *itertools.pairwise(seconds)]
    return judged_error(previous)


def judged_spread(runs: Sequence[tuple[float | None, float]]) -> float:
    """Return the error that the median of the judged runs would have had as their prediction."""
    seconds = [measured for _, measured in runs[JUDGED_FROM:]]
    middle = statistics.median(seconds)
    return statistics.median(abs(value / middle - 1) for value in seconds)


def _after_nothing(case: FreshCase, folder: str) -> None:
    pass


def _after_measuring(case: FreshCase, folder: str) -> None:
    with places(folder):
        _hetsched("models", "measure", "fft", "--batch", case.batch, "--dtype", case.dtype,
                  "--config", "cpu-only", "--most", MEASURED_REPEATS, plain=True)  # fmt: skip


def _after_jobs_of_a_daemon(case: FreshCase, folder: str) -> None:
    _daemon_jobs(folder, [case.batch], case.dtype)


def _after_other_sizes(case: FreshCase, folder: str) -> None:
    count, _, plane = case.batch.partition("x")
    others = [f"{max(1, int(count) * factor // 4)}x{plane}" for factor in (1, 2, 3)]
    _daemon_jobs(folder, others, case.dtype)


def _daemon_jobs(folder: str, batches: Sequence[str], dtype: str) -> None:
    with daemon(folder=folder) as served:
        for batch in batches:
            shape = tuple(map(int, batch.split("x")))
            x, y = (served.client.empty(shape, dtype) for _ in "xy")
            x[...] = 1
            for _ in range(DAEMON_JOBS):
                job: hetsched.Job = served.client.submit("fft", x, out=y)
                job.result()


HISTORIES: dict[str, Callable[[FreshCase, str], None]] = {
    "none": _after_nothing,
    "measure": _after_measuring,
    "daemon": _after_jobs_of_a_daemon,
    "other sizes": _after_other_sizes,
}


def _hetsched(*arguments: str, plain: bool = False) -> dict[str, Any]:
    command = [str(Path(sys.prefix) / "bin/hetsched"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = {} if plain else json.loads(done.stdout)
    return answer
