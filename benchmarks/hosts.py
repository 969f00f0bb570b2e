"""A job over two hosts against plain Dask on the same workers.

Each host has one core. Dask has equal chunks, of the number that is fastest for it, and computes
with the same function; in files its tasks read and write their own rows. The two take turns within
one run, so that only ratios count. "Half speed": a program competes for one host's core.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import scipy.ndimage

import hetsched
from benchmarks import contest
from benchmarks.contest import OURS, Found, Measured, milliseconds, ratio
from benchmarks.functions import busy_core

TITLE = "Over two hosts"
CASES = tuple(
    f"240 images {where}, {speed}"
    for speed in ("equal hosts", "one at half speed")
    for where in ("in memory", "in a shared file")
)
QUICK = tuple(case.replace("240", "24") for case in CASES[:2])
ROUNDS = 7
SIGMA = 4.0
"""Of the filter, pixels of images of 512x512 float32."""
CHUNKS = (2, 4, 8, 16, 32, 64)
"""Of the whole load; Dask keeps the fastest number."""
LEARNING_RUNS = 4
COLUMNS = ("case", "hetsched, ms", "Dask, ms", "its chunks", "speed against it (quartiles)")

Run = Callable[[], Any]


def blur(block: np.ndarray) -> np.ndarray:
    """Filter each image of a block."""
    return scipy.ndimage.gaussian_filter(block, (0, SIGMA, SIGMA))


def blur_rows(source: str, target: str, block_info: Any) -> np.ndarray:
    """Do so from file to file, as one of Dask's tasks."""
    (first, end), *_ = block_info[None]["array-location"]
    images = np.load(source, mmap_mode="r")[first:end]
    np.load(target, mmap_mode="r+")[first:end] = blur(images)
    return np.zeros(end - first, np.int8)


def measure(case: str, rounds: int) -> contest.Benchmarks:
    x = np.random.default_rng(0).random((int(case.split(maxsplit=1)[0]), 512, 512), np.float32)
    expected = blur(x)

    def seconds(run: Run) -> float:
        began = time.perf_counter()
        result = run()
        taken = time.perf_counter() - began
        np.testing.assert_allclose(result, expected, rtol=1e-5)
        return taken

    with (
        two_hosts() as client,
        tempfile.TemporaryDirectory(dir=Path.home()) as folder,
        busy_core() if "half speed" in case else nullcontext(),
    ):
        ours, dasks = in_files(client, x, Path(folder)) if "file" in case else in_memory(client, x)
        chunks = min(CHUNKS, key=lambda n: min(seconds(dasks(n)) for _ in range(2)))
        theirs = dasks(chunks)
        for _ in range(LEARNING_RUNS):
            seconds(ours)
        contestants = {
            OURS: lambda: Measured({OURS: seconds(ours)}),
            "Dask": lambda: Measured({"Dask": seconds(theirs)}, {"chunks": chunks}),
        }
        return contest.race(case, contestants, rounds)


@contextmanager
def two_hosts() -> Iterator[Any]:
    """Start two workers with a core each, and be their client; Dask's own is the default one."""
    from distributed import Client, LocalCluster

    cores = sorted(os.sched_getaffinity(0))[:2]
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as plain,
    ):
        for worker, core in zip(plain.scheduler_info()["workers"], cores, strict=True):
            plain.run(os.sched_setaffinity, 0, {core}, workers=[worker])
        with hetsched.Client(cluster=cluster.scheduler_address) as client:
            client.wait_for_hosts(2)
            yield client


def in_memory(client: Any, x: np.ndarray) -> tuple[Run, Callable[[int], Run]]:
    import dask.array

    def dasks(chunks: int) -> Run:
        array = dask.array.from_array(x, chunks=(-(-len(x) // chunks), *x.shape[1:]))
        return lambda: array.map_blocks(blur, dtype=x.dtype).compute()

    return lambda: client.map("benchmarks.hosts:blur", x), dasks


def in_files(client: Any, x: np.ndarray, folder: Path) -> tuple[Run, Callable[[int], Run]]:
    import dask.array

    source, target = folder / "x.npy", folder / "y.npy"
    np.save(source, x)

    def dasks(chunks: int) -> Run:
        size = -(-len(x) // chunks)
        sizes = tuple(min(size, len(x) - first) for first in range(0, len(x), size))

        def run() -> np.ndarray:
            np.lib.format.open_memmap(target, "w+", x.dtype, x.shape).flush()
            dask.array.map_blocks(
                blur_rows, str(source), str(target), chunks=(sizes,), dtype=np.int8
            ).compute()
            return np.load(target, mmap_mode="r")

        return run

    def ours() -> np.ndarray:
        target.unlink(missing_ok=True)
        client.map("benchmarks.hosts:blur", source, out=target)
        return np.load(target, mmap_mode="r")

    return ours, dasks


def row(case: str, found: Found, facts: Any) -> tuple[str, ...]:
    mine, theirs = found[OURS], found["Dask"]
    times = milliseconds(mine), milliseconds(theirs)
    return case, *times, str(facts["chunks"]), ratio(theirs, mine)
