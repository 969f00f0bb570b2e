"""What a new user waits for: the first `hetsched run`, and a daemon's first jobs of new shapes.

`run` is timed as a whole process that finds no state and no caches, in turns with the same without
FFTW, and with a script that makes the same data and transforms them by SciPy on all cores. A
daemon without models and caches, warm from jobs of another shape, then gets ten of a new one; the
first is compared with SciPy's first call of that shape in a fresh process.

    python -m benchmarks first_use
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.fft_case import fill
from benchmarks.results import Bar, Result
from benchmarks.serving import daemon, places

BATCH, QUICK_BATCH = "256x512x512", "32x128x128"
SHAPES = ((64, 300, 300), (16, 1000, 1000), (10000, 1, 8192), (30, 1000, 1009))
QUICK_SHAPES = ((4, 30, 31),)
WARM_SHAPE = (32, 256, 256)
WARM_JOBS, JOBS = 12, 10
ROUNDS = 5
WITHOUT_FFTW, LONGER = 1.3, 2.0
"""Bars of `run`: times the one without FFTW, and seconds longer than the script."""
FIRST, FIRST_SECONDS = 1.5, 0.1
"""The bar of a first job: times SciPy's first call, plus these seconds."""

SCRIPT = """
import concurrent.futures, os, sys
import numpy, scipy.fft
from hetsched_workloads.fft.verification import generate
cores = len(os.sched_getaffinity(0))
x = numpy.empty(tuple(map(int, sys.argv[1].split("x"))), "complex64")
with concurrent.futures.ThreadPoolExecutor(cores) as pool:
    list(pool.map(lambda unit: generate(0, "x", unit, x[unit : unit + 1]), range(len(x))))
y = scipy.fft.fft2(x, workers=cores)
"""
FIRST_CALL = """
import json, os, sys, time
import scipy.fft
from benchmarks.peers.fft_case import arrays
x, y = arrays({"shape": json.loads(sys.argv[1]), "dtype": "complex64"})
start = time.perf_counter()
y[...] = scipy.fft.fft2(x, workers=len(os.sched_getaffinity(0)))
print(time.perf_counter() - start)
"""
NO_FFTW = 'import sys\nsys.modules["pyfftw"] = None\n'


def measure(quick: bool) -> Result:
    result = Result("first_use", "First use", ("what", "median (all), s", "compared with", "s"))
    first_runs(result, QUICK_BATCH if quick else BATCH, 1 if quick else ROUNDS)
    new_shapes(result, QUICK_SHAPES if quick else SHAPES, 1 if quick else ROUNDS)
    return result


def first_runs(result: Result, batch: str, rounds: int) -> None:
    """Time `run`, `run` without FFTW and the script, in turns."""
    run = [str(Path(sys.executable).parent / "hetsched"), "run", "fft", "--batch", batch]
    ours, without, script = [], [], []
    with tempfile.TemporaryDirectory(prefix="hs-") as folder:
        (Path(folder) / "sitecustomize.py").write_text(NO_FFTW)
        for _ in range(rounds):
            ours.append(seconds_of(run))
            without.append(seconds_of(run, PYTHONPATH=folder))
            script.append(seconds_of([sys.executable, "-c", SCRIPT, batch]))
    name = f"`hetsched run fft --batch {batch}`"
    add(result, name, ours, "without FFTW", without)
    add(result, name, ours, "SciPy's script", script)
    ratio = statistics.median(a / b for a, b in zip(ours, without, strict=True))
    longer = statistics.median(a - b for a, b in zip(ours, script, strict=True))
    result.bars += [
        Bar(f"{name}, over the same without FFTW", ratio, WITHOUT_FFTW, at_least=False),
        Bar(f"{name}, seconds longer than SciPy's script", longer, LONGER, at_least=False),
    ]


def seconds_of(command: Sequence[str], **environment: str) -> float:
    with untouched():
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, **environment})
        return time.perf_counter() - start


@contextmanager
def untouched() -> Iterator[None]:
    """Let this process and its children find no state and no caches of earlier ones."""
    before = os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory(prefix="hs-") as folder, places(folder):
        os.environ["XDG_CACHE_HOME"] = folder
        try:
            yield
        finally:
            del os.environ["XDG_CACHE_HOME"]
            if before is not None:
                os.environ["XDG_CACHE_HOME"] = before


def new_shapes(result: Result, shapes: Sequence[tuple[int, ...]], rounds: int) -> None:
    for shape in shapes:
        jobs, calls = [], []
        for _ in range(rounds):
            jobs.append(first_jobs(shape))
            calls.append(first_call(shape))
        name = "x".join(map(str, shape))
        first = [run[0] for run in jobs]
        add(result, f"{name}: first job", first, "SciPy's first call", calls)
        add(
            result,
            f"{name}: tenth job",
            [run[-1] for run in jobs],
            "the second",
            [run[1] for run in jobs],
        )
        most = FIRST * statistics.median(calls) + FIRST_SECONDS
        result.bars.append(
            Bar(f"{name}: first job, s", statistics.median(first), most, at_least=False)
        )


def first_jobs(shape: tuple[int, ...]) -> list[float]:
    """Return the seconds of the first jobs of this shape, in a daemon that is warm from others."""
    with untouched(), daemon() as served:

        def seconds(x: object, y: object) -> float:
            start = time.perf_counter()
            served.client.submit("fft", x, out=y).result()
            return time.perf_counter() - start

        warm = tuple(served.client.empty(WARM_SHAPE, "complex64") for _ in "xy")
        fill(warm[0])
        for _ in range(WARM_JOBS):
            seconds(*warm)
        x, y = (served.client.empty(shape, "complex64") for _ in "xy")
        fill(x)
        y[...] = 0
        return [seconds(x, y) for _ in range(JOBS)]


def first_call(shape: tuple[int, ...]) -> float:
    command = [sys.executable, "-c", FIRST_CALL, json.dumps(shape)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def add(
    result: Result, what: str, ours: Sequence[float], other: str, theirs: Sequence[float]
) -> None:
    row = (what, text(ours), other, text(theirs))
    result.rows.append(row)
    result.data.append({"what": what, "seconds": ours, "compared with": other, "theirs": theirs})
    print(f"  {' | '.join(row)}", flush=True)


def text(seconds: Sequence[float]) -> str:
    """ "6.1 (5.9 6.1 6.3)": the median and all, in seconds."""
    each = " ".join(f"{value:.3g}" for value in seconds)
    return f"{statistics.median(seconds):.3g} ({each})"
