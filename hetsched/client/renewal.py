"""What a client keeps of a submitted job, to submit it again to the next daemon.

Only the segments: their memory lives as long as this process maps it, even if the arrays that it
was submitted with are gone.
"""

from __future__ import annotations

from hetsched.client.shared_memory import MappedSegment, SharedMemory
from hetsched.errors import TryAgain
from hetsched.job import JobSpec
from hetsched.job_segments import arena_refs, with_segments


class ArrayRenewal:
    """Passes a job's segments to the next daemon. `release` it once that holds them itself."""

    def __init__(self, memory: SharedMemory, spec: JobSpec) -> None:
        self._memory = memory
        segments = {ref.segment: memory.segment(ref.segment) for ref in arena_refs(spec)}
        self._segments = {ident: s for ident, s in segments.items() if s is not None}
        self._users: list[tuple[MappedSegment, int]] = []

    def renew(self, spec: JobSpec) -> JobSpec:
        """Return `spec` with the next daemon's segments. Raises TryAgain if an input is lost."""
        self.release()
        for ident, segment in self._segments.items():
            self._users.append((segment, segment.add_user()))
            if not self._memory.claim(segment):
                raise TryAgain(
                    f"input lost: shared memory {ident} can't be passed to the daemon that was"
                    " started meanwhile; submit the job again"
                )
        numbers = {ident: segment.id for ident, segment in self._segments.items()}
        self._segments = {segment.id: segment for segment in self._segments.values()}
        return with_segments(spec, numbers)

    def release(self) -> None:
        """Give up the references that passing the segments on gave."""
        users, self._users = self._users, []
        for segment, key in users:
            segment.remove_user(key)
