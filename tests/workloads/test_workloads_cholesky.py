from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from solver_cases import dominant, poisson

from hetsched.errors import DataError

pytest.importorskip("numba")

from hetsched_workloads.pcg.cholesky import RowFactors


def textbook(a: np.ndarray, block: int) -> np.ndarray:
    """L of IC(0) of the diagonal blocks: Saad, algorithm 10.4's symmetric form."""
    n = len(a)
    blocks = np.arange(n) // block
    pattern = (a != 0) & (blocks[:, None] == blocks)
    l = np.zeros_like(a)  # noqa: E741 - the factor's name
    for i in range(n):
        for k in range(i):
            if pattern[i, k]:
                l[i, k] = (a[i, k] - l[i, :k] @ l[k, :k]) / l[k, k]
        l[i, i] = np.sqrt(a[i, i] - l[i, :i] @ l[i, :i])
    return l


def solve(factors: RowFactors, r: np.ndarray) -> np.ndarray:
    z = np.empty_like(r)
    factors.solve(r, z)
    return z


def matrix_of(factors: RowFactors) -> np.ndarray:
    """M^-1, from the solutions for unit vectors."""
    return np.array([solve(factors, unit) for unit in np.eye(len(factors.inverse))]).T


def factors_of(a: scipy.sparse.csr_array, block: int) -> RowFactors:
    return RowFactors(a.indptr, a.indices, a.data, 0, block)


@given(n=st.integers(1, 40), seed=st.integers(0, 2**32), block=st.integers(1, 45))
def test_factors_are_those_of_the_textbook(n: int, seed: int, block: int) -> None:
    a = dominant(n, seed)[0]
    factor = textbook(a.toarray(), block)

    inverse = matrix_of(factors_of(a, block))

    np.testing.assert_allclose(inverse @ factor @ factor.T, np.eye(n), atol=1e-12)


def kershaw() -> scipy.sparse.csr_array:
    """Positive definite, but its incomplete factorisation meets a negative pivot.

    Kershaw, J. Comput. Phys. 26 (1978).
    """
    rows = [[3, -2, 0, 2], [-2, 3, -2, 0], [0, -2, 3, -2], [2, 0, -2, 3]]
    return scipy.sparse.csr_array(np.array(rows, float))


def test_a_negative_pivot_leads_to_a_larger_diagonal_of_its_block_only() -> None:
    a = scipy.sparse.csr_array(scipy.sparse.block_diag([kershaw(), dominant(4, 1)[0]]))
    a.sort_indices()
    assert np.linalg.eigvalsh(a.toarray()).min() > 0
    with np.errstate(invalid="ignore"):
        assert np.isnan(textbook(kershaw().toarray(), 4)).any()

    inverse = matrix_of(factors_of(a, 4))

    assert np.linalg.eigvalsh((inverse + inverse.T) / 2).min() > 0
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-13)
    other = textbook(dominant(4, 1)[0].toarray(), 4)
    np.testing.assert_allclose(inverse[4:, 4:] @ other @ other.T, np.eye(4), atol=1e-13)


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_squares_of_elements_may_overflow(size: float) -> None:
    a, r = poisson("5x5x5")[0], np.ones(125)

    z = solve(factors_of(size * a, 25), r)

    np.testing.assert_allclose(z * size, solve(factors_of(a, 25), r), rtol=1e-9)


def test_a_block_without_factors_is_an_error() -> None:
    block = np.array([[1e-300, 1e150], [1e150, 1e-300]])
    a = scipy.sparse.csr_array(scipy.sparse.block_diag([np.eye(2), block]))
    a.sort_indices()

    with pytest.raises(DataError, match="not positive definite: its diagonal block 1"):
        factors_of(a, 2)
