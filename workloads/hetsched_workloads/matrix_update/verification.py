"""The reference of a matrix update, and the check of every row.

The residual: with a random vector w of +1 and -1, row i must have c.w = c0.w + a.(B w)
(Freivalds), all in double precision. A wrong element shows in full, rounding errors as
sqrt(cols). The columns of C and B are first divided by their typical size (any weights are valid);
otherwise the rounding errors of a large column would hide errors in the others. Tolerance of a
row, of such columns: 64 eps sqrt(cols) (rms(c0) + sqrt(inner) |a| rms(B)), eps = 2**-24
or 2**-53: the error of a sum of `inner` products grows with the partial sums, about as eps
sqrt(inner) of the result for products of both signs, and for those of one sign at most as eps
sqrt(block), with the blocks that every BLAS works in; sqrt(inner) |a| rms(B) covers both.
In float64 the tolerance is 32 times that: the check itself computes in that precision.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hetsched.workload import Arrays
from hetsched_workloads import DTYPES

TOLERANCE_FACTOR = 64.0
DOUBLE_FACTOR = 32.0
BLOCK_BYTES = 1 << 22
"""Bytes of a block in double precision."""
SAMPLED_ROWS = 64
"""Rows of C and A sampled for the typical size of a column. Arbitrary."""


def reference(old: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compute one row of C + A B in the next wider precision, without BLAS for float64."""
    wide = np.longdouble if DTYPES[old.dtype.name].is_double else np.float64
    total = old.astype(wide)
    step = max(1, BLOCK_BYTES // (16 * max(1, b.shape[1])))
    for first in range(0, len(a), step):
        part = a[first : first + step].astype(wide) @ b[first : first + step].astype(wide)
        total = total + part
    return total


def scale(old: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return |c0| + |a| rms(column of B) per column: sqrt(inner) times that bounds the terms."""
    with np.errstate(all="ignore"):
        length = float(np.linalg.norm(a.astype(np.float64)))
        terms: np.ndarray = np.abs(old.astype(np.float64)) + length * _column_rms(b)
    return terms


def residual(inputs: Arrays, new: np.ndarray, seed: int) -> np.ndarray:
    """Check every row, (rows,) float64; see the module."""
    old, a, b = inputs["C"], inputs["A"], inputs["B"]
    inner, cols = b.shape
    signs = _signs(cols, seed)
    with np.errstate(all="ignore"):
        sizes = _column_sizes(old, a, b)
        bw, b_squares = _project(b, signs, sizes)
        b_rms = np.sqrt(b_squares.sum() / (inner * cols))
        projected, old_squares = _project(old, signs, sizes)
        product, a_squares = _project(a, bw)
        result, new_squares = _project(new, signs, sizes)
        size = np.sqrt(old_squares / cols) + np.sqrt(inner * a_squares) * b_rms
        floor = _tiny(old.dtype) * inner * float((1 / sizes).sum())
        unit = _eps(old.dtype) * (DOUBLE_FACTOR if DTYPES[old.dtype.name].is_double else 1)
        allowed = TOLERANCE_FACTOR * unit * np.sqrt(cols) * size + floor
        ratio: np.ndarray = np.abs(result - (projected + product)) / allowed
    ratio[~np.isfinite(ratio) | ~np.isfinite(allowed) | ~np.isfinite(new_squares)] = np.inf
    b_finite = bool(np.isfinite(b_squares.sum()) or np.isfinite(b).all())
    for row in np.flatnonzero(~np.isfinite(old_squares + a_squares + b_squares.sum())):
        if not (b_finite and np.isfinite(old[row]).all() and np.isfinite(a[row]).all()):
            ratio[row] = 0.0 if not np.isfinite(new[row]).all() else np.inf
    return ratio


def _eps(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).eps) / 2


def _signs(cols: int, seed: int) -> np.ndarray:
    bits = np.random.Generator(np.random.Philox(seed % 2**64)).integers(0, 2, cols)
    signs: np.ndarray = np.where(bits, 1.0, -1.0)
    return signs


def _tiny(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).smallest_normal)


def _column_sizes(old: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the typical size of C's columns, (cols,) > 0, by medians, robust to single odd rows.

    A column of zeros counts as the smallest of the others: any value in it is wrong.
    """
    step = -(-len(old) // SAMPLED_ROWS)
    sample, lengths = np.abs(_finite(old[::step])), np.linalg.norm(_finite(a[::step]), axis=1)
    sizes = np.median(sample, axis=0) + np.median(lengths) * _column_rms(b)
    positive = sizes[np.isfinite(sizes) & (sizes > 0)]
    smallest = float(positive.min()) if positive.size else 1.0
    sizes = np.where(np.isfinite(sizes) & (sizes > 0), sizes, smallest)
    # Where values underflow, eps doesn't measure rounding; `floor` stays below it for these.
    smallest_size = _tiny(old.dtype) * len(b) / _eps(old.dtype)
    return np.asarray(np.maximum(sizes, smallest_size))


def _column_rms(b: np.ndarray) -> np.ndarray:
    """Return the rms of each column's finite values, (cols,) float64."""
    squares = np.zeros(b.shape[1])
    for block in _double_blocks(b):
        squares += np.einsum("ij,ij->j", block, block)
    if not np.isfinite(squares).all():
        squares = np.square(_finite(b)).sum(axis=0)
    return np.asarray(np.sqrt(squares / len(b)))


def _finite(matrix: np.ndarray) -> np.ndarray:
    """Return `matrix` in double precision, with 0 for non-finite values."""
    return np.where(np.isfinite(matrix), matrix, 0).astype(np.float64)


def _double_blocks(matrix: np.ndarray) -> Iterator[np.ndarray]:
    """Yield blocks of rows in double precision."""
    step = max(1, BLOCK_BYTES // (8 * max(1, matrix.shape[1])))
    for first in range(0, len(matrix), step):
        yield matrix[first : first + step].astype(np.float64)


def _project(
    matrix: np.ndarray, vector: np.ndarray, sizes: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return (matrix @ vector, squares' sum of each row) in double, columns divided by `sizes`."""
    result, squares = np.empty(len(matrix)), np.empty(len(matrix))
    first = 0
    for block in _double_blocks(matrix):
        if sizes is not None:
            np.divide(block, sizes, out=block)
        rows = slice(first, first + len(block))
        result[rows] = block @ vector
        squares[rows] = np.einsum("ij,ij->i", block, block)
        first += len(block)
    return result, squares
