"""Ways in which a result, (units, ...), may be wrong: each changes an array in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Wrong = Callable[[np.ndarray, np.random.Generator], None]


def element(y: np.ndarray, rng: np.random.Generator) -> tuple[int, ...]:
    """An element of at least the median magnitude of its unit, and not zero itself."""
    unit = int(rng.integers(len(y)))
    size = np.abs(y[unit])
    places = np.argwhere((size >= np.median(size)) & (size > size.max() * 1e-7))
    return (unit, *(int(i) for i in rng.choice(places)))


def spoil_element(value: Callable[[np.ndarray, Any], Any]) -> Wrong:
    def spoil(y: np.ndarray, rng: np.random.Generator) -> None:
        place = element(y, rng)
        y[place] = value(y, y[place])

    return spoil


def scale(y: np.ndarray, rng: np.random.Generator) -> None:
    y *= y.real.dtype.type(1.001)


def turn(y: np.ndarray, rng: np.random.Generator) -> None:
    unit = rng.integers(len(y))
    y[unit] = y[unit].T.copy() if y.ndim == 3 else y[unit, ::-1].copy()


def leave_out(y: np.ndarray, rng: np.random.Generator) -> None:
    y[-1] = 0


def swap(y: np.ndarray, rng: np.random.Generator) -> None:
    y[[0, 1]] = y[[1, 0]]


WRONGS: dict[str, Wrong] = {
    "zero": spoil_element(lambda y, value: 0),
    "sign": spoil_element(lambda y, value: -value),
    "nan": spoil_element(lambda y, value: np.nan),
    "huge": spoil_element(lambda y, value: np.finfo(y.dtype).max),
    "scaled": scale,
    "turned": turn,
    "left out": leave_out,
    "swapped": swap,
}
