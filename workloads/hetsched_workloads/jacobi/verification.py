"""Test data of `jacobi`, and the check of every row of the result.

The criterion `change` bounds the last step s: |b - A x| before it was |diag(A) s| / omega, and
is not larger after it if the method converges.
"""

from __future__ import annotations

import numpy as np

from hetsched.workload import Arrays, Rows
from hetsched.workload.streams import fill_uniform, unit_streams
from hetsched_workloads.jacobi import JacobiParams
from hetsched_workloads.systems import row_errors

DOMINANCE = 1.25
"""Diagonal of generated matrices over the sum of their rows: the error falls by 1.25 a step."""
BLOCK_BYTES = 1 << 22


def generate(p: JacobiParams, seed: int, array: str, first: int, out: np.ndarray) -> None:
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


def errors(p: JacobiParams, inputs: Arrays, outputs: Arrays, rows: Rows) -> np.ndarray:
    a, b, x = inputs["A"], inputs["b"], outputs["x"]
    allowed = p.tolerance * float(np.linalg.norm(b.astype(np.float64)))
    if p.criterion == "change":
        largest = float(np.abs(a.diagonal()).max())
        allowed = p.tolerance * float(np.linalg.norm(x.astype(np.float64))) * largest / p.omega

    def products(block: slice, wide: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        part = a[block].astype(np.float64)
        return part @ wide, np.abs(part) @ np.abs(wide)

    return row_errors(b, x, rows, max(1, BLOCK_BYTES // (8 * p.n)), products, allowed)
