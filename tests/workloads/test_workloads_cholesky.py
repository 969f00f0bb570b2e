"""Incomplete Cholesky factors of blocks, against the textbook's loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hetsched_workloads.pcg.incomplete_cholesky import factorise, triangle
from hetsched_workloads.pcg.triangular_solves import BlockFactors, BlockSolver
from hypothesis import given
from hypothesis import strategies as st
from solver_cases import poisson, positive


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


def matrix_of(solver: BlockSolver) -> np.ndarray:
    """M^-1, from the solutions for unit vectors."""
    n = len(solver.rows)
    columns = np.empty((n, n), solver.factors.inverse_pivots.dtype)
    for column, unit in zip(columns, np.eye(n, dtype=columns.dtype), strict=True):
        solver.solve(unit, column)
    return columns.T


def solver_of(a: scipy.sparse.csr_array, block: int, first: int = 0) -> BlockSolver:
    factors = BlockFactors(a.indptr[first:], a.indices, a.data, first, block)
    return BlockSolver(factors, 0, a.shape[0] - first)


def dominant(n: int, seed: int) -> scipy.sparse.csr_array:
    rng = np.random.default_rng(seed)
    half = scipy.sparse.random_array((n, n), density=0.15, rng=rng)
    both = scipy.sparse.csr_array(half + half.T)
    a = scipy.sparse.csr_array(both + scipy.sparse.diags_array(both.sum(axis=1) + 0.1))
    a.sort_indices()
    return a


@given(n=st.integers(1, 40), seed=st.integers(0, 2**32), block=st.integers(1, 45))
def test_factors_are_those_of_the_textbook(n: int, seed: int, block: int) -> None:
    a = dominant(n, seed)
    factor = textbook(a.toarray(), block)

    inverse = matrix_of(solver_of(a, block))

    np.testing.assert_allclose(inverse @ factor @ factor.T, np.eye(n), atol=1e-12)


def test_a_full_block_is_solved_exactly() -> None:
    a = scipy.sparse.csr_array(np.exp(-np.abs(np.subtract.outer(range(30), range(30))) / 4))

    np.testing.assert_allclose(matrix_of(solver_of(a, 30)) @ a.toarray(), np.eye(30), atol=1e-11)


def test_levels_are_the_diagonals_of_a_grid() -> None:
    a, _ = poisson("5x9")

    blocks = triangle(a.indptr, a.indices, a.data, 0, 45)

    assert len(blocks.bounds) - 1 == 5 + 9 - 1
    assert sorted(blocks.order) == list(range(45))


@pytest.mark.parametrize("make", ["grid", "random"])
def test_no_bit_depends_on_what_is_computed_together(make: str) -> None:
    a = poisson("6x5x10")[0] if make == "grid" else positive(300, 4, 0.05)
    r = np.random.default_rng(0).standard_normal(300)
    whole, part, inner = np.empty(300), np.empty(180), np.empty(120)
    solver = solver_of(a, 60)

    solver.solve(r, whole)
    solver_of(a, 60, first=120).solve(r[120:], part)
    BlockSolver(solver.factors, 60, 180).solve(r[60:180], inner)

    np.testing.assert_array_equal(part, whole[120:])
    np.testing.assert_array_equal(inner, whole[60:180])


def test_large_groups_of_blocks_with_triangles_are_factorised_alike() -> None:
    line = scipy.sparse.diags_array([np.ones(249), np.ones(250), np.ones(249)], offsets=[-1, 0, 1])
    a = scipy.sparse.csr_array(10 * scipy.sparse.eye_array(62500) - scipy.sparse.kron(line, line))
    a.sort_indices()
    r = np.random.default_rng(0).standard_normal(62500)
    whole, last = np.empty(62500), np.empty(500)

    solver_of(a, 500).solve(r, whole)
    solver_of(a, 500, first=62000).solve(r[62000:], last)

    np.testing.assert_array_equal(last, whole[62000:])


def kershaw() -> scipy.sparse.csr_array:
    """Positive definite, but its incomplete factorisation meets a negative pivot.

    Kershaw, J. Comput. Phys. 26 (1978).
    """
    rows = [[3, -2, 0, 2], [-2, 3, -2, 0], [0, -2, 3, -2], [2, 0, -2, 3]]
    return scipy.sparse.csr_array(np.array(rows, float))


def test_a_negative_pivot_leads_to_a_larger_diagonal_of_its_block_only() -> None:
    a = scipy.sparse.csr_array(scipy.sparse.block_diag([kershaw(), dominant(4, 1)]))
    a.sort_indices()
    assert np.linalg.eigvalsh(a.toarray()).min() > 0
    with np.errstate(invalid="ignore"):
        assert np.isnan(textbook(kershaw().toarray(), 4)).any()

    inverse = matrix_of(solver_of(a, 4))

    assert np.linalg.eigvalsh((inverse + inverse.T) / 2).min() > 0
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-13)
    other = textbook(dominant(4, 1).toarray(), 4)
    np.testing.assert_allclose(inverse[4:, 4:] @ other @ other.T, np.eye(4), atol=1e-13)


def test_pivots_of_a_diagonal_matrix_are_its_elements() -> None:
    a = scipy.sparse.csr_array(scipy.sparse.diags_array([2.0, 4.0, 8.0]))

    values, inverse = factorise(triangle(a.indptr, a.indices, a.data, 0, 2))

    assert len(values) == 0
    np.testing.assert_array_equal(inverse, [0.5, 0.25, 0.125])


def test_single_precision_is_kept() -> None:
    a, b = poisson("4x4x4", "float32")
    z = np.empty_like(b)

    solver_of(a, 16).solve(b, z)

    wide = poisson("4x4x4")[0]
    expected = np.empty(64)
    solver_of(wide, 16).solve(b.astype(np.float64), expected)
    np.testing.assert_allclose(z, expected, rtol=1e-5, atol=1e-6)
