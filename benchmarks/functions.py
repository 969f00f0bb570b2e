"""`hetsched.map` and `hetsched.fft` on the user's own arrays, against what he can write himself.

Peers get the best of several block sizes; those of transforms are any library, on its own threads
or called from a thread per core.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from benchmarks import contest, machine
from benchmarks.contest import OURS, Found, milliseconds, ratio
from benchmarks.contestant import Subject

TITLE = "Any function, and transforms as scipy.fft has them"
BUSY = "beside another program"
"""A core computes something else."""
CASES = (
    "sqrt of 2 GiB", "gaussian of 500 images",
    f"sqrt of 2 GiB {BUSY}", f"gaussian of 500 images {BUSY}",
    "fft2 64x512x512 complex128", "rfft2 256x512x512 float32", "fftn 16x128x128x128 complex64",
    "rfft 10000x4096 float32", "fft2 64x500x500 complex64", "fft2 8x256x256 complex64",
)  # fmt: skip
QUICK = (
    "sqrt of 1 MiB", "gaussian of 8 images", f"sqrt of 1 MiB {BUSY}", "fft2 16x100x100 complex64",
)  # fmt: skip
ROUNDS = 5
COLUMNS = ("case", "hetsched, ms", "best peer, ms", "peer", "speed against it (quartiles)")
BLOCKS = (1 << 18, 1 << 20, 1 << 23, 1 << 26)
"""Bytes of a block, tried in turn: a peer keeps the fastest."""
LEARNING_CALLS = 30
MAX_ERROR = 1e-5

Function = Callable[[np.ndarray], np.ndarray]


def measure(case: str, rounds: int) -> contest.Benchmarks:
    names = (OURS, *(TRANSFORMS if "fft" in case else MAPS))
    return contest.race(
        case, {name: contest.process(__name__, name, case) for name in names}, rounds
    )


@contextmanager
def contestant(name: str, case: str, state: str) -> Iterator[Subject]:
    with busy_core() if case.endswith(BUSY) else nullcontext():
        yield subject(name, case)


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep one of the cores busy by another program."""
    core = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    program = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
    finally:
        program.kill()
        program.wait()


def subject(name: str, case: str) -> Subject:
    x, function = problem(case)
    if name == OURS:
        run = ours(case, function)
        for _ in range(LEARNING_CALLS if x.nbytes < 1 << 30 else 3):
            run(x)
    elif "fft" in case:
        run = fastest(x, [TRANSFORMS[name](case, step) for step in steps(x)])
    else:
        run = fastest(x, [MAPS[name](function, step) for step in steps(x)])
    result: list[np.ndarray] = []

    def repetition() -> None:
        result[:] = [run(x)]

    def error() -> float:
        want = function(x[-1:])
        return float(np.abs(result[0][-1:] - want).max() / np.abs(want).max())

    return Subject({name: repetition}, error, MAX_ERROR)


def problem(case: str) -> tuple[np.ndarray, Function]:
    generator = np.random.default_rng(1)
    words = case.split()
    if words[0] == "sqrt":
        count = int(words[2]) << (27 if words[3] == "GiB" else 17)
        return generator.random(count), lambda x: np.sqrt(x) * 2
    if words[0] == "gaussian":
        from scipy.ndimage import gaussian_filter

        images = generator.random((int(words[2]), 1000, 1000), dtype="float32")
        return images, lambda x: gaussian_filter(x, (0, 2, 2))
    import scipy.fft

    shape = tuple(map(int, words[1].split("x")))
    x = generator.standard_normal(shape).astype(words[2])
    if words[2].startswith("complex"):
        x += 1j * generator.standard_normal(shape)
    return x, lambda x: getattr(scipy.fft, words[0])(x, **axes(case))


def axes(case: str) -> dict[str, Any]:
    """Keywords of a transform of all units: all axes but the first."""
    name, shape = case.split()[:2]
    return {} if name == "rfft" else {"axes": tuple(range(1, shape.count("x") + 1))}


