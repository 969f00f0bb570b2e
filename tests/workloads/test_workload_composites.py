"""A sparse matrix is one input to users and three arrays to kernels."""

from __future__ import annotations

import pytest

from hetsched.errors import DataError
from hetsched.sparse import Shapes, SparseMatrix
from hetsched.workload.registry import find

MATRIX = SparseMatrix("A")
SHAPES: Shapes = {
    "A.data": ((7,), "float64"),
    "A.indices": ((7,), "int32"),
    "A.indptr": ((4,), "int32"),
}


def test_users_see_the_matrix_in_place_of_its_arrays() -> None:
    arrays = ("A.data", "A.indices", "A.indptr", "b")

    assert find("pcg").user_names(arrays) == ("A", "b")
    assert find("fft").user_names(arrays) == arrays


def test_complete_arrays_and_none_at_all_are_valid() -> None:
    MATRIX.check(SHAPES)
    MATRIX.check({"b": ((3,), "float64")})


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "message"),
    [
        ("A.data", (7, 1), "float64", "input A.data has 2 axes; it needs one"),
        ("A.data", (6,), "float64", "input A: 6 values in data, but 7 columns in indices"),
        ("A.indptr", (1,), "int32", "input A: indptr has 1 elements; at least 2"),
        ("A.indices", (7,), "float32", "input A.indices holds float32, not integers"),
    ],
)
def test_arrays_that_are_no_sparse_matrix_are_a_data_error(
    name: str, shape: tuple[int, ...], dtype: str, message: str
) -> None:
    with pytest.raises(DataError, match=f"^{message}$"):
        MATRIX.check({**SHAPES, name: (shape, dtype)})
