"""Which jobs may overtake others: those whose arrays and files no other job changes. Pure.

A client may submit a job that reads what an earlier one writes, without waiting for that: jobs
that share an array or a file which one of them writes run in the order of the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from hetsched.job import ArenaOut, ArenaRef, JobSpec

Place = int | str
"""A segment of the arena, or the path of a file, links resolved."""


@dataclass(frozen=True)
class ArrayUse:
    """What one job reads and writes."""

    reads: frozenset[Place]
    writes: frozenset[Place]

    @classmethod
    def of(
        cls, spec: JobSpec, input_files: Iterable[str], output_files: Iterable[str]
    ) -> ArrayUse:
        """Return the use of a job with these files."""
        segments = [ref.segment for ref in spec.inputs.values() if isinstance(ref, ArenaRef)]
        into = [
            out.into.segment
            for out in spec.outputs.values()
            if isinstance(out, ArenaOut) and out.into is not None
        ]
        return cls(frozenset((*segments, *input_files)), frozenset((*into, *output_files)))


class ArrayOrder:
    """The arrays and files of all unfinished jobs. O(arrays of a job) per call."""

    def __init__(self) -> None:
        self._uses: dict[int, ArrayUse] = {}
        self._readers: Counter[Place] = Counter()
        self._writers: Counter[Place] = Counter()

    def add(self, job: int, use: ArrayUse) -> None:
        if use.reads or use.writes:
            self._uses[job] = use
            self._readers.update(use.reads)
            self._writers.update(use.writes)

    def remove(self, job: int) -> None:
        use = self._uses.pop(job, None)
        if use is not None:
            _subtract(self._readers, use.reads)
            _subtract(self._writers, use.writes)

    def may_overtake(self, job: int) -> bool:
        """Return whether no other unfinished job writes what it uses, or uses what it writes."""
        use = self._uses.get(job)
        if use is None:
            return True
        writers, readers = self._writers, self._readers
        if any(writers[place] > (place in use.writes) for place in use.reads):
            return False
        return not any(
            writers[place] > 1 or readers[place] > (place in use.reads) for place in use.writes
        )


def _subtract(counts: Counter[Place], places: Iterable[Place]) -> None:
    for place in places:
        counts[place] -= 1
        if not counts[place]:
            del counts[place]
