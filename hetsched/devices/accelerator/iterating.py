"""Stages of an iterative job on an accelerator.

Rows stay in device memory as far as they fit; before a stage the device fetches what other devices
wrote, and after it stores what they may read. Rows that don't fit pass through the device in each
stage, piece by piece, from the home and back, while the others are computed. The host waits at the
end of a stage, since other devices do, too.

Pieces have the same queues and events as the chunks of other jobs, and the same waits.
Kernels may block the host until they have ended, since they return partial results to it; so the
copies that can run meanwhile are issued before each kernel.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hetsched.devices.accelerator.piece_sizes import (
    PieceSizes,
    piece_overhead,
    piece_sizes,
    spare_rows,
)
from hetsched.devices.accelerator.pinned import Pins
from hetsched.devices.accelerator.preparation import SharedWorkArea
from hetsched.devices.accelerator.rows import DeviceArrays, RowPiece
from hetsched.devices.accelerator.runtime import EventPool, PhaseEvents, Queue, Runtime
from hetsched.devices.base import DeviceOutOfMemory, IterativeJob, StageSeconds
from hetsched.devices.kernels import find_variant, make_kernel
from hetsched.errors import DataError
from hetsched.iterations.home import (
    Part,
    combine,
)
from hetsched.iterations.row_transfers import RowTransfers
from hetsched.iterations.saved_state import saved_names
from hetsched.workload import KernelContext, Rows, Stage, StageKernel, Values
from hetsched.workload.protocol import KernelArrays

Guard = Callable[[], AbstractContextManager[None]]


class StageQueues(NamedTuple):
    """The queues of a device."""

    copy_in: Queue
    compute: Queue
    copy_out: Queue


@dataclass(frozen=True)
class _StageCall:
    """A stage that is computed now."""

    part: Part
    stage: Stage
    iteration: int
    values: Values


class AcceleratorStages:
    """An executor on an accelerator.

    Parameters
    ----------
    queues, events
        Of the device.
    memory : int, bytes
        Of the device, that the job may use.
    guard : callable
        A context in which errors of the runtime are translated.
    """

    is_virtual = False
    has_own_core = False
    has_own_memory = True

    def __init__(
        self,
        job: IterativeJob,
        runtime: Runtime,
        queues: StageQueues,
        events: EventPool,
        pins: Pins,
        memory: int,
        guard: Guard,
    ) -> None:
        self._job = job
        self._guard = guard
        self._is_deferring = False
        self._saved = set(saved_names(job.workload, job.job.params))
        self._queues = queues
        self._pipeline = PiecePipeline(runtime, queues, events)
        self._marks = runtime.event(), runtime.event()
        self._arrays = DeviceArrays(runtime, queues.compute, pins, job)
        self._reductions = {r.name: r for r in job.workload.reductions(job.job.params)}
        self._transfers = RowTransfers(job.workload, job.job.params)
        self._rows = Rows(0, 0, job.load)
        self._sizes: PieceSizes | None = None
        self._held: RowPiece | None = None
        self._slots: list[RowPiece] = []
        self._has_new_rows = False
        self._missing: list[tuple[int, int]] = []
        """Parts of the held rows that are in the home arrays only."""
        self._demand = replace(job.job.demand, limit=memory)
        self._kernels = _kernels(job, runtime)

    def begin(self) -> None:
        self._is_deferring = False
        self._drop()

    def defer(self) -> None:
        self._is_deferring = True

    def adopt(self, rows: Rows, iteration: int) -> float:
        seconds = 0.0
        if rows != self._rows:
            if self._held is not None and not self._slots and self._held.can_shift(rows):
                seconds = self._shift(self._held, rows, iteration)
            else:
                seconds = self.write_back(iteration)
                self._drop()
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
            sizes = self._sizes or self._place()
            if self._has_new_rows:
                self._load()
            call = _StageCall(part, stage, iteration, values)
            pieces = list(self._pieces(sizes))
            results = [{n: np.empty_like(a) for n, a in partials.items()} for _ in pieces]
            works = [
                self._work(call, piece, rows, result)
                for (piece, rows), result in zip(pieces, results, strict=True)
            ]
            works[0] = self._with_fetch(call, works[0])
            seconds = self._run(works)
            for name, target in partials.items():
                parts = np.stack([result[name] for result in results])[np.newaxis]
                target[...] = combine(self._reductions[name], parts, 0, range(len(results)))
            self._transfers.on_written(stage, part, iteration)
        for ghost, source in self._job.home.border_copies(stage, part, iteration, self._rows):
            ghost[...] = source
        return seconds

    def write_back(self, iteration: int) -> float:
        if self._held is None or not self._is_deferring:
            return 0.0
        held = self._held.rows
        return self._write_rows(self._held, iteration, [(held.first, held.stop)])

    def _write_rows(
        self, held: RowPiece, iteration: int, parts: Sequence[tuple[int, int]]
    ) -> float:
        """Copy rows of the state to the home arrays; return the seconds."""
        with self._guard():
            queue, (begin, end) = self._queues.copy_out, self._marks
            queue.record(begin)
            state = self._arrays.state
            names = [name for name in self._saved if name in state and not state[name].is_whole]
            held.store_state(queue, names, iteration, parts)
            queue.record(end)
            end.wait()
            return end.seconds_after(begin)

    # ---- pieces of the device's rows

    def _drop(self) -> None:
        """Free device memory: the home arrays have what comes next."""
        self._sizes, self._held, self._slots, self._missing = None, None, [], []

    def _shift(self, held: RowPiece, rows: Rows, iteration: int) -> float:
        """Hold `rows`; copy those that leave, and the new halos of others. Others come later."""
        old = (held.rows.first, held.rows.stop)
        new = (rows.first, rows.stop)
        halo = max((state.halo for state in self._arrays.state.values()), default=0)
        inner = (new[0] + halo, max(new[0] + halo, new[1] - halo))
        leaving = _without(old, inner) if self._is_deferring else []
        seconds = self._write_rows(held, iteration, leaving) if leaving else 0.0
        # Rows of which a copy in was due come with the next ones.
        self._missing = [*_without(new, old), *(_both(part, new) for part in self._missing)]
        held.shift(rows)
        self._has_new_rows = True
        self._sizes = PieceSizes(rows.count)
        return seconds

    def _load(self) -> None:
        """Copy rows in that the device hasn't; others have stored them.

        Of whole arrays those of others are copied before stages that read them, but not its own.
        """
        queue, own = self._queues.copy_in, self._rows
        if self._held is not None:
            self._held.load(queue, [part for part in self._missing if part[0] < part[1]])
        for state in self._arrays.state.values():
            if state.is_whole:
                for buffer in range(2 if state.has_two_buffers else 1):
                    self._arrays.whole[state.name].to_device(queue, buffer, own.first, own.stop)
        self._transfers.forget()
        self._missing, self._has_new_rows = [], False

    def _place(self) -> PieceSizes:
        """Allocate memory, and load the rows that stay. Raises DeviceOutOfMemory."""
        arrays, queue = self._arrays, self._queues.copy_in
        if not arrays.whole:
            arrays.load_whole(queue)
        workload, params = self._job.workload, self._job.job.params
        overhead = piece_overhead(workload, params)
        granule = workload.granule(params)
        try:
            sizes = piece_sizes(self._rows.count, granule, self._demand, overhead)
        except DataError as error:
            raise DeviceOutOfMemory(str(error)) from error
        if sizes.held:
            before, after = (
                (0, 0) if sizes.slots else spare_rows(self._rows, self._demand, overhead)
            )
            held = self._after(0, sizes.held)
            self._held = RowPiece(arrays, held, before + sizes.held + after, before)
            self._missing = [(held.first, held.stop)]
        rows = self._after(0, sizes.room)
        self._slots = [RowPiece(arrays, rows, sizes.room) for _ in range(sizes.slots)]
        self._sizes, self._has_new_rows = sizes, True
        return sizes

    def _after(self, start: int, count: int) -> Rows:
        """Return `count` of the device's rows, or fewer at their end, from its row `start` on."""
        first = self._rows.first + start
        return Rows(first, min(first + count, self._rows.stop), self._rows.load)

    def _pieces(self, sizes: PieceSizes) -> Iterator[tuple[RowPiece, Rows]]:
        """Yield the pieces and their rows, in order."""
        if self._held is not None:
            yield self._held, self._held.rows
        if self._slots:
            starts = range(sizes.held, self._rows.count, sizes.room)
            for number, start in enumerate(starts):
                yield self._slots[number % len(self._slots)], self._after(start, sizes.room)

    # ---- a stage

    def _run(self, works: list[PieceWork]) -> StageSeconds:
        try:
            return self._pipeline.run(works)
        except BaseException:
            with contextlib.suppress(Exception):  # after a sticky fault nothing is copied
                self._pipeline.abandon()
            raise

    def _work(
        self, call: _StageCall, piece: RowPiece, rows: Rows, partials: Mapping[str, Any]
    ) -> PieceWork:
        """Return what to do with a piece in the stage."""

        def copy_in(queue: Queue) -> None:
            if piece is not self._held:
                piece.place(rows)
                piece.load_inputs(queue, call.stage, call.part, call.iteration)

        def launch(queue: Queue) -> None:
            own = piece.views(call.stage, call.part, call.iteration)
            inputs, outputs = map(KernelArrays, own)
            kernel = self._kernels[call.stage.name]
            run = partial(kernel, rows, inputs, outputs, call.values, partials)
            queue.launch(run, rows.count)

        store = partial(self._store, call, piece)
        return PieceWork(id(piece), copy_in, launch, store, piece is self._held)

    def _with_fetch(self, call: _StageCall, work: PieceWork) -> PieceWork:
        """Return `work` with a copy in of what other devices wrote, which all pieces wait for."""

        def copy_in(queue: Queue) -> None:
            rows = self._rows if self._held is None else self._held.rows
            ranges = self._transfers.to_device(call.stage, call.part, call.iteration, rows)
            for copy in ranges:
                target = self._arrays.whole.get(copy.array.name)
                if target is None and self._held is not None:
                    target = self._held.of(copy.array.name)
                if target is not None:
                    target.to_device(queue, copy.buffer, copy.first, copy.stop)
            work.copy_in(queue)

        return replace(work, copy_in=copy_in)

    def _store(self, call: _StageCall, piece: RowPiece, queue: Queue) -> None:
        """Copy what other devices may read, or what is due, to the home."""
        state, part, iteration = self._arrays.state, call.part, call.iteration
        is_due = part is not Part.ITERATION or not self._is_deferring
        stored = [
            name
            for name in call.stage.outputs
            if piece is not self._held
            or name not in state
            or (is_due and (part is not Part.ITERATION or name in self._saved))
        ]
        piece.store(queue, stored, part, iteration)
        for copy in self._transfers.to_host(call.stage, part, iteration, piece.rows):
            if copy.array.name not in stored:
                piece.of(copy.array.name).to_host(queue, copy.buffer, copy.first, copy.stop)


