"""Solvers and the matrix update through the daemon, against what a user would write.

The whole job, from submission to result; iterative ones to the same tolerance, or for as many
iterations.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import contest, solver_peers
from benchmarks.contest import OURS, Found, milliseconds, ratio
from benchmarks.contestant import Subject
from benchmarks.serving import daemon, report

TITLE = "Solvers and matrix update"
CASES = (
    "jacobi 8192", "pcg 100", "kmeans 1000000 float32", "kmeans 1000000 float64",
    "heat 4096x4096", "heat 256x256x256", "matrix_update 4096x4096x512 float32",
    "matrix_update 4096x4096x512 float64", "matrix_update 2048x8192x8192 float32",
    "matrix_update 2048x8192x8192 float64",
)  # fmt: skip
QUICK = (
    "jacobi 512", "pcg 20", "kmeans 100000 float32", "heat 512x512", "heat 64x64x64",
    "matrix_update 512x512x128 float32",
)  # fmt: skip
ROUNDS = 5
TOLERANCE = 1e-5
"""Of residuals, relative to the right side."""
CLUSTERS, DIMENSIONS, ITERATIONS = 64, 16, 20
HEAT_STEPS, DIFFUSION = 50, 0.45
DOMINANCE = 1.25
"""Of the diagonal over the sum of its row."""
COLUMNS = (
    "case", "iterations", "hetsched, ms", "ms per iteration", "peer", "its time, ms",
    "speed against it (quartiles)",
)  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """What a case computes. `peer` makes the peer's run; `error` is of the results of both.

    `outputs`: those of a job's outputs that the peer returns, too; () if the result is an array.
    """

    inputs: Mapping[str, np.ndarray]
    params: Mapping[str, Any]
    outputs: tuple[str, ...]
    peer: Callable[[], Callable[[], Any]]
    error: Callable[[Any], float]
    limit: float


def jacobi(n: str) -> Problem:
    rng = np.random.default_rng(1)
    a = rng.random((int(n), int(n)))
    np.fill_diagonal(a, DOMINANCE * a.sum(axis=1))
    b = rng.random(int(n))
    return _system({"A": a, "b": b}, a, b, solver_peers.numpy_jacobi)


def pcg(side: str) -> Problem:
    """The Laplacian with 7 points on a cube."""
    import scipy.sparse

    n, ones = int(side), np.ones(int(side))
    line = scipy.sparse.diags_array([-ones[1:], 2 * ones, -ones[1:]], offsets=[-1, 0, 1])
    plane = scipy.sparse.kronsum(line, line)
    a = scipy.sparse.csr_array(scipy.sparse.kronsum(plane, line))
    a.sort_indices()
    a.indices, a.indptr = a.indices.astype(np.int32), a.indptr.astype(np.int32)
    b = np.random.default_rng(1).standard_normal(n**3)
    inputs = {"A.data": a.data, "A.indices": a.indices, "A.indptr": a.indptr, "b": b}
    return _system(inputs, a, b, solver_peers.numba_cg)


def _system(inputs: Mapping[str, np.ndarray], a: Any, b: np.ndarray, peer: Any) -> Problem:
    def error(x: np.ndarray) -> float:
        return float(np.linalg.norm(b - a @ x) / np.linalg.norm(b))

    params = {"tolerance": TOLERANCE}
    return Problem(inputs, params, ("x",), lambda: peer(a, b, TOLERANCE), error, 1.1 * TOLERANCE)


def kmeans(count: str, dtype: str) -> Problem:
    """Normal points: many iterations are needed where there are no clusters."""
    points = np.random.default_rng(1).standard_normal((int(count), DIMENSIONS), dtype=dtype)
    start = points[:CLUSTERS].astype(np.float64)

    def error(result: Any) -> float:
        labels, centroids, inertia = result
        expected = np.square(points - centroids[labels], dtype=np.float64).sum()
        return float(abs(np.ravel(inertia)[0] / expected - 1))

    return Problem(
        {"points": points, "start": start},
        {"tolerance": 0.0, "max_iterations": ITERATIONS},
        ("labels", "centroids", "inertia"),
        lambda: solver_peers.sklearn_kmeans(points, start.astype(dtype), ITERATIONS),
        error, 1e-3,
    )  # fmt: skip


def heat(sides: str) -> Problem:
    initial = np.random.default_rng(1).random(tuple(map(int, sides.split("x"))))
    weight = DIFFUSION / initial.ndim

    def error(final: np.ndarray) -> float:
        """Compare with the exact solution in Fourier space."""
        factor = np.ones(initial.shape)
        for axis, size in enumerate(initial.shape):
            shape = [-1 if i == axis else 1 for i in range(initial.ndim)]
            angle = 2 * np.pi * np.arange(size) / size
            factor -= (weight * (2 - 2 * np.cos(angle))).reshape(shape)
        expected = np.fft.ifftn(np.fft.fftn(initial) * factor**HEAT_STEPS).real
        return float(np.abs(final - expected).max())

    return Problem(
        {"initial": initial}, {"steps": HEAT_STEPS}, ("final",),
        lambda: solver_peers.numba_heat(initial, weight, HEAT_STEPS), error, 1e-12,
    )  # fmt: skip


def matrix_update(sizes: str, dtype: str) -> Problem:
    rows, cols, inner = map(int, sizes.split("x"))
    rng = np.random.default_rng(1)
    shapes = ((rows, cols), (rows, inner), (inner, cols))
    c, a, b = (rng.standard_normal(shape, dtype=dtype) for shape in shapes)

    def error(result: np.ndarray) -> float:
        """Compare the last row in double precision."""
        want = c[-1] + a[-1].astype("float64") @ b.astype("float64")
        return float(np.abs(result[-1] - want).max() / np.abs(want).max())

    return Problem(
        {"C": c, "A": a, "B": b}, {}, (), lambda: solver_peers.numpy_update(c, a, b), error,
        1e-4 if dtype == "float32" else 1e-12,
    )  # fmt: skip


PROBLEMS: dict[str, tuple[Callable[..., Problem], str]] = {
    "jacobi": (jacobi, "NumPy"),
    "pcg": (pcg, "numba"),
    "kmeans": (kmeans, "scikit-learn"),
    "heat": (heat, "numba"),
    "matrix_update": (matrix_update, "NumPy"),
}
"""Workload -> what makes the problem, and who else solves it."""


def measure(case: str, rounds: int) -> contest.Benchmarks:
    with tempfile.TemporaryDirectory(prefix="hs-") as state:
        names = (OURS, PROBLEMS[case.split(maxsplit=1)[0]][1])
        contest.process(__name__, OURS, case, state)()  # learns, unless numba compiles
        return contest.race(
            case, {name: contest.process(__name__, name, case, state) for name in names}, rounds
        )


@contextmanager
def contestant(name: str, case: str, state: str) -> Iterator[Subject]:
    workload, *sizes = case.split()
    problem = PROBLEMS[workload][0](*sizes)
    result: Any = None

    def subject(solve: Callable[[], Any], facts: Callable[[], Mapping[str, float]]) -> Subject:
        def run() -> None:
            nonlocal result
            result = solve()

        return Subject({name: run}, lambda: problem.error(result), problem.limit, facts)

    if name != OURS:
        yield subject(problem.peer(), dict)
        return
    with daemon(folder=state) as served:
        arrays = {}
        for key, values in problem.inputs.items():
            arrays[key] = served.client.empty(values.shape, values.dtype.name)
            arrays[key][...] = values
        place = {}
        if workload == "matrix_update":
            place["out"] = served.client.empty(arrays["C"].shape, arrays["C"].dtype.name)
        job: Any = None

        def solve() -> Any:
            nonlocal job
            job = served.client.submit(workload, arrays, **place, **problem.params)
            found = job.result()
            outputs = [getattr(found, output) for output in problem.outputs]
            return outputs[0] if len(outputs) == 1 else outputs or found

        yield subject(solve, lambda: {"iterations": report(job).iterations or 1})


def row(case: str, found: Found, facts: Mapping[str, Any]) -> tuple[str, ...]:
    peer, iterations = PROBLEMS[case.split(maxsplit=1)[0]][1], facts["iterations"]
    ours, theirs = found[OURS], found[peer]
    each = [seconds / iterations for seconds in ours]
    return (
        case, str(iterations), milliseconds(ours), milliseconds(each), peer,
        milliseconds(theirs), ratio(theirs, ours),
    )  # fmt: skip
