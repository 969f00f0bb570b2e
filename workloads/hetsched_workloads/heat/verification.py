"""The reference of a diffusion: the exact solution of the difference equation.

Each border has a transform in which the second difference is a factor: Fourier (periodic), sine of
type 1 (dirichlet) and cosine of type 2 (neumann). Mode k of n points is multiplied in each step by
1 - r (sum of 4 sin^2(angle / 2) over the axes), with the angle 2 pi k / n, pi (k + 1) / (n + 1)
and pi k / n.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import scipy.fft

from hetsched.workload import Arrays, Rows
from hetsched.workload.streams import fill_units
from hetsched_workloads.heat import HeatParams

ROUNDINGS = 8.0
"""Roundings of the largest value, besides one for each step: rounding errors don't grow."""

TRANSFORMS: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "periodic": (scipy.fft.fft, scipy.fft.ifft),
    "neumann": (scipy.fft.dct, scipy.fft.idct),
    "dirichlet": (partial(scipy.fft.dst, type=1), partial(scipy.fft.idst, type=1)),
}
"""Border -> its transform and the inverse one."""


def reference(p: HeatParams, initial: np.ndarray, steps: int) -> np.ndarray:
    """Return the values after `steps` steps, in double precision. O(n log n) for n points."""
    modes = initial.astype(np.float64) - p.border_value
    for axis, border in enumerate(p.borders):
        modes = TRANSFORMS[border][0](modes, axis=axis)
    factor = np.ones(modes.shape)
    for axis, (border, size) in enumerate(zip(p.borders, p.shape, strict=True)):
        part = _ratio_of_modes(p, border, size)
        factor -= part.reshape([-1 if i == axis else 1 for i in range(factor.ndim)])
    modes *= factor**steps
    for axis, border in reversed(tuple(enumerate(p.borders))):
        modes = TRANSFORMS[border][1](modes, axis=axis)
    result: np.ndarray = modes.real + p.border_value
    return result


def _ratio_of_modes(p: HeatParams, border: str, size: int) -> np.ndarray:
    """Return what each mode along an axis loses in a step, (size,)."""
    k = np.arange(size)
    angle = {
        "periodic": 2 * np.pi * k / size,
        "dirichlet": np.pi * (k + 1) / (size + 1),
        "neumann": np.pi * k / size,
    }[border]
    # The kernels multiply by r as their dtype represents it.
    return np.asarray(4 * float(np.dtype(p.dtype).type(p.ratio)) * np.sin(angle / 2) ** 2)


def generate(p: HeatParams, seed: int, array: str, first: int, out: np.ndarray) -> None:
    fill_units(seed, array, first, out)


def errors(p: HeatParams, inputs: Arrays, outputs: Arrays, rows: Rows) -> np.ndarray:
    """Return the largest error of each row, in roundings that the steps explain."""
    initial = inputs["initial"]
    steps = int(outputs["steps"][0])
    if not 1 <= steps <= p.steps:
        return np.full(rows.count, np.inf)
    part = slice(rows.first, rows.stop)
    difference = np.abs(outputs["final"][part] - reference(p, initial, steps)[part])
    size = max(float(np.abs(initial).max()), abs(p.border_value))
    allowed = float(np.finfo(p.dtype).eps) * (steps + ROUNDINGS) * size
    worst = difference.reshape(rows.count, -1).max(axis=1)
    if allowed == 0:
        return np.where(worst == 0, 0.0, np.inf)
    return np.asarray(worst / allowed)
