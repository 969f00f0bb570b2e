"""A check of the result that knows nothing about how it was found."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched.workload import Rows


def errors(x: Any, y: Any, rows: Rows, tolerance: float) -> np.ndarray:
    """Return the error of each row, (count,) float64; a row is right if <= 1.

    Edges must be as given, and no inner point may differ from the mean of its neighbours by more
    than the tolerance.
    """
    padded = np.pad(y, 1, mode="edge").astype(np.float64)
    mean = (padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]) / 4
    difference = np.abs(y - mean)
    edge = np.ones(y.shape, dtype=bool)
    edge[1:-1, 1:-1] = False
    difference[edge] = np.where(y[edge] == x[edge], 0.0, np.inf)
    worst = np.nan_to_num(difference, nan=np.inf).max(axis=1) / (tolerance * (1 + 1e-9))
    return np.asarray(worst[rows.first : rows.stop])
