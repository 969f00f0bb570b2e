"""The segments of one iterative job: copies of inputs, results, state, partials and control."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from hetsched.engine.admission.declare import (
    CONTROL,
    WorkArray,
    not_saving_note,
)
from hetsched.engine.admission.resolved_job import (
    ResolvedJob,
    array_bytes,
    array_shape,
    fd_of_key,
    is_plain,
    kernel_layout,
)
from hetsched.engine.iterating.array_copies import (
    ArrayCopies,
    ArrayCopy,
    FilePart,
    MemoryPart,
    OwnFd,
    stored_view,
)
from hetsched.engine.iterating.checkpoint_files import CheckpointFiles
from hetsched.engine.job.arrays import JobArrays
from hetsched.engine.processes.fleet import Fleet
from hetsched.errors import TryAgain
from hetsched.iterations.home import first_row
from hetsched.job import ArenaRef
from hetsched.transport.arena import Arena
from hetsched.transport.device_messages import StoredArray
from hetsched.transport.iterations.control import IterationControl
from hetsched.workload import ArraySpec, Iterative


class IterativeArrays(JobArrays):
    """As JobArrays, with everything in the arena.

    Attributes
    ----------
    control : IterationControl
        Once allocated.
    """

    control: IterationControl

    def __init__(self, job: ResolvedJob, arena: Arena) -> None:
        super().__init__(job, arena)
        self._copied: dict[str, int] = {}
        """Input -> the segment of its copy."""
        self._written: dict[str, int] = {}
        """Output that becomes a file -> its segment."""
        self._mapped_again = 0

    def allocate(self) -> None:
        """Allocate every segment; without room for what devices save, all others.

        Raises TryAgain if the arena is full; `close` releases the segments allocated so far.
        """
        job = self._job
        assert job.iterative is not None
        in_state = self._results_in_state()
        for spec in job.specs:
            if spec.name not in in_state:
                self.stored.append(self._input(spec) if spec.is_input else self._output(spec))
        slots = len(job.devices)
        for array in job.iterative.needed_arrays(job.load, slots):
            segment = self._allocate(array.nbytes)
            self.stored.append(_work_array(array, segment))
            if array.name == CONTROL:
                words = self._arena.segment(segment).array(array.shape, array.dtype)
                self.control = IterationControl(words, slots)
                self.control.begin()
        self.stored += [self._result_in_state(in_state[name]) for name in in_state]
        names = [spec.name for spec in job.specs]  # the order that users see
        self.results = dict(sorted(self.results.items(), key=lambda item: names.index(item[0])))
        self._allocate_saved(tuple(job.iterative.saved_arrays()))

    def _results_in_state(self) -> dict[str, ArraySpec]:
        """Return the outputs for which the memory of a state array serves."""
        job = self._job
        assert job.iterative is not None
        names = {name for name, into in job.into.items() if into is None}
        return {
            s.name: s for s in job.specs if s.name in names.intersection(job.iterative.results)
        }

    def _result_in_state(self, spec: ArraySpec) -> StoredArray:
        job = self._job
        assert job.iterative is not None
        array = job.iterative.results[spec.name]
        (state,) = (stored for stored in self.stored if stored.array == array.name)
        row_bytes = array_bytes(spec, job.load) // job.load
        offset = first_row(array, job.load, job.iterative.max_iterations) * row_bytes
        self._arena.retain(state.key)
        shape, dtype = array_shape(spec, job.load), np.dtype(spec.dtype).name
        self.results[spec.name] = ArenaRef(state.key, shape, dtype, offset)
        return kernel_layout(spec, job.load, state.key, output=True, offset=offset)

    def _allocate_saved(self, arrays: Sequence[WorkArray]) -> None:
        """Allocate what devices save their rows in, or nothing, with a note."""
        before = len(self._allocated)
        try:
            segments = [self._allocate(array.nbytes) for array in arrays]
        except TryAgain:
            while len(self._allocated) > before:
                self._arena.release(self._allocated.pop())
            self.notes.append(not_saving_note(sum(array.nbytes for array in arrays)))
            return
        self.stored += map(_work_array, arrays, segments)

    def loads(self) -> ArrayCopies | None:
        """Return the copies to make before the job starts; None if there are none."""
        copies = [
            ArrayCopy(spec, self._source(spec), self._part(self._home(spec, segment)))
            for spec in self._job.specs
            if (segment := self._copied.get(spec.name)) is not None
        ]
        return ArrayCopies(copies, "reading input") if copies else None

    def saves(self) -> ArrayCopies | None:
        """Return the copies to output files; None if there are none."""
        copies = [
            ArrayCopy(spec, self._part(self._home(spec, segment)), self._output_file(spec))
            for spec in self._job.specs
            if (segment := self._written.get(spec.name)) is not None
        ]
        return ArrayCopies(copies, "writing output") if copies else None

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

    def close(self, fleet: Fleet) -> None:
        super().close(fleet)
        self._arena.mapped_again -= self._mapped_again
        self._mapped_again = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays; those in one segment are counted once."""
        segments = {stored.key for stored in self.stored}
        return sum(self._arena.segment(segment).nbytes for segment in segments)

    def checkpoint_files(self, seed: int) -> CheckpointFiles:
        """Return what copies the state to checkpoints and back. `seed`: of generated inputs.

        Raises OSError, or TryAgain if there are too few descriptors to map the segments again.
        """
        self._arena.check_segments(len(self.stored))
        workload = self._job.workload
        assert isinstance(workload, Iterative)
        arrays = {stored.array: self._mapped(stored) for stored in self.stored}
        seeds = {spec.name: seed for spec in self._job.generate}
        self._mapped_again += len(arrays)
        self._arena.mapped_again += len(arrays)
        return CheckpointFiles(workload, self._job.params, self._job.specs, arrays, seeds)

    def _input(self, spec: ArraySpec) -> StoredArray:
        stored = self._job.inputs.get(spec.name)
        if stored is not None and is_plain(stored, spec):
            return stored
        segment = self._allocate(array_bytes(spec, self._job.load))
        if stored is not None:
            self._copied[spec.name] = segment
        return self._home(spec, segment)

    def _output(self, spec: ArraySpec) -> StoredArray:
        if spec.name not in self._job.outputs:
            return self._result(spec)
        segment = self._written[spec.name] = self._allocate(array_bytes(spec, self._job.load))
        return self._home(spec, segment)

    def _home(self, spec: ArraySpec, segment: int) -> StoredArray:
        return kernel_layout(spec, self._job.load, segment, output=spec.is_output)

    def _allocate(self, nbytes: int) -> int:
        segment = self._arena.allocate(nbytes)
        self._allocated.append(segment.id)
        return segment.id

    def _source(self, spec: ArraySpec) -> MemoryPart | FilePart | np.ndarray:
        loaded = self._job.loaded.pop(spec.name, None)
        if loaded is not None:
            return loaded
        stored = self._job.inputs[spec.name]
        fd = fd_of_key(stored.key)
        return self._part(stored) if fd is None else FilePart(OwnFd(fd), stored)

    def _output_file(self, spec: ArraySpec) -> FilePart:
        file = self._job.outputs[spec.name]
        layout = kernel_layout(spec, self._job.load, 0, output=True, offset=file.offset)
        return FilePart(OwnFd(file.fd), layout)

    def _mapped(self, stored: StoredArray) -> np.ndarray:
        segment = self._arena.segment(stored.key)
        return stored_view(segment.fd, segment.nbytes, stored)

    def _part(self, stored: StoredArray) -> MemoryPart:
        segment = self._arena.segment(stored.key)
        return MemoryPart(OwnFd(segment.fd), segment.nbytes, stored)


def _work_array(array: WorkArray, segment: int) -> StoredArray:
    dtype = np.dtype(array.dtype).str
    return StoredArray(array=array.name, key=segment, shape=array.shape, dtype=dtype, output=True)
