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
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hetsched.devices.accelerator.pinned import Pins
from hetsched.devices.accelerator.preparation import SharedWorkArea
from hetsched.devices.accelerator.rows import (
    SPARE_FRACTION,
    DeviceArrays,
    RowPiece,
    piece_overhead,
    piece_sizes,
    spare_rows,
)
from hetsched.devices.accelerator.runtime import Copy, PhaseEvents, Queue, Runtime
from hetsched.devices.base import DeviceOutOfMemory, IterativeJob, StageSeconds
from hetsched.devices.kernels import StageTimes, find_variant, make_kernel
from hetsched.errors import DataError
from hetsched.iterations.home import Part, combine, compute_stage
from hetsched.iterations.row_transfers import RowTransfers
from hetsched.iterations.saved_state import saved_names
from hetsched.workload import KernelContext, Rows, Stage, StageCall, StageKernel, Values
from hetsched.workload.protocol import KernelArrays

Guard = Callable[[], AbstractContextManager[None]]


class _StageRun(NamedTuple):
    part: Part
    stage: Stage
    iteration: int
    values: Values


@dataclass
class _Flight:
    piece: RowPiece
    rows: Rows
    partials: Mapping[str, Any]
    events: PhaseEvents


class AcceleratorStages:
    """An executor on an accelerator, of whose memory the job may use `memory` bytes.

    `queues`: of copies in, kernels and copies out. `guard`: a context in which errors of the
    runtime are translated. `times`: of a device whose kernels compile when they are called.
    """

    has_own_core = False
    has_own_memory = True

    def __init__(
        self,
        job: IterativeJob,
        runtime: Runtime,
        queues: Sequence[Queue],
        pins: Pins,
        memory: int,
        guard: Guard,
        times: StageTimes | None,
    ) -> None:
        self._job = job
        self._runtime = runtime
        self._guard = guard
        self._is_deferring = False
        self._saved = set(saved_names(job.workload, job.job.params))
        self._h2d, self._compute, self._d2h = queues
        self._pins = pins
        self._marks = runtime.event(), runtime.event()
        self._flights: deque[_Flight] = deque()
        """Pieces that are copied out, the oldest first."""
        self._arrays = DeviceArrays(runtime, self._compute, pins, job)
        self._reductions = {r.name: r for r in job.workload.reductions(job.job.params)}
        self._transfers = RowTransfers(job.workload, job.job.params)
        self._rows = Rows(0, 0, job.load)
        self._pieces: list[tuple[RowPiece, Rows]] = []
        """All own rows, and the memory that they are in, or pass through in turn."""
        self._held: RowPiece | None = None
        """The first piece, if its rows stay."""
        self._has_new_rows = False
        self._missing: list[tuple[int, int]] = []
        """Parts of the held rows that are in the home arrays only."""
        self._demand = replace(job.job.demand, limit=memory)
        context = KernelContext(
            runtime.kernels, 1, job.job.cache, runtime.xp, SharedWorkArea(runtime, 0), job.job.say
        )
        variant = find_variant(job.job, runtime.kernels)
        kernels: Any = make_kernel(variant, job.job, context)
        self._kernels: Mapping[str, StageKernel] = kernels
        self._times = times
        if times is not None:
            times.begin(job, variant)
        # They fill arrays and make plans in the default queue, which ours don't wait for.
        runtime.synchronize()

    def begin(self) -> None:
        self._is_deferring = False
        self._drop()

    def defer(self) -> None:
        self._is_deferring = True

    def adopt(self, rows: Rows, iteration: int) -> float:
        seconds = 0.0
        if rows != self._rows:
            if self._held and len(self._pieces) == 1 and self._held.can_hold(rows):
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
            if not self._pieces:
                self._place()
            if self._has_new_rows:
                self._load()
            flights = [
                _Flight(
                    piece,
                    rows,
                    {name: np.empty_like(array) for name, array in partials.items()},
                    PhaseEvents(self._runtime),
                )
                for piece, rows in self._pieces
            ]
            run, times = _StageRun(part, stage, iteration, values), self._times
            seconds = self._run(run, flights)
            if times and times.is_to_repeat(part, stage, self._rows.count, seconds.compute):
                again = self._run(run, flights)  # what other devices wrote isn't copied again
                seconds = StageSeconds(again.compute, max(seconds.transfer, again.transfer))
            for name, target in partials.items():
                parts = np.stack([flight.partials[name] for flight in flights])[np.newaxis]
                target[...] = combine(self._reductions[name], parts, 0, range(len(flights)))
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
        with self._guard():
            queue, (begin, end) = self._d2h, self._marks
            state = self._arrays.state
            names = [name for name in self._saved if name in state and not state[name].is_whole]
            copies = held.store(names, Part.ITERATION, iteration, parts)
            queue.record(begin)
            queue.copy_out(self._pins.split(copies), sum(stop - first for first, stop in parts))
            queue.record(end)
            end.wait()
            return end.seconds_after(begin)

    # ---- pieces of the device's rows

    def _drop(self) -> None:
        """Free device memory: the home arrays have what comes next."""
        self._pieces, self._held, self._missing = [], None, []

    def _shift(self, held: RowPiece, rows: Rows, iteration: int) -> float:
        """Hold `rows`; copy those that leave, and the new halos of others. Others come later."""
        old = (held.rows.first, held.rows.stop)
        new = (rows.first, rows.stop)
        halo = max((state.halo for state in self._arrays.state.values()), default=0)
        inner = (new[0] + halo, max(new[0] + halo, new[1] - halo))
        leaving = _without(old, inner) if self._is_deferring else []
        seconds = self._write_rows(held, iteration, leaving) if leaving else 0.0
        # Rows that were to be copied in before, and haven't been, are copied with the new ones.
        due = [(max(first, new[0]), min(stop, new[1])) for first, stop in self._missing]
        self._missing = [*_without(new, old), *due]
        held.rows = rows
        self._pieces, self._has_new_rows = [(held, rows)], True
        return seconds

    def _load(self) -> None:
        """Copy rows in that the device hasn't; others have stored them.

        Of whole arrays those of others are copied before stages that read them, but not its own.
        """
        copies = list[Copy]()
        if self._held is not None:
            copies += self._held.load(part for part in self._missing if part[0] < part[1])
        for name, whole in self._arrays.whole.items():
            if name in self._arrays.state:
                copies += whole.copies(self._rows.first, self._rows.stop)
        self._copy_in(copies)
        self._transfers.forget()
        self._missing, self._has_new_rows = [], False

    def _place(self) -> None:
        """Allocate memory, and load the rows that stay. Raises DeviceOutOfMemory."""
        arrays, rows = self._arrays, self._rows
        if not arrays.whole:
            self._copy_in(list(arrays.load_whole()))
        workload, params = self._job.workload, self._job.job.params
        overhead, granule = piece_overhead(workload, params), workload.granule(params)
        own = (rows.first, rows.stop)
        try:
            sizes = piece_sizes(rows.count, granule, arrays.demand(self._demand, own), overhead)
        except DataError as error:
            raise DeviceOutOfMemory(str(error)) from error
        pieces: list[tuple[RowPiece, Rows]] = []
        if sizes.held:
            before, after = 0, 0
            if not sizes.slots:
                most = rows.count // SPARE_FRACTION
                nearby = (max(0, rows.first - most), min(rows.load, rows.stop + most))
                before, after = spare_rows(rows, arrays.demand(self._demand, nearby), overhead)
            held = self._after(0, sizes.held)
            within = (held.first - before, held.stop + after)
            self._held = RowPiece(arrays, held, within[1] - within[0], within, before)
            pieces.append((self._held, held))
            self._missing = [(held.first, held.stop)]
        first = self._after(0, sizes.room)
        slots = [RowPiece(arrays, first, sizes.room, own) for _ in range(sizes.slots)]
        starts = range(sizes.held, rows.count, sizes.room) if slots else ()
        streamed = (self._after(start, sizes.room) for start in starts)
        self._pieces = [*pieces, *zip(itertools.cycle(slots), streamed)]
        self._has_new_rows = True

    def _after(self, start: int, count: int) -> Rows:
        first = self._rows.first + start
        return Rows(first, min(first + count, self._rows.stop), self._rows.load)

    # ---- a stage

    def _run(self, call: _StageRun, flights: list[_Flight]) -> StageSeconds:
        """Run all pieces; return when the last copy out has ended.

        Transfer is the time in which no kernel ran.
        """
        begin, end = self._marks
        try:
            self._h2d.record(begin)
            self._fetch(call)
            seconds = self._issue(call, deque(flights))
            self._d2h.record(end)
            end.wait()
            while self._flights:
                seconds += self._land()
        except BaseException:
            with contextlib.suppress(Exception):  # after a sticky fault nothing is copied
                self._runtime.synchronize()
            self._flights.clear()
            raise
        return StageSeconds(seconds, max(0.0, end.seconds_after(begin) - seconds))

    def _fetch(self, call: _StageRun) -> None:
        """Copy in what other devices wrote, which all pieces wait for."""
        rows = self._rows if self._held is None else self._held.rows
        copies = list[Copy]()
        for copy in self._transfers.to_device(call.stage, call.part, call.iteration, rows):
            target = self._arrays.whole.get(copy.array.name)
            if target is None and self._held is not None:
                target = self._held.of(copy.array.name)
            if target is not None:
                copies += target.copies(copy.first, copy.stop, copy.buffer)
        self._copy_in(copies)

    def _copy_in(self, copies: Sequence[Copy]) -> None:
        self._h2d.copy_in(self._pins.split(copies), _largest(copies))

    def _issue(self, call: _StageRun, waiting: deque[_Flight]) -> float:
        """Issue all operations; return the seconds of kernels that have ended."""
        seconds, held = 0.0, None
        last: dict[int, _Flight] = {}
        """The last piece in each memory."""
        ready: deque[_Flight] = deque()
        while waiting or ready:
            taken = {id(flight.piece) for flight in ready}
            while waiting and id(waiting[0].piece) not in taken:
                flight = waiting.popleft()
                self._begin(call, flight, last.get(id(flight.piece)))
                last[id(flight.piece)] = flight
                taken.add(id(flight.piece))
                ready.append(flight)
            flight = ready.popleft()
            self._launch(call, flight)
            if flight.piece is self._held:
                held = flight  # others are copied out first, as pieces need their memory
            else:
                self._end(call, flight)
            # An older piece than any in memory: waiting for it doesn't keep queues from work.
            if len(self._flights) > 2 * len(last):
                seconds += self._land()
        if held is not None:
            self._end(call, held)
        return seconds

    def _begin(self, call: _StageRun, flight: _Flight, previous: _Flight | None) -> None:
        if previous is not None:
            self._h2d.wait(previous.events.out_end)
        if flight.piece is not self._held:
            flight.piece.place(flight.rows)
            copies = flight.piece.load_inputs(call.stage, call.part, call.iteration)
            self._h2d.copy_in(self._pins.split(copies), flight.rows.count)
        self._h2d.record(flight.events.in_end)

    def _launch(self, call: _StageRun, flight: _Flight) -> None:
        own = flight.piece.views(call.stage, call.part, call.iteration)
        inputs, outputs = map(KernelArrays, own)
        kernel = self._kernels[call.stage.name]
        own_call = StageCall(flight.rows, inputs, outputs, call.values, flight.partials)
        run = partial(compute_stage, kernel, own_call)
        self._compute.wait(flight.events.in_end)
        self._compute.record(flight.events.compute_start)
        self._compute.launch(run, flight.rows.count)
        self._compute.record(flight.events.compute_end)

    def _land(self) -> float:
        """Wait for the oldest piece; return the seconds of its kernel."""
        events = self._flights.popleft().events
        events.out_end.wait()
        return events.compute_end.seconds_after(events.compute_start)

    def _end(self, call: _StageRun, flight: _Flight) -> None:
        """Copy out what other devices may read, or what is due."""
        state, part, iteration = self._arrays.state, call.part, call.iteration
        piece, is_due = flight.piece, part is not Part.ITERATION or not self._is_deferring
        stored = [
            name
            for name in call.stage.outputs
            if piece is not self._held
            or name not in state
            or (is_due and (part is not Part.ITERATION or name in self._saved))
        ]
        copies = list(piece.store(stored, part, iteration))
        for copy in self._transfers.to_host(call.stage, part, iteration, piece.rows):
            if copy.array.name not in stored:
                copies += piece.of(copy.array.name).copies(copy.first, copy.stop, copy.buffer)
        self._d2h.wait(flight.events.compute_end)
        self._d2h.copy_out(self._pins.split(copies), _largest(copies))
        self._d2h.record(flight.events.out_end)
        self._flights.append(flight)


def _largest(copies: Iterable[Copy]) -> int:
    """Return the rows of the largest copy, for which they are counted."""
    return max((len(copy.host) for copy in copies), default=0)


def _without(part: tuple[int, int], other: tuple[int, int]) -> list[tuple[int, int]]:
    ends = (part[0], min(part[1], other[0])), (max(part[0], other[1]), part[1])
    return [(first, stop) for first, stop in ends if first < stop]
