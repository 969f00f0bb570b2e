"""Sparse matrices of SciPy, in any format, become the arrays of their sorted rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from hetsched.errors import DataError, UsageError
from hetsched.sparse import sparse_arrays


def dense(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random((9, 9)) < 0.3, rng.standard_normal((9, 9)), 0) + np.eye(9)


def as_matrix(arrays: Any) -> Any:
    return scipy.sparse.csr_array(
        tuple(arrays[f"A.{part}"] for part in ("data", "indices", "indptr"))
    )


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "bsr", "dia", "dok", "lil"])
@pytest.mark.parametrize("make", [scipy.sparse.csr_array, scipy.sparse.csr_matrix])
def test_every_format_gives_the_same_rows(format: str, make: Any) -> None:
    matrix = make(dense(1)).asformat(format)

    assert hasattr(matrix, "tocsr")
    assert np.array_equal(as_matrix(sparse_arrays("A", matrix)).toarray(), dense(1))


def test_unsorted_rows_with_duplicates_are_put_in_order_in_a_copy() -> None:
    matrix = scipy.sparse.csr_array(
        (np.array([3.0, 1.0, 1.0, 5.0, 7.0]), [2, 0, 0, 1, 2], [0, 3, 4, 5]), shape=(3, 3)
    )

    arrays = sparse_arrays("A", matrix)

    assert arrays["A.indices"].tolist() == [0, 2, 1, 2]
    assert arrays["A.data"].tolist() == [2, 3, 5, 7]
    assert matrix.indices.tolist() == [2, 0, 0, 1, 2]


@pytest.mark.parametrize(
    ("given", "computed"),
    [("int64", "float64"), ("bool", "float64"), ("float32", "float32"), (">f8", "float64")],
)
def test_values_get_a_dtype_to_compute_with(given: str, computed: str) -> None:
    matrix = scipy.sparse.csr_array(np.eye(4))
    matrix.data = matrix.data.astype(given)

    arrays = sparse_arrays("A", matrix)

    assert {name: array.dtype.name for name, array in arrays.items()} == {
        "A.data": computed,
        "A.indices": "int32",
        "A.indptr": "int32",
    }


def broken() -> Any:
    matrix = scipy.sparse.csr_array(np.eye(3))
    matrix.indices[1] = 7
    return matrix


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (scipy.sparse.csr_array((3, 4)), "input A is a sparse matrix of 3x4; it must be square"),
        (scipy.sparse.csr_array((3, 3)), "input A is a sparse matrix without entries"),
        (broken(), "input A is not a valid sparse matrix: .*indices"),
    ],
)
def test_matrices_that_no_solver_can_use_or_without_a_name_are_refused(
    matrix: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        sparse_arrays("A", matrix)
    with pytest.raises(UsageError, match=r'give the sparse matrix its name, such as \{"A": A\}'):
        sparse_arrays("", matrix)
