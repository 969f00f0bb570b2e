"""Filling and checking arrays block by block, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetsched.device_process.attachments import Hosts
from hetsched.devices.base import HostArray
from hetsched.devices.host_arrays import resident_values
from hetsched.devices.slot_layout import unit_bytes
from hetsched.workload import Workload

BLOCK = 8 << 20
"""Bytes of all arrays together that are looked at at a time, if a unit isn't larger."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Verdict:
    """See `wire.Checked`. `unit`: that of `worst`, or of the sample where only that failed."""

    worst: float
    unit: int
    max_error: float
    sample_error: float


ROUNDING = 8.0
"""Roundings of a unit's largest value that an error may always have: a transform takes log2(n)
steps of one each, which partly cancel. Measured: 1 to 4."""


def fill(
    workload: Workload, params: Any, array: HostArray, first: int, count: int, seed: int
) -> None:
    """Generate units first.. of `array`; all of a resident one."""
    name = array.spec.name
    for start, block in _blocks(array, first, count):
        workload.generate(params, seed, name, start, block)
        if array.direct(start, len(block)) is None:
            array.write(start, len(block), block)


def poison(array: HostArray, first: int, count: int) -> None:
    """Fill units first.. with NaN; with a bit pattern of its own where there is none."""
    for start, block in _blocks(array, first, count):
        if np.issubdtype(block.dtype, np.inexact):
            block.fill(np.nan)
        else:
            block.reshape(-1).view(np.uint8).fill(0xFB)
        if array.direct(start, len(block)) is None:
            array.write(start, len(block), block)


def check(
    workload: Workload,
    params: Any,
    hosts: Hosts,
    first: int,
    count: int,
    samples: tuple[int, ...],
    seed: int,
) -> Verdict:
    """The residual of units first.. and the errors of the `samples` (any units)."""
    inputs, outputs = hosts
    residents = {n: resident_values(a) for n, a in inputs.items() if a.spec.role == "resident"}
    split = {n: a for n, a in inputs.items() if n not in residents}
    worst, unit = 0.0, first
    for start, size in _ranges(first, count, [*split.values(), *outputs.values()]):
        given = {**_read(split, start, size), **residents}
        found = workload.residual(params, given, _read(outputs, start, size), seed)
        found = np.where(np.isnan(found), np.inf, found)
        if found.size and found.max() > worst:
            worst, unit = float(found.max()), start + int(found.argmax())
    max_error = sample_error = 0.0
    for i in samples:
        given = {**_read(split, i, 1), **residents}
        by_largest, by_rest = _sample(workload, params, given, _read(outputs, i, 1))
        max_error = max(max_error, by_largest)
        if by_rest > max(sample_error, 1.0) and worst <= 1:
            unit = i
        sample_error = max(sample_error, by_rest)
    return Verdict(worst, unit, max_error, sample_error)


def _sample(
    workload: Workload, params: Any, given: Arrays, outputs: Arrays
) -> tuple[float, float]:
    """See `unit_errors`, of the only unit there; the second is divided by the tolerance."""
    reference = workload.reference(params, given, 0)
    scale = workload.scale(params, given, 0) or {}
    tolerance = workload.tolerance(params)
    finite = all(np.isfinite(array).all() for array in given.values())
    found = [
        unit_errors(got[0], reference[name], finite, ROUNDING / tolerance, scale.get(name, 0.0))
        for name, got in outputs.items()
    ]
    return max(error for error, _ in found), max(error for _, error in found) / tolerance


def unit_errors(
    got: np.ndarray,
    reference: np.ndarray,
    finite: bool = True,
    floor: float = 0.0,
    scale: np.ndarray | float = 0.0,
) -> tuple[float, float]:
    """max|y - ref| over max|ref|, and over rms(ref less its largest value).

    Natural images have a huge mean, whose transform would hide errors: hence the latter. `finite`:
    the unit's input is; else it must come out not all finite. `floor` (in roundings of the largest
    value): the least that the rest counts as; the spectrum of a constant plane has nothing else.
    `scale`: the least for each value, see `Workload.scale`.
    """
    if not finite:
        wrong = bool(np.isfinite(got).all())
        return (math.inf, math.inf) if wrong else (0.0, 0.0)
    wide = np.result_type(reference.dtype, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.abs(got.astype(wide) - reference.astype(wide))
    worst = float(np.max(errors, initial=0.0))
    if math.isnan(worst):
        return math.inf, math.inf
    size = np.sort(np.abs(reference.astype(wide)).reshape(-1))
    top = float(size[-1]) if size.size else 0.0
    rest = float(np.sqrt(np.mean(size[:-1] ** 2))) if size.size > 1 else top
    least = floor * float(np.finfo(got.dtype).eps) * top
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(errors == 0, 0.0, errors / np.maximum(scale, max(rest, least)))
    return _ratio(worst, top), float(np.max(ratios, initial=0.0))


def _ratio(error: float, scale: float) -> float:
    if error == 0:
        return 0.0
    return error / scale if scale > 0 else math.inf


def _ranges(first: int, count: int, arrays: list[HostArray]) -> Iterator[tuple[int, int]]:
    """(first, count) of blocks of units whose `arrays` take BLOCK bytes together."""
    one = sum(unit_bytes(array.spec) for array in arrays)
    step = max(1, BLOCK // max(1, one))
    for start in range(first, first + count, step):
        yield start, min(step, first + count - start)


def _blocks(array: HostArray, first: int, count: int) -> Iterator[tuple[int, np.ndarray]]:
    """Blocks to fill: views where there are, else buffers to be written."""
    if array.spec.role == "resident":
        view = array.direct(0, 0)
        yield 0, np.empty(array.spec.unit_shape, array.spec.dtype) if view is None else view
        return
    for start, size in _ranges(first, count, [array]):
        view = array.direct(start, size)
        if view is None:
            view = np.empty((size, *array.spec.unit_shape), array.spec.dtype)
        yield start, view


def _read(arrays: Mapping[str, HostArray], first: int, count: int) -> Arrays:
    return {name: _units(array, first, count) for name, array in arrays.items()}


def _units(array: HostArray, first: int, count: int) -> np.ndarray:
    found = array.direct(first, count)
    if found is None:
        found = np.empty((count, *array.spec.unit_shape), array.spec.dtype)
        array.read(first, count, found)
    return found
