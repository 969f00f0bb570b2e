"""Where the arrays of one running job are stored, and what of that is the job's own."""

from __future__ import annotations

import msgspec
import numpy as np

from hetsched.engine.processes.fleet import Fleet
from hetsched.engine.resolve import Resolved, fd_of_key, file_key, nbytes, shape, whole
from hetsched.job import ArenaRef
from hetsched.planner.job_planner import Assignment
from hetsched.transport.arena import Arena
from hetsched.transport.device_messages import Prepare, StoredArray
from hetsched.workload import ArraySpec


class JobArrays:
    """Segments for what is generated and for results that the caller gave no room for.

    Attributes
    ----------
    stored : list of StoredArray
        All arrays, as device processes are told of them.
    results : mapping
        Output name -> its place in the arena; one reference each is held for it.
    """

    def __init__(self, job: Resolved, arena: Arena) -> None:
        self._job = job
        self._arena = arena
        self._own: list[int] = []
        self.stored: list[StoredArray] = []
        self.results: dict[str, ArenaRef] = {}

    def allocate(self) -> None:
        """Raises TryAgain when others hold too much; `give_up` then lets go of the rest."""
        job = self._job
        self.stored = list(job.inputs.values())
        for array in job.generate:
            segment = self._arena.allocate(nbytes(array, job.load))
            self._own.append(segment.id)
            self.stored.append(whole(array, job.load, segment.id, output=False))
        for array in job.specs:
            if array.name in job.outputs:
                output = job.outputs[array.name]
                key = file_key(output.fd)
                self.stored.append(whole(array, job.load, key, output=True, offset=output.offset))
            elif array.is_output:
                self.stored.append(self._result(array))

    def attach(self, fleet: Fleet, device: str) -> None:
        """Make the process of `device` know everything that is stored."""
        for stored in self.stored:
            fd = fd_of_key(stored.key)
            if fd is not None:
                fleet.attach(device, stored.key, fd, 0, "file")
            else:
                segment = self._arena.segment(stored.key)
                fleet.attach(device, stored.key, segment.fd, segment.nbytes, "segment")

    def order(self, job: int, device: int, one: Assignment, answer: bool) -> Prepare:
        """What tells a device what it is to do."""
        return Prepare(
            job=job,
            device=device,
            workload=self._job.reference,
            params=msgspec.json.encode(self._job.params),
            variant=one.variant,
            arrays=tuple(self.stored),
            chunk=one.chunk,
            memory=one.memory,
            slots=one.slots,
            sizes=one.sizes,
            window=one.window,
            ring=one.ring,
            answer=answer,
        )

    def hand_over(self) -> dict[str, ArenaRef]:
        """The results, with the references that are held for them."""
        results, self.results = self.results, {}
        return results

    def close(self, fleet: Fleet) -> None:
        """Let go of everything that wasn't handed over; segments stay mapped, files don't."""
        fleet.detach([stored.key for stored in self.stored if stored.key < 0])
        for segment in [*self._own, *(ref.segment for ref in self.results.values())]:
            self._arena.release(segment)
        self._own.clear()
        self.results = {}

    def _result(self, array: ArraySpec) -> StoredArray:
        into = self._job.into[array.name]
        if into is None:
            segment = self._arena.allocate(nbytes(array, self._job.load))
            extent = shape(array, self._job.load)
            into = ArenaRef(segment.id, extent, np.dtype(array.dtype).name)
        else:
            self._arena.retain(into.segment)
        self.results[array.name] = into
        return whole(array, self._job.load, into.segment, output=True, offset=into.offset)
