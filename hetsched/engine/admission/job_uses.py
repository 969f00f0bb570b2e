"""What unfinished jobs read and write: segments of the arena, files and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hetsched import errors
from hetsched.job import ArenaOut, ArenaRef
from hetsched.jobs.table import JobRecord
from hetsched.store.output_files import OutputClaim

Place = int | str | tuple[str]
"""A segment; the path of a file, links resolved; or of a checkpoint, alone in a tuple."""


@dataclass
class _Users:
    """The jobs that use one place; one that reads and writes it counts as a writer."""

    writers: dict[int, OutputClaim | None] = field(default_factory=dict)  # In their order
    readers: set[int] = field(default_factory=set)


class JobUses:
    """The uses of all unfinished jobs. Changed on the loop's thread only."""

    def __init__(self) -> None:
        self._users: dict[Place, _Users] = {}

    def add(self, job: JobRecord) -> None:
        for place, claim in _written(job):
            self._users.setdefault(place, _Users()).writers[job.number] = claim
        for place in _read(job):
            users = self._users.setdefault(place, _Users())
            if job.number not in users.writers:
                users.readers.add(job.number)

    def remove(self, job: JobRecord) -> None:
        for place in (*(place for place, _ in _written(job)), *_read(job)):
            if (users := self._users.get(place)) is not None:
                users.writers.pop(job.number, None)
                users.readers.discard(job.number)
                if not users.writers and not users.readers:
                    del self._users[place]

    def may_overtake(self, job: JobRecord) -> bool:
        """Return whether no other job writes what it uses, or uses what it writes."""
        written = [self._users[place] for place, _ in _written(job)]
        if any(len(users.writers) > 1 or users.readers for users in written):
            return False
        return not any(self._users[place].writers.keys() - {job.number} for place in _read(job))

    def promise(self, path: str) -> tuple[int, OutputClaim] | None:
        """Return the last job that will write this file, and what. From any thread."""
        users = self._users.get(path, _Users())
        claims = [(job, claim) for job, claim in list(users.writers.items()) if claim is not None]
        return claims[-1] if claims else None

    def check_checkpoint(self, job: JobRecord, path: str) -> None:
        others = set(self._users.get((path,), _Users()).writers)
        others -= {dependency.job for dependency in job.spec.after}
        if others:
            raise errors.UsageError(
                f"{job.spec.checkpoint}: job {min(others)} writes its checkpoints there; give"
                " another name, or run this job after that one"
            )


def _written(job: JobRecord) -> Iterator[tuple[Place, OutputClaim | None]]:
    for out in job.spec.outputs.values():
        if isinstance(out, ArenaOut) and out.into is not None:
            yield out.into.segment, None
    for claim in job.checked.claims:
        yield claim.path, claim
    if job.checked.checkpoint:
        yield (job.checked.checkpoint,), None


def _read(job: JobRecord) -> Iterator[Place]:
    for ref in job.spec.inputs.values():
        if isinstance(ref, ArenaRef):
            yield ref.segment
    yield from job.checked.input_paths
