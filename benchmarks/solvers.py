"""Solvers through the daemon, compared with what a user would write for one process."""

from __future__ import annotations

import os
import time

import hetsched
from benchmarks.bandwidth import copy_bandwidth
from benchmarks.children import Peers
from benchmarks.paired import fastest, interleave
from benchmarks.results import Bar, Result
from benchmarks.serving import daemon, report
from benchmarks.solver_problems import Problem, heat, jacobi, kmeans, lbm, pcg
from benchmarks.stats import milliseconds, ratio

WARM_UP = 3
VERIFIED = ("jacobi", "pcg", "kmeans")
"""Workloads whose results are checked, once; the checks of the others take minutes."""
MIN_SPEED = 0.95
ROUNDS = 7
QUICK_ROUNDS = 3
QUICK = (
    jacobi(512),
    pcg(20),
    kmeans(100_000, "float32", 10),
    heat((512, 512), 50),
    heat((64, 64, 64), 50),
    lbm(128, 50),
)
FULL = (
    jacobi(8192),
    pcg(100),
    kmeans(1_000_000, "float32", 20),
    kmeans(1_000_000, "float64", 20),
    heat((4096, 4096), 50),
    heat((256, 256, 256), 50),
    lbm(1024, 50),
)


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
    with daemon() as served:
        for problem in QUICK if quick else FULL:
            one_problem(result, served.client, problem, QUICK_ROUNDS if quick else ROUNDS)
    values = [case["ratio"] for case in result.data]
    result.bars = [Bar("speed against the best peer, least of all", min(values), MIN_SPEED)]
    return result


def one_problem(result: Result, client: hetsched.Client, problem: Problem, rounds: int) -> None:
    case = {**problem.case, "threads": len(os.sched_getaffinity(0))}
    arrays = {}
    for name, values in problem.inputs().items():
        arrays[name] = client.empty(values.shape, values.dtype.name)
        arrays[name][...] = values
    copying = copy_bandwidth()
    is_verified = problem.workload in VERIFIED
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
    with Peers(problem.peers, case, problem.max_error) as peers:
        contestants = {"hetsched": run, **{peer.name: peer.run for peer in peers}}
        samples = interleave(contestants, rounds)
    iterations = report(job).iterations
    assert iterations is not None
    ours = samples.pop("hetsched")
    best = fastest(samples)
    speed = ratio(samples[best].seconds, ours.seconds)
    result.rows.append(
        (
            problem.name,
            str(iterations),
            milliseconds(ours.median / iterations),
            f"{problem.bytes_per_iteration / 1e6:.0f}",
            f"{problem.bytes_per_iteration * iterations / ours.median / 1e9:.1f}",
            f"{copying / 1e9:.1f}",
            best,
            milliseconds(samples[best].median / iterations),
            speed.text(),
        )
    )
    result.data.append(
        {
            "problem": problem.workload,
            **case,
            "iterations": iterations,
            "bytes_per_iteration": problem.bytes_per_iteration,
            "copied_bytes_per_second": copying,
            "seconds": {"hetsched": ours.seconds, **{n: s.seconds for n, s in samples.items()}},
            "ratio": speed.median,
        }
    )
