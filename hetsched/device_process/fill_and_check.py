"""Fills arrays and verifies results block by block: residuals, reference values, errors of rows.

Between two blocks the device may serve other commands and jobs.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hetsched.device_process.arrays import HostArrays
from hetsched.devices.base import HostArray
from hetsched.errors import DataError
from hetsched.transport import device_messages
from hetsched.workload import BaseWorkload, Iterative, Rows, Workload
from hetsched.workload.protocol import array_bytes

ROUNDINGS = 8.0
"""Allowed error in roundings of a unit's largest value: a transform has log2(n) steps with one
rounding each, which partly cancel. Measured: 1 to 4."""
BLOCK_BYTES = 8 << 20
"""Bytes of a block in all arrays together; a block has at least one unit."""
POISON_BYTE = 0xFB
"""The byte that fills integer arrays, which have no NaN."""

Arrays = dict[str, np.ndarray]


def fill(
    workload: BaseWorkload, params: Any, array: HostArray, command: device_messages.Fill
) -> Generator[None, None, device_messages.Filled]:
    """Generate units, or fill them with NaN: integers with a conspicuous bit pattern."""
    blocks = [(0, 0)]
    if not array.spec.is_whole:
        blocks = list(_block_ranges(command.first, command.count, [array]))
    for start, size in blocks:
        view = array.direct(start, size)
        block = _buffer(array, size) if view is None else view
        if not command.poison:
            workload.generate(params, command.seed, array.spec.name, start, block)
        elif np.issubdtype(block.dtype, np.inexact):
            block.fill(np.nan)
        else:
            block.reshape(-1).view(np.uint8).fill(POISON_BYTE)
        if view is None:
            array.write(start, size, block)
        yield
    return device_messages.Filled(command.attempt)


def _block_ranges(
    first: int, count: int, arrays: Sequence[HostArray]
) -> Iterator[tuple[int, int]]:
    bytes_per_unit = sum(array_bytes(array.spec) for array in arrays)
    step = max(1, BLOCK_BYTES // max(1, bytes_per_unit))
    for start in range(first, first + count, step):
        yield start, min(step, first + count - start)


def check(
    workload: BaseWorkload, params: Any, arrays: HostArrays, command: device_messages.Check
) -> Generator[None, None, device_messages.Checked]:
    """Verify units; yields after each block and each sample. Raises DataError."""
    worst, unit = 0.0, command.first
    load, whole = 0, None
    if isinstance(workload, Iterative):  # a row's error depends on others
        load = workload.load(params)
        whole = [_read(side, 0, load) for side in arrays]
    cut = [array for side in arrays for array in side.values() if not array.spec.is_whole]
    for start, size in _block_ranges(command.first, command.count, cut):
        inputs, outputs = whole or [_read(side, start, size) for side in arrays]
        rows = Rows(start, start + size, load)
        errors = _errors(workload, params, inputs, outputs, rows, command.seed)
        if errors.max(initial=0.0) > worst:
            worst, unit = float(errors.max()), start + int(errors.argmax())
        yield
    if not isinstance(workload, Workload):  # an iterative one
        return device_messages.Checked(command.attempt, worst, unit, worst, 0.0)
    max_error = sample_error = 0.0
    for sample in command.samples:
        by_largest, by_rest = _sample_errors(workload, params, arrays, sample)
        max_error = max(max_error, by_largest)
        if by_rest > max(sample_error, 1.0) and worst <= 1:
            unit = sample
        sample_error = max(sample_error, by_rest)
        yield
    return device_messages.Checked(command.attempt, worst, unit, max_error, sample_error)


def _errors(
    workload: BaseWorkload, params: Any, inputs: Arrays, outputs: Arrays, rows: Rows, seed: int
) -> np.ndarray:
    """Return the errors of units as multiples of the tolerance, infinite for NaN. DataError."""
    if isinstance(workload, Iterative):
        method, returned = "errors", workload.errors(params, inputs, outputs, rows, seed)
    else:
        assert isinstance(workload, Workload), "there are no other kinds"
        method, returned = "residual", workload.residual(params, inputs, outputs, seed)
    errors = np.asarray(returned)  # a plug-in may return anything
    if errors.shape != (rows.count,) or errors.dtype.kind not in "fiu":
        raise DataError(
            f"{workload.name}: {method}() is an array of {errors.dtype} {errors.shape}, not of"
            f" {rows.count} real numbers"
        )
    return np.where(np.isnan(errors), np.inf, errors)


def _sample_errors(
    workload: Workload, params: Any, arrays: HostArrays, sample: int
) -> tuple[float, float]:
    """Return the `unit_errors` of a single unit, the second divided by the tolerance."""
    inputs, outputs = (_read(side, sample, 1) for side in arrays)
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

    The second one suits natural images, whose huge mean would otherwise hide errors. `finite`:
    the unit's input is; if not, its output must not be all finite. `floor`, in roundings of the
    largest value: lower limit of the rms, as the spectrum of a constant plane has nothing but its
    mean. `scale`: lower limit for each value; see `Workload.scale`.
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
    by_largest = worst / largest if largest > 0 else math.inf
    return by_largest if worst else 0.0, float(np.max(ratios, initial=0.0))


def _read(arrays: Mapping[str, HostArray], first: int, count: int) -> Arrays:
    read = {}
    for name, array in arrays.items():
        values = array.direct(first, count)
        if values is None:
            values = _buffer(array, count)
            array.read(first, count, values)
        read[name] = values
    return read


def _buffer(array: HostArray, count: int) -> np.ndarray:
    """Return an empty array for `count` units, or for all of an array that isn't split."""
    spec = array.spec
    return np.empty(spec.unit_shape if spec.is_whole else (count, *spec.unit_shape), spec.dtype)
