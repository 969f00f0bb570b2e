"""Filling of arrays block by block, in bounded memory: with generated units or NaN.

Between two blocks the device may serve other commands and jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hetsched.devices.base import HostArray
from hetsched.devices.slot_layout import unit_bytes
from hetsched.workload import BaseWorkload

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
