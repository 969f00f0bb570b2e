"""Rows of an iterative job in device memory, and copies of them from and to the home arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from hetsched.devices.accelerator.pinned import Pins
from hetsched.devices.accelerator.runtime import Copy, Queue, Runtime
from hetsched.devices.base import IterativeJob
from hetsched.iterations.home import Part, read_buffer, write_buffer
from hetsched.iterations.row_transfers import row_bytes
from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, ArraySpec, Rows, Stage, StateArray
from hetsched.workload.protocol import array_bytes


@dataclass
class DeviceArrays:
    """What all pieces need to allocate their arrays, and the whole arrays that they share."""

    runtime: Runtime
    queue: Queue
    pins: Pins
    job: IterativeJob

    def __post_init__(self) -> None:
        workload, params = self.job.workload, self.job.job.params
        self.specs = {spec.name: spec for spec in workload.arrays(params)}
        self.split = [s for s in self.specs.values() if s.pointers or not s.is_whole]
        self.state = {state.name: state for state in workload.state(params)}
        self.whole: dict[str, DeviceRows] = {}
        self._pointers = {
            spec.name: _rising(self.job.home.array(spec.pointers), spec.unit_shape[0])
            for spec in self.split
            if spec.pointers not in ("", spec.name)
        }

    def load_whole(self, queue: Queue) -> None:
        """Copy the arrays that aren't split to the device, which has room for them."""
        everything: list[ArraySpec | StateArray] = [*self.specs.values(), *self.state.values()]
        for array in everything:
            if array.is_whole and array not in self.split:
                rows = self.job.load if isinstance(array, StateArray) else 1
                self.whole[array.name] = self.rows(array.name, 0, rows)
                self.whole[array.name].all_to_device(queue)

    def rows(self, name: str, base: int, count: int) -> DeviceRows:
        home = self.job.home.array(name)
        state = self.state.get(name)
        if state is not None:
            homes, border = list(home), state.halo
        else:
            is_whole = self.specs[name] not in self.split
            homes, border = [home[np.newaxis] if is_whole else home], 0
        return DeviceRows(self, homes, border, base, count)

    def span(self, name: str, first: int, stop: int) -> tuple[int, int]:
        pointers = self._pointers.get(name)
        if pointers is None:
            return first, stop + (self.specs[name].pointers == name)
        return int(pointers[first]), int(pointers[stop])

    def most_entries(self, name: str, rows: tuple[int, int], count: int) -> int:
        """Return the most entries that `count` consecutive rows of `rows` have."""
        first, stop = rows
        count, pointers = min(count, stop - first), self._pointers.get(name)
        if pointers is None:
            return count + (self.specs[name].pointers == name)
        own = pointers[first : stop + 1]
        return int((own[count:] - own[: len(own) - count]).max())

    def demand(self, average: MemoryDemand, rows: tuple[int, int]) -> MemoryDemand:
        """Return a demand for any of `rows`, which may have more entries than the average row."""
        by_row = {s: row_bytes(s.unit_shape[1:], s.dtype) for s in self.split if s.pointers}
        if not by_row:
            return average
        inputs, mean = average.input_bytes, sum(map(array_bytes, by_row)) / self.job.load

        def input_bytes(count: int) -> float:
            most = sum(size * self.most_entries(s.name, rows, count) for s, size in by_row.items())
            declared = inputs(count) if callable(inputs) else inputs * count
            return declared + max(0.0, most - mean * count)

        return replace(average, input_bytes=input_bytes)


def _rising(pointers: np.ndarray, entries: int) -> np.ndarray:
    """Return pointers by which nothing else is copied; wrong ones are the kernels' to report."""
    if pointers[0] >= 0 and pointers[-1] <= entries and (pointers[1:] >= pointers[:-1]).all():
        return pointers
    rising: np.ndarray = np.maximum.accumulate(np.clip(pointers, 0, entries))
    return rising


