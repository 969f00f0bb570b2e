"""Test data of `jacobi`, and the check of every row of the result.

Row i is right if |b - A x|_i, in double precision, is at most twice what the criterion allows for
the whole system, plus the rounding of a product with a rounded x, 64 eps (|b| + |A| |x|)_i.
The criterion `change` bounds the last step s: |b - A x| before it was |diag(A) s| / omega, and
is not larger after it if the method converges.
"""

from __future__ import annotations

import numpy as np

from hetsched.workload import Arrays, Rows
from hetsched.workload.streams import fill_uniform, unit_streams
from hetsched_workloads.jacobi.declaration import JacobiParams

SLACK = 2.0
ROUNDING = 64.0
DOMINANCE = 1.25
"""Diagonal of generated matrices over the sum of their rows: the error falls by 1.25 a step."""
BLOCK_BYTES = 1 << 22


def generate(seed: int, array: str, first: int, out: np.ndarray) -> None:
    """Fill `out`: positive rows of a diagonally dominant matrix, or a positive vector."""
    if array != "A":
        fill_uniform(seed, array, first, out)
        return
    streams = unit_streams(seed, array, first, len(out))
    for row, generator in enumerate(streams):
        values = generator.random(size=(out.shape[1],))
        values[first + row] = 0
        values[first + row] = DOMINANCE * max(1.0, float(np.sum(values)))
        out[row] = values


def errors(p: JacobiParams, inputs: Arrays, x: np.ndarray, rows: Rows) -> np.ndarray:
    """Return the error of each of `rows`; see the module."""
    a, b = inputs["A"], inputs["b"]
    wide = x.astype(np.float64)
    ratio = np.empty(rows.count)
    eps = float(np.finfo(x.dtype).eps) / 2
    step = max(1, BLOCK_BYTES // (8 * p.n))
    allowed = p.tolerance * float(np.linalg.norm(b.astype(np.float64)))
    if p.criterion == "change":
        largest = float(np.abs(a.diagonal()).max())
        allowed = p.tolerance * float(np.linalg.norm(wide)) * largest / p.omega
    for first in range(rows.first, rows.stop, step):
        block = slice(first, min(first + step, rows.stop))
        part, right = a[block].astype(np.float64), b[block].astype(np.float64)
        distance = np.abs(right - part @ wide)
        rounding = ROUNDING * eps * (np.abs(right) + np.abs(part) @ np.abs(wide))
        limit = SLACK * allowed + rounding
        ratio[block.start - rows.first : block.stop - rows.first] = np.divide(
            distance, limit, out=distance.copy(), where=limit != 0
        )
    return ratio
