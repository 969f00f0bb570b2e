"""Output files that unfinished jobs will write, and those that ended ones wrote; checkpoints.

Changed on the loop's thread only; threads of the pool read single entries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hetsched.bounded_cache import BoundedCache
from hetsched.store.arrays.file_stamp import FileStamp
from hetsched.store.arrays.output_check import OutputClaim

MAX_WRITTEN_BYTES = 4 << 20
"""Size of the paths of `WrittenFiles`, with their stamps. Arbitrary."""
STAMP_BYTES = 300


@dataclass(frozen=True)
class PromisedOutput:
    """An output of an unfinished job."""

    job: int
    claim: OutputClaim


class PendingOutputs:
    """Output files of unfinished jobs, and the space that those that wait will need."""

    def __init__(self) -> None:
        self._claims: dict[int, Sequence[OutputClaim]] = {}
        self._promised: dict[str, tuple[PromisedOutput, ...]] = {}
        """Path -> its promises, the last one last."""
        self._waiting: set[int] = set()
        self._bytes: Counter[int] = Counter()
        self._checkpoints: dict[int, str] = {}

    def add(self, job: int, claims: Sequence[OutputClaim], checkpoint: str = "") -> None:
        """Record the outputs of a new job, which waits, and its checkpoint (links resolved)."""
        if checkpoint:
            self._checkpoints[job] = checkpoint
        if claims:
            self._claims[job] = claims
            for claim in claims:
                earlier = self._promised.get(claim.path, ())
                self._promised[claim.path] = (*earlier, PromisedOutput(job, claim))
            self.on_waiting(job)

    def on_waiting(self, job: int) -> None:
        """Count the space of a job: it isn't allocated."""
        if job in self._claims and job not in self._waiting:
            self._waiting.add(job)
            for claim in self._claims[job]:
                self._bytes[claim.device] += claim.nbytes

    def on_opened(self, job: int) -> None:
        """Stop counting the space of a job: it is allocated, so it is no longer free."""
        if job in self._waiting:
            self._waiting.remove(job)
            for claim in self._claims[job]:
                self._bytes[claim.device] -= claim.nbytes

    def remove(self, job: int) -> None:
        """Forget a job that has ended."""
        self._checkpoints.pop(job, None)
        self.on_opened(job)
        for claim in self._claims.pop(job, ()):
            promises = self._promised.pop(claim.path, ())
            others = tuple(promise for promise in promises if promise.job != job)
            if others:
                self._promised[claim.path] = others

    def promise(self, path: str) -> PromisedOutput | None:
        """Return the last job that will write `path` (links resolved); None: no job will."""
        promises = self._promised.get(path)
        return None if promises is None else promises[-1]

    def with_checkpoint(self, path: str) -> set[int]:
        """Return the unfinished jobs that write checkpoints to `path` (links resolved)."""
        return {job for job, checkpoint in self._checkpoints.items() if checkpoint == path}

    def claimed(self, device: int) -> int:
        """Return the bytes that waiting jobs will need on this device (st_dev)."""
        return self._bytes.get(device, 0)


class WrittenFiles:
    """Files written by jobs that have ended, as they were then; the oldest are dropped first."""

    def __init__(self, max_bytes: int = MAX_WRITTEN_BYTES) -> None:
        self._stamps: BoundedCache[str, FileStamp] = BoundedCache(max_bytes=max_bytes)

    def add(self, files: Iterable[tuple[str, FileStamp]]) -> None:
        """Record published files; paths are absolute, links resolved."""
        for path, stamp in files:
            self._stamps.put(path, stamp, len(path) + STAMP_BYTES)

    def get(self, path: str) -> FileStamp | None:
        return self._stamps.peek(path)
