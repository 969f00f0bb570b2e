"""What a new user waits for: the first `hetsched run`, and a daemon's first jobs of new shapes.

`run` is a whole process that finds no state and no caches, in turns with a script that makes the
same data and transforms them by SciPy on all cores. A daemon without
models and caches, warm from jobs of another shape, gets fifty of a new one; the first is compared
with SciPy's first call of that shape in a fresh process, the fifth with the fiftieth.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks import contest
from benchmarks.contest import OURS, Found, Measured, milliseconds, ratio
from benchmarks.serving import HETSCHED, daemon, places, timed
from benchmarks.warm_job import normal

TITLE = "First use"
CASES = ("run 256x512x512", "64x300x300", "16x1000x1000", "10000x1x8192", "30x1000x1009")
QUICK = ("run 32x128x128", "4x30x31")
ROUNDS = 3
WARM_SHAPE = (32, 256, 256)
WARM_JOBS, JOBS = 12, 50
PAUSE = 0.02
"""Seconds between jobs: the daemon may learn, as it does between a user's jobs."""
COLUMNS = (
    "case", "first, ms", "SciPy's, ms", "over SciPy's (quartiles)", "second job, ms",
    "fifth job, ms", "over the fiftieth (quartiles)",
)  # fmt: skip
SCRIPT = """
import concurrent.futures, os, sys
import numpy, scipy.fft
from hetsched.workload.streams import fill_units
cores = len(os.sched_getaffinity(0))
x = numpy.empty(tuple(map(int, sys.argv[1].split("x"))), "complex64")
with concurrent.futures.ThreadPoolExecutor(cores) as pool:
    list(pool.map(lambda unit: fill_units(0, "x", unit, x[unit : unit + 1]), range(len(x))))
y = scipy.fft.fft2(x, workers=cores)
"""
FIRST_CALL = """
import os, sys, time
import numpy, scipy.fft
from benchmarks.warm_job import normal
x = normal(tuple(map(int, sys.argv[1].split("x"))), "complex64")
y = numpy.zeros_like(x)
start = time.perf_counter()
y[...] = scipy.fft.fft2(x, workers=len(os.sched_getaffinity(0)))
print(time.perf_counter() - start)
"""


def measure(case: str, rounds: int) -> contest.Benchmarks:
    batch = case.rsplit(maxsplit=1)[-1]
    if case == batch:
        contestants = {OURS: lambda: first_jobs(batch), "SciPy": lambda: first_call(batch)}
        return contest.race(case, contestants, rounds)
    run = [str(HETSCHED), "run", "fft", "--batch", batch]
    script = [sys.executable, "-c", SCRIPT, batch]
    contestants = {OURS: lambda: whole("first", run), "SciPy": lambda: whole("SciPy", script)}
    return contest.race(case, contestants, rounds)


def whole(what: str, command: Sequence[str]) -> Measured:
    with untouched():
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return Measured({what: time.perf_counter() - start})


@contextmanager
def untouched() -> Iterator[None]:
    """Let this process and its children find no state and no caches of earlier ones."""
    with tempfile.TemporaryDirectory(prefix="hs-") as folder, places(folder, "XDG_CACHE_HOME"):
        yield


def first_jobs(batch: str) -> Measured:
    """Measure the first jobs of this shape, in a daemon that is warm from others."""
    shape = tuple(map(int, batch.split("x")))
    with untouched(), daemon() as served:
        warm, new = (
            [served.client.empty(each, "complex64") for _ in "xy"] for each in (WARM_SHAPE, shape)
        )
        warm[0][...] = 1
        timed(served.client, *warm, WARM_JOBS)
        new[0][...] = normal(shape, "complex64")
        new[1][...] = 0
        jobs = [seconds for seconds, _ in timed(served.client, *new, JOBS, PAUSE)]
    last = statistics.median(jobs[-5:])
    return Measured({"first": jobs[0], "second": jobs[1], "fifth": jobs[4], "fiftieth": last})


def first_call(batch: str) -> Measured:
    command = [sys.executable, "-c", FIRST_CALL, batch]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Measured({"SciPy": float(done.stdout)})


def row(case: str, found: Found, facts: object) -> tuple[str, ...]:
    others = (found.get(what) for what in ("second", "fifth"))
    return (
        case, milliseconds(found["first"]), milliseconds(found["SciPy"]),
        ratio(found["first"], found["SciPy"]),
        *("" if seconds is None else milliseconds(seconds) for seconds in others),
        ratio(found["fifth"], found["fiftieth"]) if "fifth" in found else "",
    )  # fmt: skip
