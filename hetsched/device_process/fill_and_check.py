"""Verification of results block by block: residuals and reference values, or errors of rows.

Between two blocks the device may serve other commands and jobs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetsched.device_process.arrays import HostArrays
from hetsched.devices.base import HostArray
from hetsched.devices.host_arrays import resident_values
from hetsched.devices.slot_layout import unit_bytes
from hetsched.errors import DataError, InternalError
from hetsched.workload import BaseWorkload, Iterative, Rows, Workload

ROUNDINGS = 8.0
"""Allowed error in roundings of a unit's largest value: a transform has log2(n) steps with one
rounding each, which partly cancel. Measured: 1 to 4."""

Arrays = dict[str, np.ndarray]


BLOCK_BYTES = 8 << 20
"""Bytes of a block in all arrays together; a block has at least one unit."""
POISON_BYTE = 0xFB
"""The byte that fills integer arrays, which have no NaN."""


def generate(
    workload: BaseWorkload, params: Any, array: HostArray, first: int, count: int, seed: int
) -> Iterator[None]:
    """Generate `count` units of `array` from `first` on, block by block; all of a resident one."""
    name = array.spec.name
    for start, block in _writable_blocks(array, first, count):
        workload.generate(params, seed, name, start, block)
        if array.direct(start, len(block)) is None:
            array.write(start, len(block), block)
        yield


def poison(array: HostArray, first: int, count: int) -> Iterator[None]:
    """Fill `count` units with NaN, block by block; integers with a conspicuous bit pattern."""
    for start, block in _writable_blocks(array, first, count):
        if np.issubdtype(block.dtype, np.inexact):
            block.fill(np.nan)
        else:
            block.reshape(-1).view(np.uint8).fill(POISON_BYTE)
        if array.direct(start, len(block)) is None:
            array.write(start, len(block), block)
        yield


def block_ranges(first: int, count: int, arrays: Sequence[HostArray]) -> Iterator[tuple[int, int]]:
    """Yield (first, count) of blocks of about BLOCK_BYTES in all `arrays` together."""
    bytes_per_unit = sum(unit_bytes(array.spec) for array in arrays)
    step = max(1, BLOCK_BYTES // max(1, bytes_per_unit))
    for start in range(first, first + count, step):
        yield start, min(step, first + count - start)


def _writable_blocks(array: HostArray, first: int, count: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first, block) to fill: views if possible, else buffers to be written."""
    if array.spec.is_whole:
        view = array.direct(0, 0)
        yield 0, np.empty(array.spec.unit_shape, array.spec.dtype) if view is None else view
        return
    for start, size in block_ranges(first, count, [array]):
        view = array.direct(start, size)
        if view is None:
            view = np.empty((size, *array.spec.unit_shape), array.spec.dtype)
        yield start, view


@dataclass(frozen=True)
class RangeVerification:
    """Errors of a range of units; fields as in `device_messages.Checked`."""

    worst: float
    unit: int
    max_error: float
    sample_error: float


def verify_units(
    workload: Workload,
    params: Any,
    arrays: HostArrays,
    first: int,
    count: int,
    samples: Sequence[int],
    seed: int,
) -> Generator[None, None, RangeVerification]:
    """Compute the residual of `count` units from `first` on, and compare the `samples` in full.

    Yields after each block and each sample; returns the errors.
    """
    inputs, outputs = arrays
    residents = {n: resident_values(a) for n, a in inputs.items() if a.spec.role == "resident"}
    split = {name: array for name, array in inputs.items() if name not in residents}
    worst, unit = 0.0, first
    for start, size in block_ranges(first, count, [*split.values(), *outputs.values()]):
        block_inputs = {**_read(split, start, size), **residents}
        block_outputs = _read(outputs, start, size)
        residuals = _errors(
            f"{workload.name}: residual()",
            workload.residual(params, block_inputs, block_outputs, seed),
            size,
        )
        if residuals.size and residuals.max() > worst:
            worst, unit = float(residuals.max()), start + int(residuals.argmax())
        yield
    max_error = sample_error = 0.0
    for sample in samples:
        sample_inputs = {**_read(split, sample, 1), **residents}
        sample_outputs = _read(outputs, sample, 1)
        by_largest, by_rest = _sample_errors(workload, params, sample_inputs, sample_outputs)
        max_error = max(max_error, by_largest)
        if by_rest > max(sample_error, 1.0) and worst <= 1:
            unit = sample
        sample_error = max(sample_error, by_rest)
        yield
    return RangeVerification(worst, unit, max_error, sample_error)


