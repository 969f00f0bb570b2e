"""Stages of an iterative job on a GPU.

Rows stay in device memory as far as they fit; before a stage the GPU fetches what other devices
wrote, and after it stores what they may read. Rows that don't fit pass through the device in each
stage, piece by piece, from the home and back. One stream orders everything, and the host waits at
the end of a stage, since other devices do, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from hetsched.devices.base import DeviceOutOfMemory
from hetsched.devices.cpu.kernels import find_variant, make_kernel
from hetsched.devices.cuda.iterating.row_piece import DeviceArrays, RowPiece
from hetsched.devices.cuda.memory.device_memory import SharedWorkArea
from hetsched.devices.cuda.memory.pinned_memory import Pins
from hetsched.devices.cuda.runtime import Runtime
from hetsched.devices.iterating import IterativeJob, StageSeconds
from hetsched.errors import DataError
from hetsched.iterations.home import Part
from hetsched.iterations.partials import combine
from hetsched.iterations.row_transfers import RowTransfers
from hetsched.workload import KernelContext, Rows, Stage, StageKernel, Values

STREAMED_FRACTION = 8
"""Rows that don't fit pass through this part of the rows that do. Arbitrary."""

Guard = Callable[[], AbstractContextManager[None]]


class CudaStages:
    """An executor on a GPU.

    Parameters
    ----------
    memory : int, bytes
        Of the device, that the job may use.
    guard : callable
        A context in which errors of CUDA are translated.
    interval : int
        The home copy of all the GPU's rows is renewed after each iteration whose number is a
        multiple of it, and whenever the rows change. Results that other devices read are in the
        home after each stage.
    """

    is_virtual = False
    has_own_core = False

    def __init__(
        self,
        job: IterativeJob,
        runtime: Runtime,
        pins: Pins,
        memory: int,
        guard: Guard,
        interval: int = 1,
    ) -> None:
        self._job = job
        self._guard = guard
        self._interval = interval
        self._stream = runtime.stream()
        self._marks = [runtime.event() for _ in range(4)]
        self._arrays = DeviceArrays(runtime, pins, job)
        self._reductions = {r.name: r for r in job.workload.reductions(job.job.params)}
        self._transfers = RowTransfers(job.workload, job.job.params)
        self._rows = Rows(0, 0, job.load)
        self._held: RowPiece | None = None
        self._streamed: RowPiece | None = None
        self._room = 0
        self._demand = replace(job.job.demand, limit=memory)
        self._kernels = _kernels(job, runtime)

    def adopt(self, rows: Rows, iteration: int) -> float:
        seconds = 0.0
        if rows != self._rows:
            seconds = self.write_back(iteration)
            self._held = self._streamed = None
        self._rows = rows
        return seconds

    def compute(
        self,
        part: Part,
        stage: Stage,
        iteration: int,
        values: Values,
        partials: Mapping[str, Any],
    ) -> StageSeconds:
        with self._guard():
            if self._held is None and self._streamed is None:
                self._place()
            total = StageSeconds(0.0)
            results = []
            for piece, rows in self._pieces():
                piece.place(rows)
                result = {name: np.empty_like(array) for name, array in partials.items()}
                seconds = self._run(piece, part, stage, iteration, values, result)
                total = StageSeconds(
                    total.compute + seconds.compute, total.transfer + seconds.transfer
                )
                results.append(result)
            for name, target in partials.items():
                parts = np.stack([result[name] for result in results])[np.newaxis]
                target[...] = combine(self._reductions[name], parts, 0, range(len(results)))
            self._transfers.on_written(stage, part, iteration)
        for ghost, source in self._job.home.border_copies(stage, part, iteration, self._rows):
            ghost[...] = source
        return total

    def write_back(self, iteration: int) -> float:
        if self._held is None or iteration < 1 or iteration % self._interval == 0:
            return 0.0
        with self._guard():
            begin, end = self._marks[:2]
            self._stream.record(begin)
            state = self._arrays.state.values()
            names = [s.name for s in state if s.has_two_buffers and not s.is_whole]
            self._held.store(self._stream, names, Part.ITERATION, iteration)
            self._stream.record(end)
            end.block()
            return end.milliseconds_after(begin) * 1e-3

    # ---- pieces of the device's rows

    def _place(self) -> None:
        """Allocate and load what fits. Raises DeviceOutOfMemory."""
        if not self._arrays.whole:
            self._arrays.load_whole(self._stream)
        count = self._rows.count
        try:
            fits = self._demand.max_chunk(count)
        except DataError as error:
            raise DeviceOutOfMemory(str(error)) from error
        if fits < count:
            self._room = max(1, fits // STREAMED_FRACTION)
            fits -= self._room
            self._streamed = RowPiece(self._arrays, self._after(0, self._room), self._room)
        if fits:
            self._held = RowPiece(self._arrays, self._after(0, fits), fits)
            self._held.load(self._stream)
        self._transfers.forget()

    def _after(self, start: int, count: int) -> Rows:
        """Return `count` of the device's rows, or fewer at their end, from its row `start` on."""
        first = self._rows.first + start
        return Rows(first, min(first + count, self._rows.stop), self._rows.load)

    def _pieces(self) -> Iterator[tuple[RowPiece, Rows]]:
        """Yield the pieces and their rows, in order."""
        start = 0
        if self._held is not None:
            yield self._held, self._held.rows
            start = self._held.rows.count
        if self._streamed is not None:
            for offset in range(start, self._rows.count, self._room):
                yield self._streamed, self._after(offset, self._room)

    # ---- a stage of a piece

    def _run(
        self,
        piece: RowPiece,
        part: Part,
        stage: Stage,
        iteration: int,
        values: Values,
        partials: Mapping[str, Any],
    ) -> StageSeconds:
        begin, loaded, computed, end = self._marks
        self._stream.record(begin)
        self._fetch(piece, part, stage, iteration)
        self._stream.record(loaded)
        inputs, outputs = piece.views(stage, part, iteration)
        kernel, rows = self._kernels[stage.name], piece.rows
        self._stream.launch(lambda: kernel(rows, inputs, outputs, values, partials))
        self._stream.record(computed)
        self._store(piece, part, stage, iteration)
        self._stream.record(end)
        end.block()
        compute = computed.milliseconds_after(loaded)
        return StageSeconds(compute * 1e-3, (end.milliseconds_after(begin) - compute) * 1e-3)

    def _fetch(self, piece: RowPiece, part: Part, stage: Stage, iteration: int) -> None:
        """Copy what other devices wrote, or all that a streamed piece reads, to the device."""
        rows = self._rows if self._held is None else self._held.rows
        for copy in self._transfers.to_device(stage, part, iteration, rows):
            if copy.array.is_whole or piece is self._held:
                piece.of(copy.array.name).to_device(
                    self._stream, copy.buffer, copy.first, copy.stop
                )
        if piece is self._streamed:
            piece.load_inputs(self._stream, stage, part, iteration)

    def _store(self, piece: RowPiece, part: Part, stage: Stage, iteration: int) -> None:
        """Copy what other devices may read, or what is due, to the home."""
        state = self._arrays.state
        is_due = part is not Part.ITERATION or iteration % self._interval == 0
        stored = []
        for name in stage.outputs:
            is_scratch = (
                part is Part.ITERATION and name in state and not state[name].has_two_buffers
            )
            is_whole_copy_due = name not in state or (is_due and not is_scratch)
            if piece is self._streamed or is_whole_copy_due:
                stored.append(name)
        piece.store(self._stream, stored, part, iteration)
        for copy in self._transfers.to_host(stage, part, iteration, piece.rows):
            if copy.array.name not in stored:
                piece.of(copy.array.name).to_host(self._stream, copy.buffer, copy.first, copy.stop)


def _kernels(job: IterativeJob, runtime: Runtime) -> Mapping[str, StageKernel]:
    """Return new kernels of the job's variant, by stage. Raises UsageError."""
    variant = find_variant(job.job, runtime.kernels)
    context = KernelContext(
        runtime.kernels, 1, job.job.cache, runtime.xp, SharedWorkArea(runtime, 0), job.job.say
    )
    kernels: Mapping[str, StageKernel] = make_kernel(variant, job.job, context)  # type: ignore[assignment]
    return kernels
