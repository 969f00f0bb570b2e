"""Jacobi's method with NumPy, as in a textbook; the matrix product uses all threads of BLAS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.solver_systems import dense


def make(case: dict[str, Any]) -> tuple[Callable[[], None], Callable[[], float]]:
    a, b = dense(case["n"], case["dtype"])
    diagonal, tolerance = a.diagonal().copy(), case["tolerance"]
    x = np.zeros_like(b)

    def run() -> None:
        nonlocal x
        x = np.zeros_like(b)
        r = b.copy()
        while np.linalg.norm(r) > tolerance * np.linalg.norm(b):
            x += r / diagonal
            r = b - a @ x

    def check() -> float:
        return float(np.linalg.norm(b - a @ x) / np.linalg.norm(b))

    return run, check
