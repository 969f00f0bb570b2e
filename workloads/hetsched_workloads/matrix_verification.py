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

TOLERANCE_FACTOR = 64.0
DOUBLE_FACTOR = 32.0
BLOCK_BYTES = 1 << 22
"""Bytes of a block of B in double precision."""
SAMPLED_ROWS = 64
"""Rows of C and A sampled for the typical size of a column. Arbitrary."""


def reference(old: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compute one row of C + A B in the next wider precision, without BLAS for float64."""
    wide = np.longdouble if old.dtype == np.float64 else np.float64
    total = old.astype(wide)
    for rows in _blocks(b):
        total = total + a[rows].astype(wide) @ b[rows].astype(wide)
    return total


def scale(old: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return |c0| + |a| rms(column of B) per column: sqrt(inner) times that bounds the terms."""
    with np.errstate(all="ignore"):
        length = float(np.linalg.norm(a.astype(np.float64)))
        terms: np.ndarray = np.abs(old.astype(np.float64)) + length * _column_rms(b)
    return terms


def residual(inputs: Arrays, new: np.ndarray, seed: int) -> np.ndarray:
    """Check every row, (rows,) float64; see the module."""
    b, info = inputs["B"], np.finfo(new.dtype)
    old, a, c = (array.astype(np.float64) for array in (inputs["C"], inputs["A"], new))
    inner, cols = b.shape
    eps, tiny = float(info.eps) / 2, float(info.smallest_normal)
    signs = np.random.Generator(np.random.Philox(seed % 2**64)).choice((-1.0, 1.0), cols)
    with np.errstate(all="ignore"):
        rms = _column_rms(b)
        # Where values underflow, eps doesn't measure rounding; `floor` stays below it for these.
        sizes = np.maximum(_column_sizes(old, a, rms), tiny * inner / eps)
        weights = signs / sizes
        b_weighted = np.concatenate([b[rows].astype(np.float64) @ weights for rows in _blocks(b)])
        lengths = np.linalg.norm(a, axis=1) * np.sqrt(inner * np.square(rms / sizes).mean())
        size = np.sqrt(np.square(old / sizes).mean(axis=1)) + lengths
        unit = eps * (DOUBLE_FACTOR if new.dtype == np.float64 else 1)
        floor = tiny * inner * float((1 / sizes).sum())
        allowed = TOLERANCE_FACTOR * unit * np.sqrt(cols) * size + floor
        ratio: np.ndarray = np.abs(c @ weights - (old @ weights + a @ b_weighted)) / allowed
    finite_old, finite_a, finite_new = (np.isfinite(each).all(axis=1) for each in (old, a, c))
    ratio[~(np.isfinite(ratio) & np.isfinite(allowed) & finite_new)] = np.inf
    finite_b = np.isfinite(b_weighted).all() or np.isfinite(b).all()
    may_be = finite_old & finite_a & bool(finite_b)
    return np.where(may_be, ratio, np.where(finite_new, np.inf, 0.0))


def _column_sizes(old: np.ndarray, a: np.ndarray, b_rms: np.ndarray) -> np.ndarray:
    """Return the typical size of C's columns, (cols,) > 0, by medians, robust to single odd rows.

    A column of zeros counts as the smallest of the others: any value in it is wrong.
    """
    step = -(-len(old) // SAMPLED_ROWS)
    sample, lengths = np.abs(_finite(old[::step])), np.linalg.norm(_finite(a[::step]), axis=1)
    sizes = np.median(sample, axis=0) + np.median(lengths) * b_rms
    is_size = np.isfinite(sizes) & (sizes > 0)
    smallest = float(sizes[is_size].min()) if is_size.any() else 1.0
    return np.where(is_size, sizes, smallest)


def _column_rms(b: np.ndarray) -> np.ndarray:
    """Return the rms of each column's finite values, (cols,) float64."""
    squares = sum(np.square(b[rows], dtype=np.float64).sum(axis=0) for rows in _blocks(b))
    if not np.isfinite(squares).all():
        squares = np.square(_finite(b)).sum(axis=0)
    return np.asarray(np.sqrt(squares / len(b)))


def _finite(matrix: np.ndarray) -> np.ndarray:
    """Return `matrix` in double precision, with 0 for non-finite values."""
    return np.where(np.isfinite(matrix), matrix, 0).astype(np.float64)


def _blocks(b: np.ndarray) -> Iterator[slice]:
    step = max(1, BLOCK_BYTES // (8 * b.shape[1]))
    for first in range(0, len(b), step):
        yield slice(first, first + step)
