"""Test data of an FFT, the reference, and the check of every plane.

The residual
------------
For a plane x (r, c), y = F_r x F_c and a random vector u of r unit-modulus phases, u.y equals
((F_r u).x) F_c: c numbers, computed on both sides in O(r c) (Freivalds; F is symmetric). So each
column of y is projected separately. A single wrong element shows in full, whatever u is, because
|u_i| = 1; rounding errors grow as sqrt(r) only, and those of the column that holds the mean, which
is huge in photographs, don't mask errors in the others. A single projection of the whole plane
would have almost no margin there.

Tolerance of column j: eps (12 |F(x)| + 24 |y_j|), the Frobenius norm of the expected result (by
Parseval) and the norm of the column; eps = 2**-24. Rounding in the first of the two passes spreads
over the row, unevenly, in the second over the column, hence the two terms. In complex128 the
tolerance is 32 times that with eps = 2**-53: no correct result comes near it, and the check itself
computes in that precision.
"""

from __future__ import annotations

import functools

import numpy as np

from hetsched.workload.streams import fill_normal
from hetsched_workloads.fft.declaration import DTYPES

PLANE_FACTOR, COLUMN_FACTOR = 12.0, 24.0
DOUBLE_FACTOR = 32.0
BLOCK_BYTES = 1 << 18
"""Bytes of a block in double precision: it fits the second-level cache."""


def generate(seed: int, array: str, first: int, out: np.ndarray) -> None:
    """Fill `out` with complex standard normal planes; one random stream per plane."""
    real = np.dtype(DTYPES[out.dtype.name].real).type
    planes = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
    parts: np.ndarray = planes.view(real)
    fill_normal(seed, array, first, parts)
    np.multiply(parts, real(0.5**0.5), out=parts)
    if planes is not out:
        out[...] = planes


def reference(direction: str, plane: np.ndarray) -> np.ndarray:
    """Transform the plane by NumPy in double precision; a roundtrip returns the plane itself."""
    exact = np.asarray(plane, np.complex128)
    if direction == "roundtrip":
        return exact.copy()
    result: np.ndarray = np.fft.fft2(exact) if direction == "forward" else np.fft.ifft2(exact)
    return result


def residual(direction: str, x: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    """Check every plane, (count,) float64; see the module. About 3 ms per 512x512 plane.

    Parameters
    ----------
    x, y : (count, rows, cols) complex64 or complex128
    """
    with np.errstate(all="ignore"):
        return np.array([_plane(direction, a, b, seed) for a, b in zip(x, y, strict=True)])


def _plane(direction: str, x: np.ndarray, y: np.ndarray, seed: int) -> float:
    for_input, for_output = _vectors(direction, x.shape[0], seed)
    expected, x_squares = _project(for_input, x)
    projected, y_squares = _project(for_output, y)
    energy = float(x_squares.sum())
    if not np.isfinite(energy):
        return _overflowing(direction, x, y, seed)
    if not np.isfinite(y_squares).all():
        return float("inf")
    if direction != "roundtrip":
        expected = np.fft.fft(expected) if direction == "forward" else np.fft.ifft(expected)
    gain = {"forward": x.size, "inverse": 1 / x.size, "roundtrip": 1.0}[direction]
    info = np.finfo(x.dtype)
    bound = PLANE_FACTOR * np.sqrt(gain * energy) + COLUMN_FACTOR * np.sqrt(y_squares)
    unit = float(info.eps) / 2 * (DOUBLE_FACTOR if DTYPES[x.dtype.name].is_double else 1)
    allowed = unit * bound + float(info.smallest_normal) * x.size
    return float((np.abs(projected - expected) / allowed).max())


def _overflowing(direction: str, x: np.ndarray, y: np.ndarray, seed: int) -> float:
    """Check a plane whose squares overflow: it has NaN, Inf or merely huge values."""
    if not np.isfinite(x).all():
        return 0.0 if not np.isfinite(y).all() else float("inf")
    down = 2.0**-600  # exact, and no such square overflows
    return _plane(direction, x * down, y * down, seed)


@functools.lru_cache(maxsize=16)
def _vectors(direction: str, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (F u, u), the left factors of the input and the output."""
    generator = np.random.Generator(np.random.Philox(seed % 2**64))
    phases = np.exp(2j * np.pi * generator.random(rows))
    transformed = phases.copy()
    if direction != "roundtrip":
        transformed = np.fft.fft(phases) if direction == "forward" else np.fft.ifft(phases)
    transformed.flags.writeable = phases.flags.writeable = False
    return transformed, phases


def _project(vector: np.ndarray, plane: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (vector @ plane, sum of |plane|^2 per column) in double, block by block of rows."""
    rows, cols = plane.shape
    step = max(1, BLOCK_BYTES // (16 * cols))
    block = np.empty((min(step, rows), cols), np.complex128)
    total = np.zeros(cols, np.complex128)
    squares = np.zeros(2 * cols)
    for first in range(0, rows, step):
        part = block[: min(step, rows - first)]
        part[...] = plane[first : first + step]
        total += vector[first : first + step] @ part
        parts = part.view(np.float64)
        squares += np.einsum("ij,ij->j", parts, parts)
    return total, squares.reshape(cols, 2).sum(axis=1)