def steps(x: np.ndarray) -> list[int]:
    """Units of blocks to try."""
    unit = x.nbytes // len(x)
    return sorted({min(len(x), max(1, block // unit)) for block in BLOCKS})


def fastest(x: np.ndarray, runs: list[Function]) -> Function:
    """Return the fastest of `runs`, by their second calls."""
    seconds = []
    for run in runs:
        run(x)
        begun = time.perf_counter()
        run(x)
        seconds.append(time.perf_counter() - begun)
    return runs[seconds.index(min(seconds))]


def ours(case: str, function: Function) -> Function:
    import hetsched
    from hetsched import fft

    if "fft" in case:
        name = case.split(maxsplit=1)[0]
        return lambda x: getattr(fft, name)(x, **axes(case))
    return lambda x: hetsched.map(function, x)


# ---- peers: of a function for blocks of `step` units


def threads(function: Function, step: int) -> Function:
    pool = ThreadPoolExecutor(machine.cores())

    def run(x: np.ndarray) -> np.ndarray:
        first = function(x[:1])
        out = np.empty((len(x), *first.shape[1:]), first.dtype)

        def block(low: int) -> None:
            out[low : low + step] = function(x[low : low + step])

        list(pool.map(block, range(0, len(x), step)))
        return out

    return run


def joblib(function: Function, step: int, backend: str = "threading") -> Function:
    from joblib import Parallel, delayed

    def run(x: np.ndarray) -> np.ndarray:
        blocks = (x[low : low + step] for low in range(0, len(x), step))
        jobs = Parallel(machine.cores(), backend=backend)
        return np.concatenate(jobs(delayed(function)(block) for block in blocks))

    return run


def dask(function: Function, step: int) -> Function:
    import dask.array

    def run(x: np.ndarray) -> np.ndarray:
        stored = dask.array.from_array(x, chunks=(step, *x.shape[1:]))
        meta = np.empty((0,) * x.ndim, function(x[:1]).dtype)
        blocks = stored.map_blocks(function, meta=meta)
        found: np.ndarray = blocks.compute(scheduler="threads", num_workers=machine.cores())
        return found

    return run


MAPS: dict[str, Callable[[Function, int], Function]] = {
    "threads": threads,
    "joblib": joblib,
    "joblib's processes": functools.partial(joblib, backend="loky"),
    "dask": dask,
}


def scipy_workers(case: str, step: int) -> Function:
    import scipy.fft

    name, workers = case.split(maxsplit=1)[0], machine.cores()
    return lambda x: getattr(scipy.fft, name)(x, workers=workers, **axes(case))


def scipy_threads(case: str, step: int) -> Function:
    import scipy.fft

    name = case.split(maxsplit=1)[0]
    return threads(lambda x: getattr(scipy.fft, name)(x, **axes(case)), step)


def ducc(case: str, step: int, workers: int | None = None) -> Function:
    import ducc0

    function = ducc0.fft.r2c if case.startswith("r") else ducc0.fft.c2c
    along = tuple(range(1, case.split()[1].count("x") + 1))
    return lambda x: function(x, axes=along, nthreads=workers or machine.cores())


def ducc_threads(case: str, step: int) -> Function:
    return threads(ducc(case, step, 1), step)


TRANSFORMS: dict[str, Callable[[str, int], Function]] = {
    "scipy": scipy_workers,
    "scipy by blocks": scipy_threads,
    "ducc0": ducc,
    "ducc0 by blocks": ducc_threads,
}


def row(case: str, found: Found, facts: dict[str, str]) -> tuple[str, ...]:
    peer = contest.fastest(found, [*MAPS, *TRANSFORMS])
    mine, best = found[OURS], found[peer]
    return case, milliseconds(mine), milliseconds(best), peer, ratio(best, mine)
