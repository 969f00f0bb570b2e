"""Rows of an iterative job in device memory, and copies of them from and to the home arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from hetsched.devices.accelerator.pinned import Pins
from hetsched.devices.accelerator.runtime import ALLOCATION_BYTES, Copy, Queue, Runtime
from hetsched.devices.base import IterativeJob
from hetsched.errors import DataError
from hetsched.iterations.home import Part, read_buffer, write_buffer
from hetsched.iterations.row_transfers import row_bytes
from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, Iterative, Rows, Stage
from hetsched.workload.protocol import array_bytes

MAX_SLOTS = 3
"""Pieces in device memory at once: one is copied in, one computed, one copied out. Two lose 3 to
5 % in a model of the pipeline, and four gain nothing."""
STREAMED_FRACTION = 8
"""Pieces may take this part of the memory for rows, if not all rows fit. Arbitrary: smaller ones
cost more launches, larger ones leave fewer rows in device memory."""

SPARE_FRACTION = 4
"""Memory for further rows is allocated at either side of all rows, for this part of them: a new
split rarely moves more of them. Arbitrary."""


# ---- how many rows stay in device memory, and how large the pieces of the others are. Pure


@dataclass(frozen=True)
class PieceSizes:
    held: int
    """Rows that stay in device memory, the first of the device's."""
    room: int = 0
    """Rows of a piece; 0: all rows stay."""
    slots: int = 0
    """Pieces that may be in device memory at once."""


def piece_overhead(workload: Iterative, params: Any) -> int:
    """Return the bytes of one piece besides its rows: halos, and what arrays are rounded up to."""
    states = workload.state(params)
    halos = sum(
        (2 if state.has_two_buffers else 1)
        * (2 * state.halo * row_bytes(state.unit_shape, state.dtype))
        for state in states
    )
    return halos + ALLOCATION_BYTES * (len(workload.arrays(params)) + len(states))


def piece_sizes(count: int, granule: int, demand: MemoryDemand, overhead: int) -> PieceSizes:
    """Return the sizes for `count` rows, so that everything takes at most `demand.limit`.

    Rows are multiples of the granule where that many fit, so that kernels round alike whether
    rows stay or not. Raises DataError if not even one row fits.
    """
    if _limited(demand, overhead, 1).fits([count]):
        return PieceSizes(count)
    for slots in range(MAX_SLOTS, 1, -1):
        rows = _limited(demand, overhead, slots + 1)
        if rows.fits([1] * slots):
            return _divided(rows.max_chunk(count), slots, granule)
    rows = _limited(demand, overhead, 1)
    if not rows.fits([1]):
        need = demand.need([1]) + overhead
        raise DataError(
            f"one row needs {need} bytes of device memory, the limit is {demand.limit}"
        )
    return PieceSizes(0, rows.max_chunk(count), 1)


def spare_rows(rows: Rows, demand: MemoryDemand, overhead: int) -> tuple[int, int]:
    """Return for how many rows before and after `rows`, which all stay, there is memory.

    So that rows that come later needn't move the others. At most a part of the rows.
    """
    fitting = _limited(demand, overhead, 1)
    if not fitting.fits([rows.count]):  # rows nearby have more entries
        return 0, 0
    extra = fitting.max_chunk(rows.load) - rows.count
    most = rows.count // SPARE_FRACTION
    before = min(rows.first, most, extra)
    return before, min(rows.load - rows.stop, most, extra - before)


