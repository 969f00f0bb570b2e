"""Where the arrays of one running job are, including the segments that it allocates."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hetsched.devices.file_array import FileArray
from hetsched.engine.admission.resolved_job import (
    CONTROL,
    ResolvedJob,
    array_bytes,
    fd_of_key,
    file_key,
    is_plain,
    kernel_layout,
    not_saving_note,
)
from hetsched.engine.context import EngineContext
from hetsched.engine.processes.fleet import Fleet
from hetsched.engine.threads import Step, answer_of
from hetsched.errors import Cancelled, TryAgain
from hetsched.iterations.home import first_row
from hetsched.job import ArenaRef, JobSpec
from hetsched.planner.records import Assignment
from hetsched.store.output_files import PreparedOutput, publish_all
from hetsched.transport.arena import Arena
from hetsched.transport.control import IterationControl
from hetsched.transport.device_messages import Prepare, StoredArray
from hetsched.transport.pages import map_unpopulated
from hetsched.workload import ArraySpec

MAX_QUICK_BYTES = 1 << 30
"""Segments that a process may map after chunks were sent to it: that takes up to 2.5 s per GiB,
which count as time of the first chunk. Arbitrary; less than a tenth of the least deadline."""


class JobArrays:
    """Arrays of one job; allocates generated inputs, and results without a caller's array."""

    def __init__(self, job: ResolvedJob, arena: Arena) -> None:
        self.job = job
        self._arena = arena
        # Chunks zero their outputs themselves; iterations have state that may never be written.
        self._zero = job.iterative is not None and not job.workload.writes_all
        self._allocated: list[int] = []
        # All arrays, as messages to device processes describe them
        self.stored: list[StoredArray] = []
        # Output name -> its place in the arena; the job holds a reference to each segment
        self.results: dict[str, ArenaRef] = {}
        self.notes: list[str] = []  # For the job's report

    def allocate(self) -> None:
        """Allocate every segment.

        Raises TryAgain if the arena is full; `close` releases the segments allocated so far.
        """
        job = self.job
        self.stored = list(job.inputs.values())
        for array in job.generate:
            segment = self._arena.allocate(array_bytes(array, job.load), job.owner)
            self._allocated.append(segment.id)
            self.stored.append(kernel_layout(array, job.load, segment.id, output=False))
        for array in job.specs:
            if array.name in job.outputs:
                output = job.outputs[array.name]
                key = file_key(output.fd)
                self.stored.append(
                    kernel_layout(array, job.load, key, output=True, offset=output.offset)
                )
            elif array.is_output:
                self.stored.append(self._result(array))

    def are_mapped(self, fleet: Fleet, devices: Iterable[str]) -> bool:
        """Return whether the processes of `devices` have all but small segments mapped."""
        sizes = {s.key: self._arena.segment(s.key).nbytes for s in self.stored if s.key >= 0}
        return all(
            sum(sizes[key] for key in sizes.keys() - set(fleet.attached(device)))
            <= MAX_QUICK_BYTES
            for device in devices
        )

    def attach(self, fleet: Fleet, device: str) -> None:
        for stored in self.stored:
            fd = fd_of_key(stored.key)
            if fd is not None:
                fleet.attach(device, stored.key, fd, 0, "file")
            else:
                segment = self._arena.segment(stored.key)
                fleet.attach(device, stored.key, segment.fd, segment.nbytes, "segment")

    def prepare_message(self, attempt_id: int, assignment: Assignment, answer: bool) -> Prepare:
        return Prepare(
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
            window=assignment.window,
            ring=assignment.is_ring,
            answer=answer,
            tail=assignment.tail,
            rivals=assignment.rivals,
        )

    def hand_over(self) -> dict[str, ArenaRef]:
        """Return the results; the caller becomes the owner of each segment reference."""
        results, self.results = self.results, {}
        return results

    def close(self, fleet: Fleet) -> None:
        """Release everything not handed over. Segments stay attached to processes, files don't."""
        if files := [stored.key for stored in self.stored if stored.key < 0]:
            fleet.detach(files)
        for segment in [*self._allocated, *(ref.segment for ref in self.results.values())]:
            self._arena.release(segment)
        self._allocated.clear()
        self.results = {}

    def _result(self, array: ArraySpec) -> StoredArray:
        into = self.job.into[array.name]
        if into is None:
            nbytes = array_bytes(array, self.job.load)
            segment = self._arena.allocate(nbytes, self.job.owner, zero=self._zero)
            extent = array.shape(self.job.load)
            into = ArenaRef(segment.id, extent, np.dtype(array.dtype).name)
        else:
            self._arena.retain(into.segment)
        self.results[array.name] = into
        return kernel_layout(array, self.job.load, into.segment, output=True, offset=into.offset)