def _without(part: tuple[int, int], other: tuple[int, int]) -> list[tuple[int, int]]:
    """Return what is in `part` but not in `other`."""
    ends = (part[0], min(part[1], other[0])), (max(part[0], other[1]), part[1])
    return [(first, stop) for first, stop in ends if first < stop]


def _both(part: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Return what is in both; nothing if the first row isn't before the second."""
    return max(part[0], other[0]), min(part[1], other[1])


def _kernels(job: IterativeJob, runtime: Runtime) -> Mapping[str, StageKernel]:
    """Return new kernels of the job's variant, by stage. Raises UsageError."""
    variant = find_variant(job.job, runtime.kernels)
    context = KernelContext(
        runtime.kernels, 1, job.job.cache, runtime.xp, SharedWorkArea(runtime, 0), job.job.say
    )
    kernels: Mapping[str, StageKernel] = make_kernel(variant, job.job, context)  # type: ignore[assignment]
    # They fill arrays and make plans in the default queue, which ours don't wait for.
    runtime.synchronize()
    return kernels


# ---- one stage: pieces overlap


@dataclass(frozen=True)
class PieceWork:
    """What is to be done with a piece in a stage.

    Attributes
    ----------
    slot : hashable
        The memory that it uses: it is free again after the copy out.
    copy_in, launch, copy_out : callable
        Issue operations to the queue.
    is_held : bool
        No other piece needs the slot: others are copied out first.
    """

    slot: Hashable
    copy_in: Callable[[Queue], None]
    launch: Callable[[Queue], None]
    copy_out: Callable[[Queue], None]
    is_held: bool = False


class PiecePipeline:
    """Runs the pieces of a stage."""

    def __init__(self, runtime: Runtime, queues: StageQueues, events: EventPool) -> None:
        self._runtime = runtime
        self._queues = queues
        self._pool = events
        self._begin, self._end = runtime.event(), runtime.event()
        self._flights: deque[PhaseEvents] = deque()

    def run(self, works: Sequence[PieceWork]) -> StageSeconds:
        """Run all pieces; return when the last copy out has ended.

        Transfer is the time in which no kernel ran.
        """
        queues = self._queues
        queues.copy_in.record(self._begin)
        seconds = self._compute(deque(works))
        queues.copy_out.record(self._end)
        self._end.wait()
        while self._flights:
            seconds += self._land()
        total = self._end.seconds_after(self._begin)
        return StageSeconds(seconds, max(0.0, total - seconds))

    def abandon(self) -> None:
        """Wait until nothing is copied any more; what has been issued is given up."""
        self._runtime.synchronize()
        while self._flights:
            self._pool.give_back(self._flights.popleft())

    def _compute(self, waiting: deque[PieceWork]) -> float:
        """Issue all operations; return the seconds of kernels that have ended."""
        seconds = 0.0
        used: dict[Hashable, PhaseEvents] = {}
        """Slot -> events of the last piece there."""
        ready: deque[tuple[PieceWork, PhaseEvents]] = deque()
        held = []
        while waiting or ready:
            taken = {work.slot for work, _ in ready}
            while waiting and waiting[0].slot not in taken:
                work = waiting.popleft()
                taken.add(work.slot)
                ready.append((work, self._copy_in(work, used.get(work.slot))))
                used[work.slot] = ready[-1][1]
            work, events = ready.popleft()
            self._launch(work, events)
            if work.is_held:
                held.append((work, events))
            else:
                self._copy_out(work, events)
            # An older piece than any of the slots': waiting for it doesn't keep queues from work.
            if len(self._flights) > 2 * len(used):
                seconds += self._land()
        for work, events in held:
            self._copy_out(work, events)
        return seconds

    def _copy_in(self, work: PieceWork, previous: PhaseEvents | None) -> PhaseEvents:
        queue, events = self._queues.copy_in, self._pool.take()
        if previous is not None:
            queue.wait(previous.out_end)
        work.copy_in(queue)
        queue.record(events.in_end)
        return events

    def _launch(self, work: PieceWork, events: PhaseEvents) -> None:
        compute = self._queues.compute
        compute.wait(events.in_end)
        compute.record(events.compute_start)
        work.launch(compute)
        compute.record(events.compute_end)

    def _copy_out(self, work: PieceWork, events: PhaseEvents) -> None:
        out = self._queues.copy_out
        out.wait(events.compute_end)
        work.copy_out(out)
        out.record(events.out_end)
        self._flights.append(events)

    def _land(self) -> float:
        """Wait for the oldest piece; return the seconds of its kernel."""
        events = self._flights.popleft()
        events.out_end.wait()
        seconds = events.compute_end.seconds_after(events.compute_start)
        self._pool.give_back(events)
        return seconds