def _divided(rows: int, slots: int, granule: int) -> PieceSizes:
    room = rows // STREAMED_FRACTION // slots // granule * granule
    room = room or min(granule, max(1, rows // slots))
    held = max(0, rows - slots * room)
    return PieceSizes(held // granule * granule, room, slots)


def _limited(demand: MemoryDemand, overhead: int, pieces: int) -> MemoryDemand:
    assert demand.limit is not None
    return replace(demand, limit=max(0, demand.limit - pieces * overhead))


# ---- arrays in device memory


class DeviceArrays:
    """What all pieces need to allocate their arrays, and the whole arrays that they share."""

    def __init__(self, runtime: Runtime, queue: Queue, pins: Pins, job: IterativeJob) -> None:
        """`queue`: of kernels."""
        self.runtime, self.queue, self.pins, self.job = runtime, queue, pins, job
        workload, params = job.workload, job.job.params
        self.specs = {spec.name: spec for spec in workload.arrays(params)}
        self.state = {state.name: state for state in workload.state(params)}
        self.names = [*self.specs, *self.state]
        self.whole: dict[str, DeviceRows] = {}
        self._pointers = {
            spec.name: _rising(job.home.array(spec.pointers), spec.unit_shape[0])
            for spec in self.specs.values()
            if spec.pointers not in ("", spec.name)
        }

    def is_whole(self, name: str) -> bool:
        """Whether all pieces share the array."""
        state = self.state.get(name)
        return state.is_whole if state is not None else self.is_one(name)

    def is_one(self, name: str) -> bool:
        """Whether it has no rows: kernels get all of it."""
        spec = self.specs.get(name)
        return spec is not None and spec.is_whole and not spec.pointers

    def span(self, name: str, first: int, stop: int, *, read: bool = False) -> tuple[int, int]:
        """Return the rows of an array, or its entries, that belong to these rows of the load.

        `read`: what kernels of these rows read of it, which may be more.
        """
        state = self.state.get(name)
        if self.is_one(name):
            return 0, 1
        if state is not None and read:
            halo = state.halo
            return (0, self.job.load) if state.is_whole else (first - halo, stop + halo)
        if name in self._pointers:
            return int(self._pointers[name][first]), int(self._pointers[name][stop])
        return first, stop + (state is None and self.specs[name].pointers == name)

    def buffer(self, name: str, part: Part, iteration: int, *, read: bool = False) -> int:
        state = self.state.get(name)
        if state is None:
            return 0
        return (read_buffer if read else write_buffer)(state, part, iteration)

    def most(self, name: str, rows: tuple[int, int], count: int) -> int:
        """Return the most that `count` consecutive rows of `rows` have of an array."""
        first, stop = rows
        count, pointers = min(count, stop - first), self._pointers.get(name)
        if pointers is None:
            start, end = self.span(name, 0, count, read=True)
            return end - start
        own = pointers[first : stop + 1]
        return int((own[count:] - own[: len(own) - count]).max())

    def demand(self, average: MemoryDemand, rows: tuple[int, int]) -> MemoryDemand:
        """Return a demand for any of `rows`, which may have more entries than the average row."""
        by_row = {
            spec: row_bytes(spec.unit_shape[1:], spec.dtype)
            for spec in self.specs.values()
            if spec.pointers
        }
        if not by_row:
            return average
        inputs, mean = average.input_bytes, sum(map(array_bytes, by_row)) / self.job.load

        def input_bytes(count: int) -> float:
            most = sum(size * self.most(spec.name, rows, count) for spec, size in by_row.items())
            declared = inputs(count) if callable(inputs) else inputs * count
            return declared + max(0.0, most - mean * count)

        return replace(average, input_bytes=input_bytes)

    def load_whole(self) -> Iterator[Copy]:
        """Allocate the arrays that aren't in pieces, for which there is room; copy them in."""
        for name in filter(self.is_whole, self.names):
            start, end = self.span(name, 0, self.job.load)
            self.whole[name] = DeviceRows(self, name, start, end - start)
            yield from self.whole[name].copies(start, end)


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
        self._own = {
            name: DeviceRows(
                arrays, name, self._base(name, self._first), arrays.most(name, within, room)
            )
            for name in arrays.names
            if not arrays.is_whole(name)
        }

    def _base(self, name: str, first: int) -> int:
        return self._arrays.span(name, first, first, read=True)[0]

    def place(self, rows: Rows) -> None:
        self.rows = rows
        for name, own in self._own.items():
            own.base = self._base(name, rows.first)

    def can_hold(self, rows: Rows) -> bool:
        return self._first <= rows.first and rows.stop <= self._stop

    def of(self, name: str) -> DeviceRows:
        return self._own.get(name) or self._arrays.whole[name]

    def load(self, parts: Iterable[tuple[int, int]]) -> Iterator[Copy]:
        """Copy rows in: inputs, and all buffers of the state, without halos."""
        for first, stop in parts:
            for name, own in self._own.items():
                spec = self._arrays.specs.get(name)
                if spec is None or spec.is_input:
                    yield from own.copies(*self._arrays.span(name, first, stop))

    def load_inputs(self, stage: Stage, part: Part, iteration: int) -> Iterator[Copy]:
        """Copy in what a stage reads, other than whole arrays."""
        for name in stage.inputs:
            if name in self._own:
                span = self._arrays.span(name, self.rows.first, self.rows.stop, read=True)
                buffer = self._arrays.buffer(name, part, iteration, read=True)
                yield from self._own[name].copies(*span, buffer)

    def store(
        self,
        names: Iterable[str],
        part: Part,
        iteration: int,
        parts: Sequence[tuple[int, int]] = (),
    ) -> Iterator[Copy]:
        """Copy out what was written, in these parts of its rows or in all."""
        for first, stop in parts or [(self.rows.first, self.rows.stop)]:
            for name in filter(self._writes, names):
                buffer = self._arrays.buffer(name, part, iteration)
                yield from self.of(name).copies(*self._arrays.span(name, first, stop), buffer)

    def views(self, stage: Stage, part: Part, iteration: int) -> tuple[Arrays, Arrays]:
        arrays, own = self._arrays, (self.rows.first, self.rows.stop)

        def view(name: str, *, read: bool) -> Any:
            rows, (first, stop) = self.of(name), arrays.span(name, *own, read=read)
            buffer = rows.values[arrays.buffer(name, part, iteration, read=read)]
            return (
                buffer[0] if arrays.is_one(name) else buffer[first - rows.base : stop - rows.base]
            )

        inputs = {name: view(name, read=True) for name in stage.inputs}
        return inputs, {
            name: view(name, read=False) for name in filter(self._writes, stage.outputs)
        }

    def _writes(self, name: str) -> bool:
        """Whether kernels of these rows write an array: a whole output those of the first row."""
        return self.rows.is_first or not self._arrays.is_one(name)


class DeviceRows:
    """Room for `count` rows of one array (entries, if it has pointers), in each of its buffers.

    `base`: the row of the load that is first in device memory, where `values` are (buffers, count,
    ...).
    """

    def __init__(self, arrays: DeviceArrays, name: str, base: int, count: int) -> None:
        home, state = arrays.job.home.array(name), arrays.state.get(name)
        self.base = base
        self._border = 0 if state is None else state.halo
        """Rows of the home copy before row 0 of the load."""
        if state is None:
            home = home[np.newaxis]
        if arrays.is_one(name):
            home = home[np.newaxis]
        self._homes = home
        self._count = count
        self._row_bytes = prod(home.shape[2:]) * home.itemsize
        self._block = arrays.runtime.allocate(max(1, len(home) * count * self._row_bytes))
        self.values: Any = arrays.queue.array(
            self._block, 0, (len(home), count, *home.shape[2:]), home.dtype.str
        )
        arrays.pins.cover(home)

    def copies(self, first: int, stop: int, buffer: int | None = None) -> Iterator[Copy]:
        """Copy rows of the load from or to the home, in one buffer or in all."""
        for each in range(len(self._homes)) if buffer is None else [buffer]:
            index = each * self._count + first - self.base
            home = self._homes[each, first + self._border : stop + self._border]
            yield Copy(self._block, index * self._row_bytes, home)
