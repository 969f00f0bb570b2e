"""A small sparse matrix, and the beginning of a file of one."""

from __future__ import annotations

from typing import Any

import scipy.sparse

COORDINATES = b"%%MatrixMarket matrix coordinate real general\n"


def tridiagonal(n: int = 6) -> Any:
    return scipy.sparse.diags_array(
        [-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(n, n), dtype="float64"
    )