class RowPiece:
    """The arrays of some rows; of the memory for `room` rows, `spare` come before the first.

    `within`: first and last row, exclusive, of those that it may hold; `place` takes others.
    """

    def __init__(
        self,
        arrays: DeviceArrays,
        rows: Rows,
        room: int,
        within: tuple[int, int],
        spare: int = 0,
    ) -> None:
        self.rows = rows
        self._arrays = arrays
        self._first = rows.first - spare
        self._stop = self._first + room
        self._split = {
            spec.name: arrays.rows(
                spec.name,
                arrays.span(spec.name, self._first, self._first)[0],
                arrays.most_entries(spec.name, within, room),
            )
            for spec in arrays.split
        }
        self._state = {
            state.name: arrays.rows(state.name, self._first - state.halo, room + 2 * state.halo)
            for state in arrays.state.values()
            if not state.is_whole
        }

    def place(self, rows: Rows) -> None:
        self.rows = rows
        for name, rows_of_array in self._split.items():
            rows_of_array.base = self._arrays.span(name, rows.first, rows.stop)[0]
        for name, rows_of_array in self._state.items():
            rows_of_array.base = rows.first - self._arrays.state[name].halo

    def can_hold(self, rows: Rows) -> bool:
        """Return whether `rows` have a place in the same memory, beside those that stay."""
        return self._first <= rows.first and rows.stop <= self._stop

    def load(self, queue: Queue, parts: Iterable[tuple[int, int]]) -> None:
        """Copy rows from the home: inputs, and all buffers of the state, without halos."""
        for first, stop in parts:
            for name in self._split:
                if self._arrays.specs[name].is_input:
                    self._copy_in(queue, name, first, stop)
            for name, rows in self._state.items():
                for buffer in range(2 if self._arrays.state[name].has_two_buffers else 1):
                    rows.to_device(queue, buffer, first, stop)

    def load_inputs(self, queue: Queue, stage: Stage, part: Part, iteration: int) -> None:
        """Copy what a stage reads, other than whole arrays."""
        for name in stage.inputs:
            if name in self._split:
                self._copy_in(queue, name, self.rows.first, self.rows.stop)
            elif name in self._state:
                state = self._arrays.state[name]
                first, stop = self.rows.first - state.halo, self.rows.stop + state.halo
                buffer = read_buffer(state, part, iteration)
                self._state[name].to_device(queue, buffer, first, stop)

    def _copy_in(self, queue: Queue, name: str, first: int, stop: int) -> None:
        start, end = self._arrays.span(name, first, stop)
        self._split[name].to_device(queue, 0, start, end, stop - first)

    def store_state(
        self,
        queue: Queue,
        names: Iterable[str],
        iteration: int,
        parts: Iterable[tuple[int, int]],
    ) -> None:
        """Copy rows of these state arrays, as of the end of `iteration`, to the home."""
        for first, stop in parts:
            for name in names:
                buffer = write_buffer(self._arrays.state[name], Part.ITERATION, iteration)
                self._state[name].to_host(queue, buffer, first, stop)

    def store(self, queue: Queue, names: Iterable[str], part: Part, iteration: int) -> None:
        first, stop = self.rows.first, self.rows.stop
        for name in names:
            state = self._arrays.state.get(name)
            if state is not None:
                buffer = write_buffer(state, part, iteration)
                self.of(name).to_host(queue, buffer, first, stop)
            elif not self._arrays.specs[name].is_whole:
                self._split[name].to_host(queue, 0, first, stop)
            elif self.rows.is_first:
                self._arrays.whole[name].to_host(queue, 0, 0, 1)

    def of(self, name: str) -> DeviceRows:
        return self._state.get(name) or self._arrays.whole[name]

    def views(self, stage: Stage, part: Part, iteration: int) -> tuple[Arrays, Arrays]:
        inputs = {name: self._input(name, part, iteration) for name in stage.inputs}
        outputs = {
            name: self._output(name, part, iteration)
            for name in stage.outputs
            if self.rows.is_first or name in self._arrays.state or name in self._split
        }
        return inputs, outputs

    def _input(self, name: str, part: Part, iteration: int) -> Any:
        state = self._arrays.state.get(name)
        if state is None:
            return self._plain(name)
        rows = self.of(name)
        values = rows.values[read_buffer(state, part, iteration)]
        first = self.rows.first - state.halo - rows.base
        return values if state.is_whole else values[first:][: self.rows.count + 2 * state.halo]

    def _output(self, name: str, part: Part, iteration: int) -> Any:
        state = self._arrays.state.get(name)
        if state is None:
            return self._plain(name)
        values = self.of(name).values[write_buffer(state, part, iteration)]
        first = self.rows.first - self.of(name).base
        return values[first : first + self.rows.count]

    def _plain(self, name: str) -> Any:
        if name in self._split:
            rows = self._split[name]
            first, stop = self._arrays.span(name, self.rows.first, self.rows.stop)
            return rows.values[0][first - rows.base : stop - rows.base]
        return self._arrays.whole[name].values[0][0]


class DeviceRows:
    """Room for `count` rows of one array (entries, if it has pointers), in each of its buffers.

    `homes`: each buffer of the home copy, with `border` rows before row 0 of the load. `base`: the
    row of the load that is first in device memory, where `values` are (buffers, count, ...).
    """

    def __init__(
        self,
        arrays: DeviceArrays,
        homes: Sequence[np.ndarray],
        border: int,
        base: int,
        count: int,
    ) -> None:
        home = homes[0]
        self.base = base
        self._homes = homes
        self._border = border
        self._count = count
        self._row_bytes = prod(home.shape[1:]) * home.itemsize
        self._block = arrays.runtime.allocate(max(1, len(homes) * count * self._row_bytes))
        self.values: Any = arrays.queue.array(
            self._block, 0, (len(homes), count, *home.shape[1:]), home.dtype.str
        )
        self._pins = arrays.pins
        arrays.pins.cover(home)

    def to_device(
        self, queue: Queue, buffer: int, first: int, stop: int, units: int | None = None
    ) -> None:
        """Start a copy of rows from the home; `units`: of the load, if that is another number."""
        copies = self._pins.split([self._copy(buffer, first, stop)])
        queue.copy_in(copies, stop - first if units is None else units)

    def to_host(self, queue: Queue, buffer: int, first: int, stop: int) -> None:
        """Start a copy of rows of the load to the home."""
        queue.copy_out(self._pins.split([self._copy(buffer, first, stop)]), stop - first)

    def all_to_device(self, queue: Queue) -> None:
        for buffer in range(len(self._homes)):
            self.to_device(queue, buffer, self.base, self.base + self._count)

    def _copy(self, buffer: int, first: int, stop: int) -> Copy:
        rows = self._homes[buffer][first + self._border : stop + self._border]
        index = buffer * self._count + first - self.base
        return Copy(self._block, index * self._row_bytes, rows)
