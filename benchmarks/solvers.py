"""Solvers through the daemon, compared with what a user would write for one process.

Each problem is run by several fresh daemons and fresh processes of the peers, since where the
pages of a single process lie is luck; the contestants of such an instance take turns.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.bandwidth import copy_bandwidth
from benchmarks.children import Peers
from benchmarks.instances import INSTANCES
from benchmarks.paired import interleave
from benchmarks.results import Bar, Result
from benchmarks.serving import daemon, report
from benchmarks.solver_problems import Problem, heat, jacobi, kmeans, pcg
from benchmarks.stats import Ratio, Sample, milliseconds, quartiles, ratio

WARM_UP = 3
VERIFIED = ("jacobi", "pcg", "kmeans")
"""Workloads whose results are checked, once; the checks of the others take minutes."""
MIN_SPEED = 0.95
ROUNDS = 5
QUICK_ROUNDS = 3
OURS = "hetsched"
QUICK = (
    jacobi(512),
    pcg(20),
    kmeans(100_000, "float32", 10),
    heat((512, 512), 50),
    heat((64, 64, 64), 50),
)
FULL = (
    jacobi(8192),
    pcg(100),
    kmeans(1_000_000, "float32", 20),
    kmeans(1_000_000, "float64", 20),
    heat((4096, 4096), 50),
    heat((256, 256, 256), 50),
)


@dataclass(frozen=True)
class Measured:
    """What one instance measured: repetitions by contestant, and bytes per second of copying."""

    samples: Mapping[str, Sample]
    iterations: int
    copying: float


def measure(quick: bool) -> Result:
    columns = (
        "problem",
        "iterations",
        "hetsched, ms per iteration",
        "MB per iteration",
        "GB/s",
        "copying, GB/s",
        "best peer",
        "peer, ms per iteration",
        "speed against it",
    )
    result = Result("solvers", "Iterative solvers", columns)
    for problem in QUICK if quick else FULL:
        with tempfile.TemporaryDirectory(prefix="hs-") as folder:  # models last
            instances = [
                one_instance(
                    problem, folder, QUICK_ROUNDS if quick else ROUNDS, is_first=turn == 0
                )
                for turn in range(1 if quick else INSTANCES)
            ]
        add(result, problem, instances)
    values = [case["ratio"] for case in result.data]
    result.bars = [Bar("speed against the best peer, least of all", min(values), MIN_SPEED)]
    return result


def one_instance(problem: Problem, folder: str, rounds: int, *, is_first: bool) -> Measured:
    """Run a fresh daemon and fresh peers in turn; the first result is verified."""
    with daemon(folder=folder) as served:
        client = served.client
        arrays = {}
        for name, values in problem.inputs().items():
            arrays[name] = client.empty(values.shape, values.dtype.name)
            arrays[name][...] = values
        copying = copy_bandwidth()
        is_verified = is_first and problem.workload in VERIFIED
        job = client.submit(problem.workload, arrays or None, verify=is_verified, **problem.params)
        job.result()

        def run() -> float:
            nonlocal job
            start = time.perf_counter()
            job = client.submit(problem.workload, arrays or None, **problem.params)
            job.result()
            return time.perf_counter() - start

        for _ in range(WARM_UP):
            run()
        with Peers(problem.peers, settings(problem), problem.max_error) as peers:
            contestants = {OURS: run, **{peer.name: peer.run for peer in peers}}
            samples = interleave(contestants, rounds)
        iterations = report(job).iterations
        assert iterations is not None
        return Measured(samples, iterations, copying)


def settings(problem: Problem) -> dict[str, object]:
    """Return what the peers get."""
    return {**problem.case, "threads": len(os.sched_getaffinity(0))}


def add(result: Result, problem: Problem, instances: Sequence[Measured]) -> None:
    """Add medians over instances, and the ratio to the peer that is the fastest by them."""
    seconds = {
        name: statistics.median(instance.samples[name].median for instance in instances)
        for name in instances[0].samples
    }
    best = min((name for name in seconds if name != OURS), key=lambda name: seconds[name])
    speed = speed_against(best, instances)
    copying = statistics.median(instance.copying for instance in instances)
    iterations = instances[-1].iterations
    result.rows.append(
        (
            problem.name,
            str(iterations),
            milliseconds(seconds[OURS] / iterations),
            f"{problem.bytes_per_iteration / 1e6:.0f}",
            f"{problem.bytes_per_iteration * iterations / seconds[OURS] / 1e9:.1f}",
            f"{copying / 1e9:.1f}",
            best,
            milliseconds(seconds[best] / iterations),
            speed.text(),
        )
    )
    result.data.append(
        {
            "problem": problem.workload,
            **settings(problem),
            "iterations": iterations,
            "bytes_per_iteration": problem.bytes_per_iteration,
            "copied_bytes_per_second": copying,
            "seconds": {name: [i.samples[name].seconds for i in instances] for name in seconds},
            "ratio": speed.median,
        }
    )


def speed_against(peer: str, instances: Sequence[Measured]) -> Ratio:
    """Return how many times as fast as `peer` hetsched is: median and quartiles over instances."""
    ratios = sorted(
        ratio(instance.samples[peer].seconds, instance.samples[OURS].seconds).median
        for instance in instances
    )
    low, middle, high = quartiles(ratios)
    return Ratio(middle, low, high)
