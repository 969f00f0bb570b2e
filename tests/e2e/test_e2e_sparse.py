"""Sparse matrices from SciPy and from files, from end to end: one embedded engine, two cores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from cores import COUNT

import hetsched
from hetsched.config import parse
from hetsched.errors import DataError

RELAXATION = "sparse_workload:Relaxation"
CORES = f'[[device]]\nkind = "cpu"\ncount = {COUNT}\nhardware_threads = true\n'
N = 40


@pytest.fixture(scope="module")
def local() -> Iterator[hetsched.Local]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
        with hetsched.Local(parse(CORES, "test"), learn=False) as local:
            yield local


def system() -> tuple[Any, np.ndarray, np.ndarray]:
    """A, b and x of A x = b."""
    matrix = scipy.sparse.diags_array([-1.0, 4.0, -1.0], offsets=[-1, 0, 1], shape=(N, N))
    x = np.random.default_rng(3).standard_normal(N)
    return matrix.tocsr(), matrix @ x, x


def test_a_matrix_of_scipy_is_solved_with_progress_and_history(local: hetsched.Local) -> None:
    matrix, b, x = system()
    iterations: list[int | None] = []

    job = local.submit(RELAXATION, {"A": matrix.tocsc(), "b": b}, verify=True, balance="none")
    job.add_progress_callback(lambda state: iterations.append(state.iteration))
    result = job.result(60)

    assert np.allclose(result.x, x, atol=1e-9)
    assert result.converged and result.residual <= 1e-10
    assert len(result.residuals) == result.iterations
    assert list(result.residuals) == sorted(result.residuals, reverse=True)
    assert result.history.devices == ("cpu0", "cpu1")[:COUNT]
    assert iterations == sorted(set(iterations))


def test_matrix_market_and_vector_files_give_the_same(
    local: hetsched.Local, tmp_path: Path
) -> None:
    matrix, b, _ = system()
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix, symmetry="symmetric", precision=17)
    np.savez(tmp_path / "b.npz", b)

    files = {"A": tmp_path / "a.mtx", "b": tmp_path / "b.npz"}
    from_files = local.submit(RELAXATION, files, out=tmp_path / "x.npy", balance="none").result(60)
    from_memory = local.submit(RELAXATION, {"A": matrix, "b": b}, balance="none").result(60)

    assert from_files.iterations == from_memory.iterations
    assert np.array_equal(np.load(from_files.x, allow_pickle=False), from_memory.x)


def test_integers_in_a_matrix_and_in_a_vector_are_converted(local: hetsched.Local) -> None:
    matrix, _, _ = system()
    matrix.data = matrix.data.astype("int16")

    result = local.submit(RELAXATION, {"A": matrix, "b": np.ones(N, ">i4")}).result(60)

    assert np.allclose(matrix @ result.x, 1, atol=1e-9)


def test_a_broken_file_fails_the_job_with_one_line(local: hetsched.Local, tmp_path: Path) -> None:
    header = b"%%MatrixMarket matrix coordinate real general\n2 2 2\n"
    (tmp_path / "a.mtx").write_bytes(header + b"1 1 2.0\n5 2 2.0\n")

    with pytest.raises(
        DataError, match=r"^\S*a.mtx: broken Matrix Market file: Line 4: Row index"
    ):
        local.submit(RELAXATION, {"A": tmp_path / "a.mtx", "b": np.ones(2)}).result(60)
