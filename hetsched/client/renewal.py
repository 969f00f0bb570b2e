"""What a client keeps of a submitted job, to submit it again to the next daemon.

Only the segments: their memory lives as long as this process maps it, even if the arrays that it
was submitted with are gone.
"""

from __future__ import annotations

from hetsched.client.shared_memory import MappedSegment, SharedMemory
from hetsched.job import JobSpec
from hetsched.job_segments import arena_refs, with_segments


class ArrayRenewal:
    """Passes a job's segments to the next daemon. `release` it once that holds them itself."""

    def __init__(self, memory: SharedMemory, spec: JobSpec) -> None:
        self._memory = memory
        self._segments: dict[int, MappedSegment] = {}
        for ref in arena_refs(spec):
            segment = memory.segment(ref.segment)
            if segment is not None:
                self._segments[ref.segment] = segment
        self._users: list[tuple[MappedSegment, int]] = []
        self.is_complete = True
        """All segments could be passed on."""

    def renew(self, spec: JobSpec) -> JobSpec:
        """Return `spec` with the next daemon's segments, as far as they can be passed on.

        The next daemon may not need them: the job may have ended, or still run.
        """
        self.release()
        self.is_complete = True
        numbers: dict[int, int] = {}
        segments: dict[int, MappedSegment] = {}
        for ident, segment in self._segments.items():
            self._users.append((segment, segment.add_user()))
            is_passed = self._memory.claim(segment)
            self.is_complete &= is_passed
            numbers[ident] = segment.id if is_passed else ident
            segments[numbers[ident]] = segment
        self._segments = segments
        return with_segments(spec, numbers)

    def release(self) -> None:
        """Give up the references that passing the segments on gave."""
        users, self._users = self._users, []
        for segment, key in users:
            segment.remove_user(key)
