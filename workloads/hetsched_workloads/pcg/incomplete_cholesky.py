"""Incomplete Cholesky factors, without fill, of the diagonal blocks of a matrix.

M = (D + W) D^-1 (D + W^T), with W strictly lower triangular and as sparse as A in each block:

    w_ik = a_ik - sum over j < k of w_ij w_kj / d_j,    d_i = a_ii - sum over k of w_ik^2 / d_k

which is IC(0) (Meijerink and van der Vorst, Math. Comp. 31, 1977) without square roots. SciPy has
no incomplete Cholesky (its `spilu` isn't symmetric), so rows are computed level by level: those of
a level depend on earlier levels only (Saad, section 11.6.3), and all blocks advance together. A
level costs a call of a compiled loop in each solve, so blocks with long chains of dependent rows,
such as tridiagonal ones, are slow; `numba_cholesky` has no such costs.

If a pivot isn't positive, the block is factorised again with a larger diagonal (Manteuffel, Math.
Comp. 34, 1980). Values are those of the natural order of rows, whatever blocks are computed
together, so they don't depend on the split.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse

from hetsched.errors import DataError
from hetsched_workloads.pcg.csr import entry_rows

MIN_PIVOT = 1e-6
"""Least pivot over the diagonal element. Arbitrary."""
FIRST_SHIFT = 1e-3
SHIFT_GROWTH = 10.0
MAX_SHIFT = 1e9
"""Larger ones don't help. A positive definite matrix needs less than the rows of a block: then its
diagonal dominates."""


@dataclass(frozen=True)
class Triangle:
    """The strictly lower triangle W of diagonal blocks, in the order of levels.

    Attributes
    ----------
    order : (rows,) int
        Row (0: the first of the blocks) at each place.
    bounds : (levels + 1,) int
        The places of each level.
    pointers, columns, values : CSR of W, by places
    diagonal : (rows,) float64
        Of A, by places.
    block : (rows,) int
        Number of the block, by places.
    """

    order: np.ndarray
    bounds: np.ndarray
    pointers: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    diagonal: np.ndarray
    block: np.ndarray


def triangle(
    pointers: np.ndarray, columns: np.ndarray, values: np.ndarray, first: int, block: int
) -> Triangle:
    """Extract the blocks of some rows and find their levels.

    Parameters
    ----------
    pointers : (rows + 1,) int
        Of these rows; `columns` and `values` are those of the whole matrix.
    first : int
        The first row; a block that begins before it or ends after the last row is cut.
    """
    count = len(pointers) - 1
    part = slice(int(pointers[0]), int(pointers[-1]))
    row_of, own = entry_rows(np, pointers), columns[part].astype(np.int64) - first
    # Blocks are those of the whole matrix.
    lower = (own < row_of) & (own >= 0) & ((own + first) // block == (row_of + first) // block)
    diagonal = np.zeros(count)
    diagonal[row_of[own == row_of]] = values[part][own == row_of]
    row_of, own = row_of[lower], own[lower]
    shape = (count, count)
    matrix = scipy.sparse.csr_array((values[part][lower].astype(float), (row_of, own)), shape)
    order, bounds = _levels(matrix)
    place = np.empty(count, np.int32)
    place[order] = np.arange(count, dtype=np.int32)
    ordered = matrix[order]
    pointers, columns = ordered.indptr.astype(np.int32), place[ordered.indices]
    sorted_rows = scipy.sparse.csr_array((ordered.data, columns, pointers), shape)
    sorted_rows.sort_indices()
    return Triangle(
        order=order,
        bounds=bounds,
        pointers=sorted_rows.indptr,
        columns=sorted_rows.indices,
        values=sorted_rows.data,
        diagonal=diagonal[order],
        block=(order + first) // block,
    )


def _levels(lower: scipy.sparse.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows level by level, in their order within each, and the levels' bounds."""
    waiting = np.diff(lower.indptr)
    dependent = lower.T.tocsr()
    level = np.flatnonzero(waiting == 0)
    levels = [level]
    while True:
        starts = dependent.indptr[level]
        counts = dependent.indptr[level + 1] - starts
        rows = dependent.indices[_ranges(starts, counts)]
        np.subtract.at(waiting, rows, 1)
        level = np.unique(rows[waiting[rows] == 0])
        if not len(level):
            break
        levels.append(level)
    return np.concatenate(levels), np.cumsum([0, *map(len, levels)])


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the numbers from each start on, as many as its count, one range after the other."""
    offsets = np.cumsum(counts) - counts
    return np.repeat(starts - offsets, counts) + np.arange(counts.sum())


@dataclass(frozen=True)
class _Products:
    """The products w_ij w_kj / d_j to be subtracted from w_ik, as positions in W's values.

    Attributes
    ----------
    target, left, right : positions of w_ik, w_ij and w_kj
    bounds : mapping of level -> bounds of groups that can be computed together, in this order
    """

    target: np.ndarray
    left: np.ndarray
    right: np.ndarray
    bounds: dict[int, list[tuple[int, int]]]


def _products(w: Triangle) -> _Products:
    """Find the triples of rows j < k < i that are all connected."""
    count = len(w.order)
    row_of = entry_rows(np, w.pointers)
    before = np.arange(len(w.columns)) - w.pointers[row_of]
    target = np.repeat(np.arange(len(w.columns)), before)
    left = _ranges(w.pointers[row_of], before)
    keys = row_of.astype(np.int64) * count + w.columns
    wanted = w.columns[target].astype(np.int64) * count + w.columns[left]
    right = np.searchsorted(keys, wanted)
    exists = keys[np.minimum(right, len(keys) - 1)] == wanted if len(keys) else wanted == -1
    target, left, right = target[exists], left[exists], right[exists]
    level = np.searchsorted(w.bounds, row_of[target], side="right") - 1
    place = before[target]
    order = np.lexsort((place, level))
    level, place = level[order], place[order]
    starts = np.flatnonzero(np.diff(level, prepend=-1) | np.diff(place, prepend=-1))
    bounds: dict[int, list[tuple[int, int]]] = {}
    for start, stop in pairwise([*starts, len(order)]):
        bounds.setdefault(int(level[start]), []).append((int(start), int(stop)))
    return _Products(target[order], left[order], right[order], bounds)


def no_factors(block: int) -> DataError:
    """Return the error of a block that has no factors with any shift."""
    return DataError(
        f"A is not positive definite: its diagonal block {block} has no incomplete Cholesky"
        " factors"
    )


def factorise(w: Triangle) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of W and 1 / D, by places. Raises DataError if no shift is enough."""
    products = _products(w)
    shift = np.zeros(len(w.order))
    while True:
        values, pivots = _factorise(w, products, w.diagonal * (1 + shift))
        is_bad = ~(pivots > MIN_PIVOT * w.diagonal)
        if not is_bad.any():
            return values, 1 / pivots
        in_bad_block = np.isin(w.block, w.block[is_bad])
        if (shift[in_bad_block] > MAX_SHIFT).any():
            raise no_factors(int(w.block[is_bad][0]))
        shift[in_bad_block] = np.maximum(FIRST_SHIFT, SHIFT_GROWTH * shift[in_bad_block])


def _factorise(
    w: Triangle, products: _Products, diagonal: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of W and the pivots D; both are useless after a pivot that isn't > 0."""
    values, pivots = w.values.copy(), diagonal.copy()
    inverse = np.empty(len(pivots))
    row_of = entry_rows(np, w.pointers)
    with np.errstate(all="ignore"):
        for level, (first, stop) in enumerate(pairwise(w.bounds)):
            for start, end in products.bounds.get(level, ()):
                left, right = products.left[start:end], products.right[start:end]
                terms = values[left] * (values[right] * inverse[w.columns[left]])
                np.subtract.at(values, products.target[start:end], terms)
            own = slice(w.pointers[first], w.pointers[stop])
            terms = values[own] * (values[own] * inverse[w.columns[own]])
            pivots[first:stop] -= np.bincount(row_of[own] - first, terms, stop - first)
            inverse[first:stop] = 1 / pivots[first:stop]
    return values, pivots