def verify_rows(
    workload: Iterative,
    params: Any,
    arrays: HostArrays,
    first: int,
    count: int,
    seed: int,
) -> Generator[None, None, RangeVerification]:
    """Compute the errors of `count` rows of an iterative job's result from `first` on.

    Yields after each block; returns the errors. The largest error is also `max_error`.
    """
    inputs, outputs = ({name: _whole(a) for name, a in side.items()} for side in arrays)
    load = workload.load(params)
    rows = [a for side in arrays for a in side.values() if not a.spec.is_whole]
    worst, row = 0.0, first
    for start, size in block_ranges(first, count, rows):
        block = Rows(start, start + size, load)
        errors = _errors(
            f"{workload.name}: errors()",
            workload.errors(params, inputs, outputs, block, seed),
            size,
        )
        if errors.size and errors.max() > worst:
            worst, row = float(errors.max()), start + int(errors.argmax())
        yield
    return RangeVerification(worst, row, worst, 0.0)


def _errors(what: str, returned: Any, count: int) -> np.ndarray:
    """Return the errors of `count` units from a plug-in, infinite for NaN. Raises DataError."""
    errors = np.asarray(returned)
    if errors.shape != (count,) or errors.dtype.kind not in "fiu":
        raise DataError(
            f"{what} is an array of {errors.dtype} {errors.shape}, not of {count} real numbers"
        )
    return np.where(np.isnan(errors), np.inf, errors)


def _whole(array: HostArray) -> np.ndarray:
    """Return a whole array of an iterative job, which is in memory as kernels expect it."""
    values = array.direct(0, sys.maxsize)
    if values is None:
        raise InternalError(f"{array.spec.name}: no direct view of the array")
    return values


def _sample_errors(
    workload: Workload, params: Any, inputs: Arrays, outputs: Arrays
) -> tuple[float, float]:
    """Return the `unit_errors` of a single unit, the second divided by the tolerance."""
    reference = workload.reference(params, inputs, 0)
    scale = workload.scale(params, inputs, 0) or {}
    tolerance = workload.tolerance(params)
    if not 0 < tolerance < math.inf:
        raise DataError(f"{workload.name}: tolerance() is {tolerance}, not a number above 0")
    finite = all(np.isfinite(array).all() for array in inputs.values())
    errors = [
        unit_errors(
            values[0], reference[name], finite, ROUNDINGS / tolerance, scale.get(name, 0.0)
        )
        for name, values in outputs.items()
    ]
    by_largest = max(largest for largest, _ in errors)
    return by_largest, max(rest for _, rest in errors) / tolerance


def unit_errors(
    values: np.ndarray,
    reference: np.ndarray,
    finite: bool = True,
    floor: float = 0.0,
    scale: np.ndarray | float = 0.0,
) -> tuple[float, float]:
    """Return max|y - ref| over max|ref|, and over rms(ref without its largest value).

    The second one suits natural images, whose huge mean would otherwise hide errors.

    Parameters
    ----------
    finite : bool
        Whether the unit's input is finite; if not, its output must not be all finite.
    floor : float, roundings of the largest value
        Lower limit of the rms: the spectrum of a constant plane has nothing but its mean.
    scale : float or array
        Lower limit for each value; see `Workload.scale`.
    """
    if not finite:
        missed = bool(np.isfinite(values).all())
        return (math.inf, math.inf) if missed else (0.0, 0.0)
    wide = np.result_type(reference.dtype, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.abs(values.astype(wide) - reference.astype(wide))
    worst = float(np.max(errors, initial=0.0))
    if math.isnan(worst):
        return math.inf, math.inf
    magnitudes = np.sort(np.abs(reference.astype(wide)).reshape(-1))
    largest = float(magnitudes[-1]) if magnitudes.size else 0.0
    rms = float(np.sqrt(np.mean(magnitudes[:-1] ** 2))) if magnitudes.size > 1 else largest
    min_rms = floor * float(np.finfo(values.dtype).eps) * largest
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(errors == 0, 0.0, errors / np.maximum(scale, max(rms, min_rms)))
    return _ratio(worst, largest), float(np.max(ratios, initial=0.0))


def _ratio(error: float, scale: float) -> float:
    if error == 0:
        return 0.0
    return error / scale if scale > 0 else math.inf


def _read(arrays: Mapping[str, HostArray], first: int, count: int) -> Arrays:
    return {name: _read_units(array, first, count) for name, array in arrays.items()}


def _read_units(array: HostArray, first: int, count: int) -> np.ndarray:
    values = array.direct(first, count)
    if values is None:
        values = np.empty((count, *array.spec.unit_shape), array.spec.dtype)
        array.read(first, count, values)
    return values
