"""Matrices that conjugate gradients can't be used with end in one line that says why."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse
from solver_cases import CHOLESKY, parts, pcg, poisson

from hetsched.errors import DataError

A, B = poisson("4x5x6")
Matrix = dict[str, np.ndarray]


def row_start(row: int) -> int:
    return int(A.indptr[row])


def falling_pointer(m: Matrix) -> None:
    m["A.indptr"][50] = 10**9


def pointer_beyond_the_end(m: Matrix) -> None:
    m["A.indptr"][-1] += 1


def first_pointer(m: Matrix) -> None:
    m["A.indptr"][0] = 2


def negative_pointer(m: Matrix) -> None:
    m["A.indptr"][1:] -= 10**6


def column_out_of_range(m: Matrix) -> None:
    m["A.indices"][row_start(71) - 1] = 120


def negative_column(m: Matrix) -> None:
    m["A.indices"][row_start(70)] = -1


def unsorted_columns(m: Matrix) -> None:
    start = row_start(70)
    m["A.indices"][start : start + 2] = m["A.indices"][start : start + 2][::-1].copy()


def repeated_column(m: Matrix) -> None:
    start = row_start(70)
    m["A.indices"][start + 1] = m["A.indices"][start]


def nan(m: Matrix) -> None:
    m["A.data"][row_start(70)] = np.nan


def infinity(m: Matrix) -> None:
    m["A.data"][row_start(70)] = np.inf


def missing_diagonal(m: Matrix) -> None:
    part = slice(row_start(70), row_start(71))
    place = row_start(70) + int(np.flatnonzero(m["A.indices"][part] == 70)[0])
    m["A.data"][place] = 0


def negative_diagonal(m: Matrix) -> None:
    missing_diagonal(m)
    m["A.data"][m["A.data"] == 0] = -2


def asymmetric_value(m: Matrix) -> None:
    m["A.data"][row_start(70)] *= 1.001


CASES = [
    (falling_pointer, "A.indptr (falls after row 50|reaches from 0 to 1000000000)"),
    (pointer_beyond_the_end, "A.indptr reaches from .* A has 692 nonzeros"),
    (first_pointer, "A.indptr reaches from 2"),
    (negative_pointer, "A.indptr (falls after row 0|reaches from)"),
    (column_out_of_range, "row 70 of A has column 120, out of 0 to 119"),
    (negative_column, "row 70 of A has column -1"),
    (unsorted_columns, "row 70 of A is unsorted"),
    (repeated_column, "row 70 of A repeats column 40"),
    (nan, r"A\[70, 40\] is nan; A must be finite"),
    (infinity, r"A\[70, 40\] is inf"),
    (missing_diagonal, r"A\[70, 70\] is 0: a positive definite matrix has a positive diagonal"),
    (negative_diagonal, r"A\[70, 70\] is -2"),
    (asymmetric_value, "A is not symmetric"),
]


@pytest.mark.parametrize("split", [(120,), (50, 70)])
@pytest.mark.parametrize(("spoil", "words"), CASES)
def test_the_matrix_is_checked(
    spoil: Callable[[Matrix], None], words: str, split: tuple[int, ...]
) -> None:
    matrix = parts(A)
    spoil(matrix)

    with pytest.raises(DataError, match=words) as caught:
        pcg(matrix, B, split)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("preconditioner", ["none", "diagonal", CHOLESKY])
def test_an_indefinite_matrix_is_recognised(preconditioner: str) -> None:
    indefinite = scipy.sparse.csr_array(A - 3 * scipy.sparse.eye_array(120))

    with pytest.raises(DataError, match=r"A is not positive definite: p.Ap is -?\d"):
        pcg(indefinite, B, preconditioner=preconditioner)


def test_a_singular_matrix_with_no_solution_is_recognised() -> None:
    line = scipy.sparse.diags_array(
        [-np.ones(49), np.r_[1, 2 * np.ones(48), 1], -np.ones(49)], offsets=[-1, 0, 1]
    )

    with pytest.raises(DataError, match=r"not positive definite|A is singular, or nearly"):
        pcg(scipy.sparse.csr_array(line), np.ones(50))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("b", np.nan, r"b\[90\] is nan; b must be finite"),
        ("b", np.inf, r"b\[90\] is inf"),
        ("x0", np.nan, r"x0\[90\] is nan"),
        ("b", 1e200, "b is too large"),
    ],
)
def test_vectors_are_checked(name: str, value: float, words: str) -> None:
    vectors = {"b": B.copy(), "x0": np.zeros(120)}
    vectors[name][90] = value

    with pytest.raises(DataError, match=words):
        pcg(A, vectors["b"], (60, 60), x0=vectors["x0"])


def test_a_right_side_that_underflows_is_no_zero() -> None:
    with pytest.raises(DataError, match="b is too small"):
        pcg(A, B * 1e-200)


def test_rounding_does_not_make_a_matrix_asymmetric() -> None:
    rng = np.random.default_rng(3)
    a = A.copy()
    a.data *= 1 + 1e-15 * rng.standard_normal(a.nnz)

    assert pcg(a, B).converged
