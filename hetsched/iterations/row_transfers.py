"""What a device with its own memory must exchange with the others, stage by stage.

It holds its rows; of what others write it needs the halo of its rows and all rows of whole arrays,
once after each time that they were written. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hetsched.iterations.home import Part, read_buffer, write_buffer
from hetsched.workload import Iterative, Rows, Stage, StateArray


@dataclass(frozen=True)
class RowRange:
    """Rows of a state array to copy: `first` may be below 0, and `stop` beyond the load."""

    array: StateArray
    buffer: int
    first: int
    stop: int

    @property
    def count(self) -> int:
        return self.stop - self.first


class RowTransfers:
    """The transfers of one device: state arrays only, as inputs stay and outputs come last."""

    def __init__(self, workload: Iterative, params: Any) -> None:
        self._state = {array.name: array for array in workload.state(params)}
        self._written: Counter[tuple[str, int]] = Counter()
        self._fetched: Counter[tuple[str, int]] = Counter()

    def forget(self) -> None:
        self._fetched.clear()
        both = ((name, buffer) for name in self._state for buffer in (0, 1))
        self._written = Counter(dict.fromkeys(both, 1))

    def to_device(self, stage: Stage, part: Part, iteration: int, rows: Rows) -> list[RowRange]:
        """Return what to copy to the device before the stage, and count it as copied."""
        ranges: list[RowRange] = []
        for name in stage.inputs:
            array = self._state.get(name)
            if array is None:
                continue
            buffer = read_buffer(array, part, iteration)
            key = (name, buffer)
            if self._fetched[key] < self._written[key]:
                self._fetched[key] = self._written[key]
                ranges += _others(array, buffer, rows)
        return ranges

    def to_host(self, stage: Stage, part: Part, iteration: int, rows: Rows) -> list[RowRange]:
        """Return what to copy to the host after the stage: what other devices may read."""
        ranges: list[RowRange] = []
        for name in stage.outputs:
            array = self._state.get(name)
            if array is not None:
                ranges += _edges(array, write_buffer(array, part, iteration), rows)
        return ranges

    def on_written(self, stage: Stage, part: Part, iteration: int) -> None:
        self._written.update(
            (name, write_buffer(self._state[name], part, iteration))
            for name in stage.outputs
            if name in self._state
        )


def row_bytes(unit_shape: tuple[int, ...], dtype: str) -> int:
    return prod(unit_shape) * np.dtype(dtype).itemsize


def _others(array: StateArray, buffer: int, rows: Rows) -> Iterator[RowRange]:
    """Yield what a device reads of other devices' rows, and of the border."""
    if array.is_whole:
        yield from _filled(array, buffer, (0, rows.first), (rows.stop, rows.load))
    elif array.halo:
        before = (rows.first - array.halo, rows.first)
        yield from _filled(array, buffer, before, (rows.stop, rows.stop + array.halo))


def _edges(array: StateArray, buffer: int, rows: Rows) -> Iterator[RowRange]:
    """Yield what other devices may read of the device's rows."""
    if array.is_whole or 0 < rows.count <= 2 * array.halo:
        yield RowRange(array, buffer, rows.first, rows.stop)
    elif array.halo:
        yield RowRange(array, buffer, rows.first, rows.first + array.halo)
        yield RowRange(array, buffer, rows.stop - array.halo, rows.stop)


def _filled(array: StateArray, buffer: int, *ranges: tuple[int, int]) -> Iterator[RowRange]:
    return (RowRange(array, buffer, first, stop) for first, stop in ranges if first < stop)
