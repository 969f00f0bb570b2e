"""The arrays of one FFT case: the same numbers in every peer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def fill(x: np.ndarray) -> None:
    """Fill with normal numbers, plane by plane, to avoid copying the whole array."""
    generator = np.random.default_rng(1)
    for plane in x:
        plane.real = generator.standard_normal(plane.shape, dtype="float32")
        plane.imag = generator.standard_normal(plane.shape, dtype="float32")


def arrays(case: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return (input, output) of shape `case["shape"]`, both touched."""
    x = np.empty(case["shape"], case["dtype"])
    fill(x)
    return x, np.zeros_like(x)


def worst(x: np.ndarray, y: np.ndarray, planes: Sequence[int] = (0, -1)) -> float:
    """Return the largest error of some planes, relative to their largest value."""
    wanted = [np.fft.fft2(x[index].astype("complex128")) for index in planes]
    errors = [np.abs(y[index] - want).max() for index, want in zip(planes, wanted, strict=True)]
    return float(
        max(error / np.abs(want).max() for error, want in zip(errors, wanted, strict=True))
    )
