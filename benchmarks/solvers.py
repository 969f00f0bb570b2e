"""Solvers through the daemon, compared with what a user would write for one process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import hetsched
from benchmarks.children import Peers
from benchmarks.paired import fastest, interleave
from benchmarks.results import Bar, Result
from benchmarks.serving import daemon, report
from benchmarks.solver_systems import dense, poisson
from benchmarks.stats import milliseconds, ratio

WARM_UP = 3
MIN_SPEED = 0.95
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Problem:
    """One workload with its inputs, and its peers.

    Attributes
    ----------
    bytes_per_iteration : float
        What an iteration reads and writes at least, if nothing stays in a cache.
    """

    workload: str
    size: dict[str, Any]
    peers: tuple[str, ...]
    inputs: Callable[[], Mapping[str, np.ndarray]]
    bytes_per_iteration: float
    rounds: int


def jacobi(n: int, rounds: int) -> Problem:
    def inputs() -> Mapping[str, np.ndarray]:
        return dict(zip(("A", "b"), dense(n, "float64"), strict=True))

    return Problem("jacobi", {"n": n}, ("numpy_jacobi_peer",), inputs, 8.0 * n * n, rounds)


def pcg(side: int, rounds: int) -> Problem:
    def inputs() -> Mapping[str, np.ndarray]:
        a, b = poisson(side, "float64")
        return {"A.data": a.data, "A.indices": a.indices, "A.indptr": a.indptr, "b": b}

    n = side**3
    # The matrix; p and q; r, z and the diagonal; x, p and z: each written value is also read.
    traffic = (7 * 12 + 4) * n + 8 * n * (1 + 2 + 7 + 7)
    peers = ("numba_cg_peer", "scipy_cg_peer")
    return Problem("pcg", {"side": side}, peers, inputs, traffic, rounds)


def measure(quick: bool) -> Result:
    columns = (
        "problem",
        "iterations",
        "hetsched, ms per iteration",
        "GB/s",
        "best peer",
        "peer, ms per iteration",
        "speed against it",
    )
    result = Result("solvers", "Iterative solvers", columns)
    problems = (jacobi(512, 3), pcg(20, 3)) if quick else (jacobi(8192, 7), pcg(100, 7))
    with daemon() as served:
        for problem in problems:
            one_problem(result, served.client, problem)
    values = [case["ratio"] for case in result.data]
    result.bars = [Bar("speed against the best peer, least of all", min(values), MIN_SPEED)]
    return result


def one_problem(result: Result, client: hetsched.Client, problem: Problem) -> None:
    threads = len(os.sched_getaffinity(0))
    case = {**problem.size, "dtype": "float64", "threads": threads, "tolerance": TOLERANCE}
    arrays = {}
    for name, values in problem.inputs().items():
        arrays[name] = client.empty(values.shape, values.dtype.name)
        arrays[name][...] = values
    job = client.submit(problem.workload, arrays, tolerance=TOLERANCE)

    def run() -> float:
        nonlocal job
        start = time.perf_counter()
        job = client.submit(problem.workload, arrays, tolerance=TOLERANCE)
        job.result()
        return time.perf_counter() - start

    for _ in range(WARM_UP):
        run()
    with Peers(problem.peers, case, 1.1 * TOLERANCE) as peers:
        contestants = {"hetsched": run, **{peer.name: peer.run for peer in peers}}
        samples = interleave(contestants, problem.rounds)
    iterations = report(job).iterations
    assert iterations is not None
    ours = samples.pop("hetsched")
    best = fastest(samples)
    speed = ratio(samples[best].seconds, ours.seconds)
    result.rows.append(
        (
            f"{problem.workload} {problem.size}",
            str(iterations),
            milliseconds(ours.median / iterations),
            f"{problem.bytes_per_iteration * iterations / ours.median / 1e9:.1f}",
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
            "seconds": {"hetsched": ours.seconds, **{n: s.seconds for n, s in samples.items()}},
            "ratio": speed.median,
        }
    )
