"""Output files and checkpoints that unfinished jobs will write.

Changed on the loop's thread only; threads of the pool read single entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hetsched.store.arrays.output_files import OutputClaim


@dataclass(frozen=True)
class PromisedOutput:
    """An output of an unfinished job."""

    job: int
    claim: OutputClaim


class PendingOutputs:
    """Output files and checkpoints of unfinished jobs."""

    def __init__(self) -> None:
        self._claims: dict[int, Sequence[OutputClaim]] = {}
        self._promised: dict[str, tuple[PromisedOutput, ...]] = {}
        """Path -> its promises, the last one last."""
        self._checkpoints: dict[int, str] = {}

    def add(self, job: int, claims: Sequence[OutputClaim], checkpoint: str = "") -> None:
        """Record the outputs of a new job, and its checkpoint (links resolved)."""
        if checkpoint:
            self._checkpoints[job] = checkpoint
        if claims:
            self._claims[job] = claims
            for claim in claims:
                earlier = self._promised.get(claim.path, ())
                self._promised[claim.path] = (*earlier, PromisedOutput(job, claim))

    def remove(self, job: int) -> None:
        """Forget a job that has ended."""
        self._checkpoints.pop(job, None)
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