class IterativeArrays(JobArrays):
    """As JobArrays, with everything in the arena.

    `needs_saved`: the job can't run without room for what devices save: it has checkpoints.
    """

    control: IterationControl  # Once allocated

    def __init__(self, job: ResolvedJob, arena: Arena, *, needs_saved: bool = False) -> None:
        super().__init__(job, arena)
        self._needs_saved = needs_saved
        self._copied: dict[str, int] = {}  # Input -> the segment of its copy
        self._written: dict[str, int] = {}  # Output that becomes a file -> its segment

    def allocate(self) -> None:
        """Allocate every segment; without room for what devices save, all others.

        Raises TryAgain if the arena is full; `close` releases the segments allocated so far.
        """
        job = self.job
        assert job.iterative is not None
        in_state = job.results_in_state
        for spec in job.specs:
            if spec.name not in in_state:
                self.stored.append(self._input(spec) if spec.is_input else self._output(spec))
        slots = len(job.devices)
        for array in job.iterative.work_arrays(job.load, slots):
            segment = self._allocate(array_bytes(array, job.load))
            self.stored.append(kernel_layout(array, job.load, segment, output=True))
            if array.name == CONTROL:
                words = self._arena.segment(segment).array(array.unit_shape, array.dtype)
                self.control = IterationControl(words, slots)
                self.control.begin()
        self.stored += [self._result_in_state(s) for s in job.specs if s.name in in_state]
        names = [spec.name for spec in job.specs]  # the order that users see
        self.results = dict(sorted(self.results.items(), key=lambda item: names.index(item[0])))
        self._allocate_saved(job.iterative.saved)

    def _result_in_state(self, spec: ArraySpec) -> StoredArray:
        job = self.job
        assert job.iterative is not None
        array = job.iterative.results[spec.name]
        (state,) = (stored for stored in self.stored if stored.array == array.name)
        row_bytes = array_bytes(spec, job.load) // job.load
        offset = first_row(array, job.load, job.iterative.max_iterations) * row_bytes
        self._arena.retain(state.key)
        shape, dtype = spec.shape(job.load), np.dtype(spec.dtype).name
        self.results[spec.name] = ArenaRef(state.key, shape, dtype, offset)
        return kernel_layout(spec, job.load, state.key, output=True, offset=offset)

    def _allocate_saved(self, arrays: Sequence[ArraySpec]) -> None:
        """Allocate what devices save their rows in, or nothing, with a note."""
        before = len(self._allocated)
        try:
            segments = [self._allocate(array_bytes(each, self.job.load)) for each in arrays]
        except TryAgain:
            if self._needs_saved:
                raise
            while len(self._allocated) > before:
                self._arena.release(self._allocated.pop())
            self.notes.append(not_saving_note(arrays))
            return
        self.stored += [
            kernel_layout(array, self.job.load, segment, output=True)
            for array, segment in zip(arrays, segments, strict=True)
        ]

    def loads(self) -> ArrayCopies | None:
        """Return the copies to make before the job starts; None if there are none."""
        copies = [
            ArrayCopy(spec, self._mapped(self._home(spec, segment)), self._source(spec))
            for spec in self.job.specs
            if (segment := self._copied.get(spec.name)) is not None
        ]
        return ArrayCopies(copies, to_files=False) if copies else None

    def saves(self) -> ArrayCopies | None:
        """Return the copies to output files; None if there are none."""
        copies = [
            ArrayCopy(spec, self._mapped(self._home(spec, segment)), self._output_file(spec))
            for spec in self.job.specs
            if (segment := self._written.get(spec.name)) is not None
        ]
        return ArrayCopies(copies, to_files=True) if copies else None

    def retain_copied(self) -> Callable[[], None]:
        """Keep the targets of `loads` from being reused; returns a function that ends that."""
        return self._retain(self._copied.values())

    def retain_all(self) -> Callable[[], None]:
        """Keep all segments from being reused; returns a function that ends that."""
        return self._retain({stored.key for stored in self.stored})

    def _retain(self, segments: Iterable[int]) -> Callable[[], None]:
        retained = list(segments)
        for segment in retained:
            self._arena.retain(segment)

        def release() -> None:
            for segment in retained:
                self._arena.release(segment)

        return release

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays; those in one segment are counted once."""
        segments = {stored.key for stored in self.stored}
        return sum(self._arena.segment(segment).nbytes for segment in segments)

    def map_all(self) -> dict[str, np.ndarray]:
        """Map all segments; return name -> array. Raises TryAgain without descriptors for them."""
        return {stored.array: self._mapped(stored) for stored in self.stored}

    def _input(self, spec: ArraySpec) -> StoredArray:
        stored = self.job.inputs.get(spec.name)
        if stored is not None and is_plain(stored, spec):
            return stored
        segment = self._allocate(array_bytes(spec, self.job.load))
        if stored is not None:
            self._copied[spec.name] = segment
        return self._home(spec, segment)

    def _output(self, spec: ArraySpec) -> StoredArray:
        if spec.name not in self.job.outputs:
            return self._result(spec)
        segment = self._written[spec.name] = self._allocate(array_bytes(spec, self.job.load))
        return self._home(spec, segment)

    def _home(self, spec: ArraySpec, segment: int) -> StoredArray:
        return kernel_layout(spec, self.job.load, segment, output=spec.is_output)

    def _allocate(self, nbytes: int) -> int:
        segment = self._arena.allocate(nbytes, self.job.owner, zero=self._zero)
        self._allocated.append(segment.id)
        return segment.id

    def _source(self, spec: ArraySpec) -> OpenFile | np.ndarray:
        loaded = self.job.loaded.pop(spec.name, None)
        if loaded is not None:
            return loaded
        stored = self.job.inputs[spec.name]
        fd = fd_of_key(stored.key)
        return self._mapped(stored) if fd is None else OpenFile(spec, fd, stored)

    def _output_file(self, spec: ArraySpec) -> OpenFile:
        file = self.job.outputs[spec.name]
        layout = kernel_layout(spec, self.job.load, 0, output=True, offset=file.offset)
        return OpenFile(spec, file.fd, layout)

    def _mapped(self, stored: StoredArray) -> np.ndarray:
        """Map the array apart from the arena, for a thread that may hang. Raises TryAgain."""
        segment = self._arena.segment(stored.key)
        try:
            memory = map_unpopulated(segment.fd, segment.nbytes)
        except OSError as error:
            raise TryAgain(f"{stored.array}: {error.strerror}; try again later") from error
        return stored.values(memory)


def job_arrays(job: ResolvedJob, spec: JobSpec, arena: Arena) -> JobArrays:
    if job.iterative is None:
        return JobArrays(job, arena)
    return IterativeArrays(job, arena, needs_saved=bool(spec.checkpoint))


# ---- copies, in a thread of the pool

BLOCK_BYTES = 16 << 20
"""Bytes copied between two looks at whether the job was cancelled."""
MIN_RATE = 20e6
"""Bytes per second that a disk is expected to reach."""


class OpenFile:
    """An array in a file; the thread that uses it, which may hang, has a descriptor of its own.

    Raises TryAgain if there is none left.
    """

    def __init__(self, spec: ArraySpec, fd: int, stored: StoredArray) -> None:
        self._fd = -1
        try:
            self._fd = os.dup(fd)
        except OSError as error:
            raise TryAgain(f"{spec.name}: {error.strerror}; try again later") from error
        self.array = FileArray(
            spec, self._fd, stored.shape, stored.dtype, stored.offset, stored.order
        )

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


@dataclass(frozen=True)
class ArrayCopy:
    """A copy of the array `spec` between `memory`, as kernels expect it, and somewhere else."""

    spec: ArraySpec
    memory: np.ndarray
    other: OpenFile | np.ndarray


@dataclass
class ArrayCopies:
    """Copies of one job; `cancel` ends them soon. Each array's blocks are converted if need be."""

    copies: Sequence[ArrayCopy]
    to_files: bool
    _cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def seconds(self) -> float:
        return sum(copy.memory.nbytes for copy in self.copies) / MIN_RATE

    def cancel(self) -> None:
        """End with Cancelled. From any thread."""
        self._cancelled.set()

    def run(self, step: Step) -> None:
        """Copy everything. Raises Cancelled after `cancel`."""
        for copy in self.copies:
            step.enter(
                f"{'writing output' if self.to_files else 'reading input'} {copy.spec.name}"
            )
            self._copy(copy)

    def _copy(self, copy: ArrayCopy) -> None:
        for first, count in self._blocks(copy):
            block = _rows(copy.memory, copy.spec, first, count)
            if isinstance(copy.other, OpenFile):
                move = copy.other.array.write if self.to_files else copy.other.array.read
                move(first, count, block)
                continue
            with np.errstate(over="ignore"):  # kernels report infinite inputs
                values = _rows(copy.other, copy.spec, first, count)
                np.copyto(block, values, casting="same_kind")

    def _blocks(self, copy: ArrayCopy) -> Iterator[tuple[int, int]]:
        """Yield first row and rows of each block; resident arrays are copied in one."""
        rows = 1 if copy.spec.is_whole else copy.memory.shape[0]
        row_bytes = copy.memory.nbytes // max(1, rows)
        step = max(1, BLOCK_BYTES // max(1, row_bytes))
        for first in range(0, rows, step):
            if self._cancelled.is_set():
                raise Cancelled("cancelled")
            yield first, min(step, rows - first)


def _rows(array: np.ndarray, spec: ArraySpec, first: int, count: int) -> np.ndarray:
    return array if spec.is_whole else array[first : first + count]


# ---- names of output files

OnPrepared = Callable[[tuple[PreparedOutput, ...], Callable[[BaseException | None], None]], None]
"""on_prepared(outputs, then): note the files, then call ``then(None)``, or with an error."""


async def publish(
    job: ResolvedJob,
    context: EngineContext,
    copies: ArrayCopies | None,
    on_prepared: OnPrepared | None,
) -> None:
    """Give all output files their names. Raises whatever keeps the journal from noting them.

    With a journal in three steps: the files are completed under hidden names, the journal notes
    them, then they get their names (`store/output_files.py`); without one they get them at once.

    `copies`: results in memory that must be written to the files first. `on_prepared`: None if
    there is no journal.
    """
    disk, seconds = context.disk, context.deadlines.step
    text = f"publishing {', '.join(out.path for out in job.outputs.values())}"
    if copies is not None:
        await disk.call(copies.run, deadline=seconds + copies.seconds)
    if on_prepared is None:
        await disk.call(_entering(text, job.publish), deadline=seconds)
        return
    outputs = await disk.call(_entering(text, job.prepare), deadline=seconds)
    try:
        await answer_of(lambda on_done: on_prepared(outputs, functools.partial(on_done, None)))
    except BaseException:
        disk.submit(functools.partial(_discard, outputs))
        raise
    await disk.call(functools.partial(_name, outputs, text), deadline=seconds)


def _entering(text: str, function: Callable[[], Any]) -> Callable[[Step], Any]:
    def work(step: Step) -> Any:
        step.enter(text)
        return function()

    return work


def _name(outputs: tuple[PreparedOutput, ...], text: str, step: Step) -> None:
    step.enter(text)
    publish_all(outputs)


def _discard(outputs: tuple[PreparedOutput, ...], step: Step) -> None:
    step.enter("removing unfinished output files")
    for output in outputs:
        output.discard()
