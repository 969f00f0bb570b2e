"""Storage of one running job's arrays, including the segments that it allocates."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from hetsched.engine.admission.resolved_job import (
    ResolvedJob,
    array_bytes,
    array_shape,
    fd_of_key,
    file_key,
    kernel_layout,
)
from hetsched.engine.processes.fleet import Fleet
from hetsched.job import ArenaRef
from hetsched.planner.job_planner import Assignment
from hetsched.transport.arena import Arena
from hetsched.transport.device_messages import Prepare, StoredArray
from hetsched.workload import ArraySpec

MAX_QUICK_BYTES = 1 << 30
"""Segments that a process may map after chunks were sent to it: that takes up to 2.5 s per GiB,
which count as time of the first chunk. Arbitrary; less than a tenth of the least deadline."""


class JobArrays:
    """Arrays of one job; allocates generated inputs, and results without a caller's array.

    Attributes
    ----------
    stored : list of StoredArray
        All arrays, as messages to device processes describe them.
    results : mapping
        Output name -> its place in the arena; the job holds a reference to each segment.
    notes : list of str
        For the job's report.
    """

    def __init__(self, job: ResolvedJob, arena: Arena) -> None:
        self._job = job
        self._arena = arena
        self._allocated: list[int] = []
        self.stored: list[StoredArray] = []
        self.results: dict[str, ArenaRef] = {}
        self.notes: list[str] = []

    def allocate(self) -> None:
        """Allocate every segment.

        Raises TryAgain if the arena is full; `close` releases the segments allocated so far.
        """
        job = self._job
        self.stored = list(job.inputs.values())
        for array in job.generate:
            segment = self._arena.allocate(array_bytes(array, job.load))
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
        """Attach every segment and file to the process of `device`."""
        for stored in self.stored:
            fd = fd_of_key(stored.key)
            if fd is not None:
                fleet.attach(device, stored.key, fd, 0, "file")
            else:
                segment = self._arena.segment(stored.key)
                fleet.attach(device, stored.key, segment.fd, segment.nbytes, "segment")

    def prepare_message(
        self, attempt_id: int, device: int, assignment: Assignment, answer: bool, *, side: bool
    ) -> Prepare:
        """Return the message that prepares device number `device` of its process."""
        return Prepare(
            job=attempt_id,
            device=device,
            workload=self._job.reference,
            params=self._job.encoded_params or msgspec.json.encode(self._job.params),
            source=self._job.source,
            variant=assignment.variant,
            arrays=tuple(self.stored),
            chunk=assignment.max_chunk,
            memory=assignment.slot_memory,
            slots=assignment.slots,
            sizes=assignment.slot_sizes,
            window=assignment.window,
            ring=assignment.is_ring,
            answer=answer,
            side=side,
            tail=assignment.tail,
            rivals=assignment.rivals,
            gathers=assignment.gathers_reports,
        )

    def hand_over(self) -> dict[str, ArenaRef]:
        """Return the results; the caller becomes the owner of each segment reference."""
        results, self.results = self.results, {}
        return results

    def close(self, fleet: Fleet) -> None:
        """Release everything not handed over. Segments stay attached to processes, files don't."""
        fleet.detach([stored.key for stored in self.stored if stored.key < 0])
        for segment in [*self._allocated, *(ref.segment for ref in self.results.values())]:
            self._arena.release(segment)
        self._allocated.clear()
        self.results = {}

    def _result(self, array: ArraySpec) -> StoredArray:
        into = self._job.into[array.name]
        if into is None:
            segment = self._arena.allocate(array_bytes(array, self._job.load))
            extent = array_shape(array, self._job.load)
            into = ArenaRef(segment.id, extent, np.dtype(array.dtype).name)
        else:
            self._arena.retain(into.segment)
        self.results[array.name] = into
        return kernel_layout(array, self._job.load, into.segment, output=True, offset=into.offset)
