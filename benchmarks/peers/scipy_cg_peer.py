"""SciPy's conjugate gradients with the diagonal as preconditioner, on one core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import cg

from benchmarks.solver_systems import poisson


def make(case: dict[str, Any]) -> tuple[Callable[[], None], Callable[[], float]]:
    a, b = poisson(case["side"], case["dtype"])
    preconditioner = scipy.sparse.diags_array(1 / a.diagonal())
    x = np.zeros_like(b)

    def run() -> None:
        nonlocal x
        x, _ = cg(a, b, rtol=case["tolerance"], M=preconditioner)

    def check() -> float:
        return float(np.linalg.norm(b - a @ x) / np.linalg.norm(b))

    return run, check
