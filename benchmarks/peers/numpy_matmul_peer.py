"""NumPy's `C += A @ B` with all threads of its BLAS; its process keeps freed memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def make(case: dict[str, Any]) -> tuple[Callable[[], None], Callable[[], float]]:
    c, a, b = operands(case)
    start = c[0].astype("float64")
    step = a[0].astype("float64") @ b.astype("float64")
    runs = 0

    def run() -> None:
        nonlocal c, runs
        c += a @ b
        runs += 1

    def check() -> float:
        want = start + runs * step
        return float(np.abs(c[0] - want).max() / np.abs(want).max())

    return run, check


def operands(case: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return C (rows, cols), A (rows, inner), B (inner, cols), the same numbers in every peer."""
    rows, cols, inner = case["shape"]
    generator = np.random.default_rng(1)
    shapes = ((rows, cols), (rows, inner), (inner, cols))
    c, a, b = (generator.standard_normal(shape, dtype=case["dtype"]) for shape in shapes)
    return c, a, b
