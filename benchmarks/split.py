"""How soon the split is balanced, and how well the time is predicted, from empty models."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hetsched
from benchmarks.peers.fft_case import fill
from benchmarks.results import Bar, Result
from benchmarks.serving import daemon, report
from hetsched.config import load
from hetsched.job import JobReport

TRIALS, QUICK_TRIALS = 5, 1
RUNS = 10
FIRST = 4
"""The run from which the limits apply."""
SPREAD, PREDICTION = 0.10, 0.15
CASES = {
    "emulated GPU": ("emulated-gpu", (64, 512, 512), False),
    "one core with a busy neighbour": ("cpu-only", (256, 512, 512), True),
}


def measure(quick: bool) -> Result:
    columns = ("case", "run", "spread", "allowed", "prediction error", "late")
    result = Result("split", "Split and prediction, run by run", columns)
    for name, (config, shape, busy) in CASES.items():
        trials = [
            list(trial(config, shape, busy)) for _ in range(QUICK_TRIALS if quick else TRIALS)
        ]
        add(result, name, trials)
    return result


def trial(config: str, shape: tuple[int, ...], busy: bool) -> Iterator[dict[str, Any]]:
    """Run RUNS equal jobs on a fresh daemon, without stealing, which would hide the spread."""
    core = min(os.sched_getaffinity(0))
    with alone(config) as path, daemon(path) as served, neighbour(core, busy):
        client: hetsched.Client = served.client
        x, y = client.empty(shape, "complex64"), client.empty(shape, "complex64")
        fill(x)
        for _ in range(RUNS):
            job = client.submit("fft", x, out=y)
            job.result()
            yield facts(report(job))


@contextmanager
def alone(config: str) -> Iterator[str]:
    """Yield the path of a shipped configuration without stealing."""
    with tempfile.TemporaryDirectory(prefix="hs-") as folder:
        path = Path(folder) / "alone.toml"
        text = Path(load(config)[1]).read_text(encoding="utf-8")
        path.write_text(f"stealing = false\n{text}", encoding="utf-8")
        yield str(path)


def facts(report: JobReport) -> dict[str, Any]:
    seconds = report.seconds or 0.0
    units = [device.seconds / device.share for device in report.devices if device.share]
    allowed = max(SPREAD, max(units) / seconds)
    predicted = report.predicted_seconds
    return {
        "spread": report.spread or 0.0,
        "allowed": allowed,
        "accuracy": None if predicted is None else predicted / seconds,
        "late": sum(device.late for device in report.devices),
        "seconds": seconds,
        "shares": {device.device: device.share for device in report.devices},
    }


@contextmanager
def neighbour(core: int, busy: bool) -> Iterator[None]:
    """Run a process that never sleeps, pinned to `core`."""
    if not busy:
        yield
        return
    code = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def prediction_error(ratios: Sequence[float | None]) -> float:
    """Return the median of abs(predicted / measured - 1); None without predictions."""
    return statistics.median(math.inf if ratio is None else abs(ratio - 1) for ratio in ratios)


def add(result: Result, name: str, trials: list[list[dict[str, Any]]]) -> None:
    result.data.append({"case": name, "trials": trials})
    excess, errors, late = [], [], 0
    for index, runs in enumerate(zip(*trials, strict=True), start=1):
        spread = statistics.median(run["spread"] for run in runs)
        allowed = statistics.median(run["allowed"] for run in runs)
        error = prediction_error([run["accuracy"] for run in runs])
        shown = "" if math.isinf(error) else f"{error:.2f}"
        lates = sum(run["late"] for run in runs)
        row = (name, str(index), f"{spread:.3f}", f"{allowed:.3f}", shown, str(lates))
        result.rows.append(row)
        late += lates
        if index >= FIRST:
            excess.append(spread / allowed)
            errors.append(error)
    what = f"{name}, from run {FIRST} on"
    result.bars += [
        Bar(f"{what}: spread / allowed, worst run", max(excess), 1.0, at_least=False),
        Bar(f"{what}: prediction error, worst run", max(errors), PREDICTION, at_least=False),
        Bar(f"{name}: phases that were late", late, 0, at_least=False),
    ]
