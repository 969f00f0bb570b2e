"""Measures hetsched's overhead: the daemon's part of a job, small jobs, whole processes."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import hetsched
from benchmarks.peers.fft_case import fill
from benchmarks.results import Bar, Result
from benchmarks.serving import daemon, places, report
from benchmarks.stats import Sample

SHAPES = {"one plane, 1x64x64": (1, 64, 64), "64x512x512": (64, 512, 512)}
REPEATS, QUICK_REPEATS = 200, 10
PROCESSES, QUICK_PROCESSES = 15, 3
WARM_UP = 15
OWN_PART, SMALL_JOB, STATUS, RUN = 3e-3, 3e-3, 0.3, 2.5
"""Allowed median, seconds."""


def measure(quick: bool) -> Result:
    result = Result("overhead", "Overhead", ("what", "median (least), ms", "at most, ms"))
    with daemon() as served:
        for name, shape in SHAPES.items():
            jobs(result, served.client, name, shape, QUICK_REPEATS if quick else REPEATS)
        processes = QUICK_PROCESSES if quick else PROCESSES
        status = [str(served.command), "status"]
        add(result, "`hetsched status`, whole process", process_times(status, processes), STATUS)
        floor = [str(served.command.parent / "python"), "-c", "import numpy"]
        add(
            result,
            "for scale: `python -c 'import numpy'`",
            process_times(floor, processes),
            None,
        )
        command = [str(served.command), "run", "fft", "--batch", "32x512x512"]
    with tempfile.TemporaryDirectory(prefix="hs-") as folder, places(folder):
        add(result, f"`hetsched {' '.join(command[1:])}`", process_times(command, processes), RUN)
    return result


def jobs(
    result: Result, client: hetsched.Client, name: str, shape: Sequence[int], repeats: int
) -> None:
    x, y = client.empty(shape, "complex64"), client.empty(shape, "complex64")
    fill(x)
    pairs = [timed_job(client, x, y) for _ in range(WARM_UP + repeats)][WARM_UP:]
    own = Sample(tuple(total - running for total, running in pairs))
    add(result, f"{name}: the daemon's own part", own, OWN_PART)
    total = Sample(tuple(total for total, _ in pairs))
    add(result, f"{name}: submit to result", total, SMALL_JOB if shape[0] == 1 else None)


def timed_job(client: hetsched.Client, x: Any, y: Any) -> tuple[float, float]:
    """Return seconds from submit to result, and from the first chunk's start to the last's end."""
    start = time.perf_counter()
    job = client.submit("fft", x, out=y)
    job.result()
    return time.perf_counter() - start, report(job).seconds or 0.0


def process_times(command: Sequence[str], repeats: int) -> Sample:
    """Time whole processes, after two to warm the caches."""

    def run() -> float:
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - start

    return Sample(tuple(repeat(run, repeats + 2)[2:]))


def repeat(action: Callable[[], float], times: int) -> list[float]:
    return [action() for _ in range(times)]


def add(result: Result, what: str, sample: Sample, limit: float | None) -> None:
    text = "" if limit is None else f"{limit * 1e3:g}"
    result.rows.append((what, sample.text(), text))
    result.data.append({"what": what, "seconds": sample.seconds, "limit": limit})
    if limit is not None:
        value = statistics.median(sample.seconds) * 1e3
        result.bars.append(Bar(f"{what}, ms", value, limit * 1e3, at_least=False))
    print(f"  {' | '.join(result.rows[-1])}", flush=True)
