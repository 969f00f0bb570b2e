"""The stages of the conjugate gradient method as loops that numba compiles, by granules of rows.

Sums are in double precision. Only they may be computed in any order, which depends on the number
of a granule's rows and nothing else, so no bit depends on the split.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched_workloads.compiling import compiled
from hetsched_workloads.numba_prefetch import prefetch

AHEAD = 256
"""Nonzeros between what is computed and what is prefetched: 64 to 1024 are nearly as good."""
CHUNK = 512
"""Rows of a chunk: those of eight vectors fit into the first-level cache."""


@compiled()
def multiply(
    pointers: Any, columns: Any, values: Any, p: Any, q: Any, first: Any, granule: int, sums: Any
) -> None:
    """Write the rows of A p to q, and p.q of each granule to `sums`.

    Parameters
    ----------
    pointers : (count + 1,)
        Of own rows, as are `columns` and `values`; p is whole.
    first : uint64
        The first row. Indices are unsigned, since numba would test others for negative values.
    """
    unit, ahead = np.uint64(1), np.uint64(AHEAD)
    place = np.uint64(pointers[0])
    for part in range(len(sums)):
        total = 0.0
        for i in range(part * granule, min((part + 1) * granule, len(q))):
            row = np.uint64(i)
            end = np.uint64(pointers[row + unit])
            prefetch(values, place + ahead)
            prefetch(columns, place + ahead)
            product = values.dtype.type(0)
            while place < end:
                product += values[place] * p[np.uint64(columns[place])]
                place += unit
            q[row] = product
            total += np.float64(product) * p[first + row]
        sums[part] = total


@compiled()
def measure(
    r: Any, q: Any, weights: Any, alpha: Any, granule: int, squares: Any, weighted: Any
) -> None:
    """Write r.r and r.z of each granule, of r - alpha q and z = weights r.

    All are those of own rows.
    """
    for part in range(len(squares)):
        chunk = slice(part * granule, (part + 1) * granule)
        squares[part], weighted[part] = _weighted_squares(
            r[chunk], q[chunk], weights[chunk], alpha
        )


@compiled("nsz", "reassoc")
def _weighted_squares(r: Any, q: Any, weights: Any, alpha: Any) -> tuple[Any, Any]:
    squares, weighted = 0.0, 0.0
    for i in range(len(r)):
        value = np.float64(r[i] - alpha * q[i])
        squares += value * value
        weighted += value * value * weights[i]
    return squares, weighted


@compiled()
def direct(vectors: Any, weights: Any, alpha: Any, beta: Any, new: Any) -> None:
    """Write r - alpha q, x + alpha p and the next direction; see `measure`.

    Parameters
    ----------
    vectors, new : (r, q, x, p) and (r, x, p) of own rows
    """
    r, q, x, p = vectors
    new_r, new_x, new_p = new
    for first in range(0, len(r), CHUNK):
        chunk = slice(first, min(first + CHUNK, len(r)))
        _add_multiple(r[chunk], -alpha, q[chunk], new_r[chunk])
        _add_multiple(x[chunk], alpha, p[chunk], new_x[chunk])
        _add_weighted(weights[chunk], new_r[chunk], beta, p[chunk], new_p[chunk])


@compiled()
def _add_multiple(a: Any, factor: Any, b: Any, out: Any) -> None:
    for i in range(len(out)):
        out[i] = a[i] + factor * b[i]


@compiled()
def _add_weighted(weights: Any, a: Any, factor: Any, b: Any, out: Any) -> None:
    for i in range(len(out)):
        out[i] = weights[i] * a[i] + factor * b[i]
