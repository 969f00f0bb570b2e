"""A job over two hosts against plain Dask on the same workers: python -m benchmarks.hosts.

Each host has one core. Dask has equal chunks, of the number that is fastest for it, and computes
with the same function; in files its tasks read and write their own rows. The two take turns within
one run, so that only ratios count. "Half speed": a program competes for one host's core.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import scipy.ndimage
from distributed import Client, LocalCluster

import hetsched
from benchmarks.functions import busy_core
from benchmarks.serving import places

CHUNKS = (2, 4, 8, 16, 32, 64)
"""Of the whole load; Dask keeps the fastest number."""
LEARNING_RUNS = 4
COLUMNS = "| case | hetsched, s | Dask, s | its chunks | speed against it (quartiles) |"

Run = Callable[[], Any]


def blur(block: np.ndarray, sigma: float) -> np.ndarray:
    """Filter each image of a block."""
    return scipy.ndimage.gaussian_filter(block, (0, sigma, sigma))


def blur_rows(source: str, target: str, sigma: float, block_info: Any) -> np.ndarray:
    """Do so from file to file, as one of Dask's tasks."""
    (first, end), *_ = block_info[None]["array-location"]
    images = np.load(source, mmap_mode="r")[first:end]
    np.load(target, mmap_mode="r+")[first:end] = blur(images, sigma)
    return np.zeros(end - first, np.int8)


def wait(block: np.ndarray, seconds: float) -> np.ndarray:
    """Take so long for each row."""
    time.sleep(seconds * len(block))
    return block


def in_memory(client: Any, x: np.ndarray, sigma: float) -> tuple[Run, Callable[[int], Run]]:
    def dasks(chunks: int) -> Run:
        array = dask.array.from_array(x, chunks=(-(-len(x) // chunks), *x.shape[1:]))
        return lambda: array.map_blocks(blur, sigma, dtype=x.dtype).compute()

    return lambda: client.map("benchmarks.hosts:blur", x, sigma=sigma), dasks


def in_files(
    client: Any, x: np.ndarray, sigma: float, folder: Path
) -> tuple[Run, Callable[[int], Run]]:
    source, target = folder / "x.npy", folder / "y.npy"
    np.save(source, x)

    def dasks(chunks: int) -> Run:
        size = -(-len(x) // chunks)
        sizes = tuple(min(size, len(x) - first) for first in range(0, len(x), size))

        def run() -> np.ndarray:
            np.lib.format.open_memmap(target, "w+", x.dtype, x.shape).flush()
            dask.array.map_blocks(
                blur_rows, str(source), str(target), sigma, chunks=(sizes,), dtype=np.int8
            ).compute()
            return np.load(target, mmap_mode="r")

        return run

    def ours() -> np.ndarray:
        target.unlink(missing_ok=True)
        client.map("benchmarks.hosts:blur", source, out=target, sigma=sigma)
        return np.load(target, mmap_mode="r")

    return ours, dasks


@contextmanager
def hosts() -> Iterator[tuple[Any, Any]]:
    """Two hosts with a core each: clients of hetsched and of Dask."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as plain,
    ):
        for worker, core in zip(plain.scheduler_info()["workers"], cores, strict=True):
            plain.run(os.sched_setaffinity, 0, {core}, workers=[worker])
        with hetsched.Client(cluster=cluster.scheduler_address) as client:
            client.wait_for_hosts(2)
            yield client, plain


def seconds(run: Run, expected: np.ndarray) -> float:
    began = time.perf_counter()
    result = run()
    taken = time.perf_counter() - began
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    return taken


def compare(
    name: str, ours: Run, dasks: Callable[[int], Run], expected: np.ndarray, rounds: int
) -> None:
    chunks = min(CHUNKS, key=lambda n: min(seconds(dasks(n), expected) for _ in range(2)))
    theirs = dasks(chunks)
    for _ in range(LEARNING_RUNS):
        seconds(ours, expected)
    times = [(seconds(ours, expected), seconds(theirs, expected)) for _ in range(rounds)]
    ratios = [their / our for our, their in times]
    low, middle, high = statistics.quantiles(ratios, n=4)
    mine, dask_s = (statistics.median(column) for column in zip(*times, strict=True))
    speed = f"{middle:.2f} ({low:.2f} to {high:.2f})"
    print(f"| {name} | {mine:.3f} | {dask_s:.3f} | {chunks} | {speed} |", flush=True)


def control(count: int, address: str) -> None:
    """Print the processor time of the client during a job of half a minute."""
    if not address:  # the scheduler's own time doesn't count: it is in this process
        with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
            cluster.scale(count)
            words = ["--control", str(count), "--address", cluster.scheduler_address]
            subprocess.run([sys.executable, "-m", "benchmarks.hosts", *words], check=True)
        return
    with hetsched.Client(cluster=address, timeout=300) as client:
        client.wait_for_hosts(count, timeout=300)
        rows = np.zeros((count * 3000, 8), np.float32)
        one = "cpu0"  # more would be processes, of all hosts on this machine
        for name, run in (
            ("idle", lambda: time.sleep(30)),
            (
                "a job",
                lambda: client.map("benchmarks.hosts:wait", rows, devices=one, seconds=0.01),
            ),
        ):
            began, used = time.perf_counter(), time.process_time()
            run()
            wall = time.perf_counter() - began
            share = (time.process_time() - used) / wall
            print(f"{count} hosts, {name} of {wall:.1f} s: {share:.2%} of a core", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hosts")
    parser.add_argument("--images", type=int, default=240, help="512x512 float32 [%(default)s]")
    parser.add_argument("--sigma", type=float, default=4.0, help="of the filter [%(default)s]")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--control", type=int, metavar="HOSTS")
    parser.add_argument("--address", default="", help="of a scheduler, with --control")
    given = parser.parse_args()
    if given.control:
        control(given.control, given.address)
        return
    x = np.random.default_rng(0).random((given.images, 512, 512), np.float32)
    expected = blur(x, given.sigma)
    print(COLUMNS)
    print("|---|---|---|---|---|")
    with hosts() as (client, _), tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        for speed, load in (("equal hosts", nullcontext), ("one at half speed", busy_core)):
            for where, runs in (
                ("in memory", in_memory(client, x, given.sigma)),
                ("in a shared file", in_files(client, x, given.sigma, Path(folder))),
            ):
                with load():
                    compare(f"{speed}, {where}", *runs, expected, given.rounds)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="hs-") as state, places(state):
        main()
