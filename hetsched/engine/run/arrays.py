"""Where the arrays of one running job are, including the segments that it allocates."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from hetsched import errors
from hetsched.device_process.arrays import ArenaArray, OpenFile, array_in_file
from hetsched.devices.base import HostArray
from hetsched.engine.admission.resolved_job import (
    ResolvedJob,
    array_bytes,
    fd_of_key,
    file_key,
    is_plain,
)
from hetsched.engine.processes.fleet import Fleet
from hetsched.engine.threads import TaskLate, enter
from hetsched.iterations.home import Part, read_buffer
from hetsched.job import ArenaRef
from hetsched.jobs.table import JobRecord, Owner
from hetsched.planner.records import Assignment
from hetsched.store import output_files
from hetsched.transport import device_messages
from hetsched.transport.arena import Arena, map_unpopulated
from hetsched.transport.control import CONTROL, IterationControl
from hetsched.units import format_bytes
from hetsched.workload import ArraySpec

if TYPE_CHECKING:
    from hetsched.engine.engine import Engine

MAX_QUICK_BYTES = 1 << 30
"""Segments that a process may map after chunks were sent to it: that takes up to 2.5 s per GiB,
which count as time of the first chunk. Arbitrary; less than a tenth of the least deadline."""


class JobArrays:
    """Where the arrays of one job are: of an iterative one all in the arena, with its state."""

    control: IterationControl  # Of an iterative job, once allocated

    # `owner`: whose earlier data the memory may have. `needs_saved`: it can't run without room for
    # what devices save, as it has checkpoints
    def __init__(
        self, job: ResolvedJob, arena: Arena, owner: Owner, *, needs_saved: bool = False
    ) -> None:
        self.job = job
        self._arena, self._owner = arena, owner
        self._needs_saved = needs_saved
        # Chunks zero their outputs themselves; iterations have state that may never be written.
        self._zero = job.iterative is not None and not job.workload.writes_all
        self._allocated: list[int] = []
        # All arrays, as messages to device processes describe them
        self.stored: list[device_messages.StoredArray] = []
        # Output name -> its place in the arena; the job holds a reference to each segment
        self.results: dict[str, ArenaRef] = {}
        self.notes: list[str] = []  # For the job's report
        # Inputs copied to a segment at first, and outputs of an iterative job that become files
        self._loads: dict[str, int] = {}
        self._saves: dict[str, int] = {}

    def place(self) -> None:
        """Decide where arrays are: with the client, in files, in new segments. Raises TryAgain."""
        job, iterative = self.job, self.job.iterative
        in_state = job.results_in_state
        for spec in job.specs:
            if spec.is_input:
                self.stored.append(self._input(spec))
            if spec.is_output and spec.name not in in_state:
                self.stored.append(self._output(spec))
        if iterative is None:
            return
        for array in iterative.work_arrays(job.load, len(job.devices)):
            segment = self._allocate(array_bytes(array, job.load))
            self.stored.append(self._layout(array, segment))
            if array.name == CONTROL:
                words = self._arena.segment(segment).array(array.unit_shape, array.dtype)
                self.control = IterationControl(words)
                self.control.begin()
        self.stored += [self._result_in_state(s) for s in job.specs if s.name in in_state]
        names = [spec.name for spec in job.specs]  # the order that users see
        self.results = dict(sorted(self.results.items(), key=lambda item: names.index(item[0])))
        self._allocate_saved(iterative.saved)

    def _input(self, spec: ArraySpec) -> device_messages.StoredArray:
        job, stored = self.job, self.job.inputs.get(spec.name)
        if stored is not None:
            is_usable = job.in_threads or not stored.lent
            if job.iterative is not None:
                is_usable = is_plain(stored, spec)
            if is_usable:
                return stored
        segment = self._allocate(array_bytes(spec, job.load))
        if stored is not None:
            self._loads[spec.name] = segment
        return self._layout(spec, segment, output=False)

    def _output(self, spec: ArraySpec) -> device_messages.StoredArray:
        file = self.job.outputs.get(spec.name)
        if file is not None and self.job.iterative is None:
            return self._layout(spec, file_key(file.fd), offset=file.offset)
        into = self.job.into.get(spec.name)
        if into is not None and (self.job.in_threads or not into.lent):
            self._arena.retain(into.segment)
            self.results[spec.name] = into
            return replace(self._layout(spec, into.segment, offset=into.offset), lent=into.lent)
        nbytes = array_bytes(spec, self.job.load)
        if file is not None:
            segment = self._saves[spec.name] = self._allocate(nbytes)
        else:
            segment = self._arena.allocate(nbytes, self._owner, zero=self._zero).id
            self.results[spec.name] = self._ref(spec, segment)
        return self._layout(spec, segment)

    def _result_in_state(self, spec: ArraySpec) -> device_messages.StoredArray:
        """Return an output for which the memory of a state array serves."""
        assert self.job.iterative is not None
        ref = self._in_state(spec, self.job.iterative.max_iterations)
        self._arena.retain(ref.segment)
        self.results[spec.name] = ref
        return self._layout(spec, ref.segment, offset=ref.offset)

    def results_after(self, iteration: int) -> dict[str, ArenaRef]:
        """Return the outputs that are in the memory of state arrays, as they are by then."""
        assert self.job.iterative is not None
        specs = {spec.name: spec for spec in self.job.specs}
        return {n: self._in_state(specs[n], iteration) for n in self.job.iterative.results}

    def _in_state(self, spec: ArraySpec, iteration: int) -> ArenaRef:
        job = self.job
        assert job.iterative is not None
        array = job.iterative.results[spec.name]
        (state,) = (stored for stored in self.stored if stored.array == array.name)
        buffer = read_buffer(array, Part.FINISH, iteration)
        first = buffer * (job.load + 2 * array.halo) + array.halo
        return self._ref(spec, state.key, first * array_bytes(spec, job.load) // job.load)

    def _ref(self, spec: ArraySpec, segment: int, offset: int = 0) -> ArenaRef:
        return ArenaRef(segment, spec.shape(self.job.load), np.dtype(spec.dtype).name, offset)

    def _allocate_saved(self, arrays: Sequence[ArraySpec]) -> None:
        """Allocate what devices save their rows in, or nothing, with a note."""
        before = len(self._allocated)
        nbytes = sum(array_bytes(array, self.job.load) for array in arrays)
        # If not, to allocate would release kept results for nothing.
        may_fit = self.nbytes + nbytes <= self._arena.limit
        try:
            if may_fit or self._needs_saved:
                segments = [self._allocate(array_bytes(each, self.job.load)) for each in arrays]
                self.stored += map(self._layout, arrays, segments)
                return
        except errors.TryAgain:
            if self._needs_saved:
                raise
            while len(self._allocated) > before:
                self._arena.release(self._allocated.pop())
        self.notes.append(
            "GPUs store their rows after each iteration: no room in shared memory for"
            f" {format_bytes(nbytes)} to save them in (arena.limit in the config)"
        )

    def _allocate(self, nbytes: int) -> int:
        segment = self._arena.allocate(nbytes, self._owner, zero=self._zero)
        self._allocated.append(segment.id)
        return segment.id

    def _layout(
        self, spec: ArraySpec, key: int, *, offset: int = 0, output: bool = True
    ) -> device_messages.StoredArray:
        shape, dtype = spec.shape(self.job.load), np.dtype(spec.dtype).str
        return device_messages.StoredArray(
            array=spec.name, key=key, shape=shape, dtype=dtype, offset=offset, output=output
        )

    def are_mapped(self, fleet: Fleet, devices: Iterable[str]) -> bool:
        """Return whether the processes of `devices` have all but small segments mapped."""
        sizes = {s.key: self._arena.segment(s.key).nbytes for s in self.stored if s.key >= 0}
        if sum(sizes.values()) <= MAX_QUICK_BYTES:
            return True
        return all(
            sum(sizes[key] for key in sizes.keys() - set(fleet.attached(device)))
            <= MAX_QUICK_BYTES
            for device in devices
        )

    def attach(self, fleet: Fleet, device: str) -> None:
        for stored in self.stored:
            fd = fd_of_key(stored.key)
            source = self._arena.segment(stored.key) if fd is None else fd
            fleet.attach(device, stored.key, source)

    def prepare_message(
        self, attempt_id: int, assignment: Assignment, answer: bool
    ) -> device_messages.Prepare:
        return device_messages.Prepare(
            attempt=attempt_id,
            workload=self.job.reference,
            params=self.job.encoded_params,
            source=self.job.source,
            variant=assignment.variant,
            arrays=tuple(self.stored),
            chunk=assignment.max_chunk,
            memory=assignment.slot_memory,
            slots=assignment.slots,
            sizes=assignment.slot_sizes,
            chunk_sizes=tuple(set(assignment.plan.chunks)) if assignment.slot_memory else (),
            window=assignment.window,
            ring=assignment.plan.slots > 0,
            answer=answer,
            tail=assignment.tail,
            rivals=assignment.rivals,
        )

    def take_results(self) -> dict[str, ArenaRef]:
        results, self.results = self.results, {}
        return results

    def close(self, fleet: Fleet) -> None:
        """Release all but the taken results. Segments stay attached to processes, files don't."""
        if files := [stored.key for stored in self.stored if stored.key < 0]:
            fleet.detach(files)
        for segment in [*self._allocated, *(ref.segment for ref in self.results.values())]:
            self._arena.release(segment)
        self._allocated.clear()
        self.results = {}

    async def load_inputs(self, engine: Engine) -> None:
        loads = self._copies(to_files=False)
        if loads is None:
            return
        deadline = engine.checks.deadline + loads.seconds
        try:
            await engine.disk.call(loads.run, release=self.retain(), deadline=deadline)
        except asyncio.CancelledError:
            loads.cancelled.set()
            raise

    async def publish(self, engine: Engine, record: JobRecord) -> None:
        """Give all output files their names. Raises whatever keeps the journal from noting them.

        In three steps: the files are completed under hidden names, the journal notes them, then
        they get their names (`store/output_files.py`).
        """
        is_noted = engine.table.is_written(record)
        job, disk, seconds = self.job, engine.disk, engine.deadlines.step
        paths = ", ".join(out.path for out in job.outputs.values())
        copies = self._copies(to_files=True)
        if copies is not None:
            await disk.call(copies.run, deadline=seconds + copies.seconds)
        outputs = await disk.call(
            functools.partial(job.prepare, sync=is_noted),
            text=f"completing {paths}",
            discard=output_files.discard_all,  # nothing cancels this
            deadline=seconds + sum(out.packed_bytes for out in job.outputs.values()) / MIN_RATE,
        )
        if is_noted:
            await engine.table.publish(record, outputs)

        def name() -> None:
            try:
                output_files.publish_all(outputs, sync=is_noted)
            finally:
                if not is_noted:
                    output_files.discard_all(outputs)
            for output in job.outputs.values():  # their locks would keep HDF5 from opening them
                output.close()

        try:
            await disk.call(name, text=f"publishing {paths}", deadline=seconds)
        except TaskLate as error:
            if engine.table.is_stopping:  # the next daemon goes on with it
                raise
            raise errors.IOFailure(
                f"publishing {paths} hasn't returned for {seconds:g} s (deadlines.step): the"
                " result may still appear there; look before you submit the job again"
            ) from error

    def _copies(self, *, to_files: bool) -> ArrayCopies | None:
        """Return the copies of inputs to segments, or of an iterative job's results to files."""
        moved = self._saves if to_files else self._loads
        copies = [
            (
                spec,
                self.mapped(self._layout(spec, moved[spec.name])),
                self._elsewhere(spec, to_files),
            )
            for spec in self.job.specs
            if spec.name in moved
        ]
        return ArrayCopies(copies, to_files=to_files) if copies else None

    def retain(self) -> Callable[[], None]:
        return self._arena.hold({stored.key for stored in self.stored})

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays; those in one segment are counted once."""
        segments = {stored.key for stored in self.stored}
        return sum(self._arena.segment(segment).nbytes for segment in segments)

    def _elsewhere(self, spec: ArraySpec, to_files: bool) -> HostArray:
        """Return where an array was or will be that the job has in memory."""
        if to_files:
            file = self.job.outputs[spec.name]
            return _open_file(spec, file.fd, self._layout(spec, 0, offset=file.offset))
        if (loaded := self.job.loaded.pop(spec.name, None)) is not None:
            return ArenaArray(spec, loaded)
        stored = self.job.inputs[spec.name]
        if stored.lent:
            return ArenaArray(spec, self._arena.segment(stored.key).memory())
        if (fd := fd_of_key(stored.key)) is not None:
            return _open_file(spec, fd, stored)
        return ArenaArray(spec, self.mapped(stored))

    def mapped(self, stored: device_messages.StoredArray) -> np.ndarray:
        """Map the array apart from the arena, for a thread that may hang. Raises TryAgain."""
        segment = self._arena.segment(stored.key)
        try:
            memory = map_unpopulated(segment.fd, segment.nbytes)
        except OSError as error:
            raise errors.TryAgain(f"{stored.array}: {error.strerror}; try again later") from error
        return stored.values(memory)


BLOCK_BYTES = 16 << 20
"""Bytes copied between two looks at whether the job was cancelled."""
MIN_RATE = 20e6
"""Bytes per second that a disk is expected to reach."""


def _open_file(spec: ArraySpec, fd: int, stored: device_messages.StoredArray) -> HostArray:
    """Return an array in a file with a descriptor of its own: its thread may hang."""
    try:
        own = os.dup(fd)
    except OSError as error:
        raise errors.TryAgain(f"{spec.name}: {error.strerror}; try again later") from error
    return array_in_file(spec, OpenFile(own), stored)


@dataclass
class ArrayCopies:
    """Copies of one job, each array's blocks converted if need be. `cancelled` ends them soon."""

    # Arrays in memory, as kernels expect them, and somewhere else
    copies: Sequence[tuple[ArraySpec, np.ndarray, HostArray]]
    to_files: bool
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def seconds(self) -> float:
        return sum(memory.nbytes for _, memory, _ in self.copies) / MIN_RATE

    def run(self) -> None:
        for spec, memory, other in self.copies:
            enter(f"{'writing output' if self.to_files else 'reading input'} {spec.name}")
            rows = 1 if spec.is_whole else memory.shape[0]  # resident arrays are copied in one
            block_rows = max(1, BLOCK_BYTES // max(1, memory.nbytes // max(1, rows)))
            move = other.write if self.to_files else other.read
            for first in range(0, rows, block_rows):
                if self.cancelled.is_set():
                    raise errors.Cancelled("cancelled")
                count = min(block_rows, rows - first)
                with np.errstate(over="ignore"):  # kernels report infinite inputs
                    move(first, count, memory if spec.is_whole else memory[first : first + count])
