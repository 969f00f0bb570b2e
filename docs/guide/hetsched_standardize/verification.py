"""Two independent checks of the results."""

from __future__ import annotations

import numpy as np


def reference(x: np.ndarray) -> np.ndarray:
    """Standardize one row in double precision."""
    values = x.astype(np.float64)
    centred = values - values.mean()
    deviation: float = np.sqrt(np.mean(centred**2))
    return np.asarray(centred / deviation) if deviation > 0 else centred


def residual(x: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    """Check every row by a random projection, (count,) float64; a row is right if <= 1.

    With signs w, w.y must be (w.x - mean(x) sum(w)) / std(x).
    """
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], x.shape[1])
    values = x.astype(np.float64)
    mean, deviation = values.mean(axis=1), values.std(axis=1)
    expected = (values @ signs - mean * signs.sum()) / np.maximum(deviation, 1e-300)
    size = np.sqrt(x.shape[1]) + np.abs(mean) * np.sqrt(x.shape[1]) / np.maximum(deviation, 1e-300)
    error = np.abs(y.astype(np.float64) @ signs - np.where(deviation > 0, expected, 0.0))
    ratio = error / (64 * np.finfo(y.dtype).eps * size)
    finite = np.isfinite(x).all(axis=1)
    spoiled = np.where(np.isfinite(y).all(axis=1), np.inf, 0.0)
    return np.asarray(np.where(finite, np.nan_to_num(ratio, nan=np.inf), spoiled))
