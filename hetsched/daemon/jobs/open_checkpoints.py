"""Finds the checkpoints from which the jobs of an earlier daemon can continue.

In a thread with a deadline, as `unfinished_publications`. Only a whole file counts, which was
written since the job was submitted, by this user: an older one may be another job's. A file that
is too large to be read in time counts, too: it was synced before it got its name, and is read
whole by its job.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hetsched.errors import HetschedError, InputMissing
from hetsched.store.checkpoints.checkpoint_file import read_record, verify_checkpoint
from hetsched.store.journal.records import JournaledJob

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenCheckpoint:
    """A checkpoint of an open job.

    Attributes
    ----------
    iteration : int
        The last one that needn't be repeated.
    is_progress : bool
        It was written since the job was last started: that attempt got further than those before.
    """

    path: str
    iteration: int
    is_progress: bool


def find_checkpoints(jobs: Sequence[JournaledJob], seconds: float) -> Mapping[int, OpenCheckpoint]:
    """Return job number -> its checkpoint, of the jobs that have one."""
    candidates = [job for job in jobs if job.spec.checkpoint]
    if not candidates:
        return {}
    found: dict[int, OpenCheckpoint] = {}

    def run() -> None:
        for job in candidates:
            checkpoint = _checkpoint_of(job)
            if checkpoint is not None:
                found[job.number] = checkpoint
        for job in candidates:
            if job.number in found and not _is_whole(job):
                del found[job.number]

    thread = threading.Thread(target=run, name="checkpoints", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        log.warning("not all checkpoints have been read within %g s at the start", seconds)
    return dict(found)


def _checkpoint_of(job: JournaledJob) -> OpenCheckpoint | None:
    path = job.spec.checkpoint
    try:
        status = Path(path).stat()
        written_at = status.st_mtime
        if written_at < job.submitted_at:
            return None
        if status.st_uid != os.geteuid():
            log.warning(
                "job %d starts over: %s belongs to uid %d", job.number, path, status.st_uid
            )
            return None
        record = read_record(path)
    except (OSError, InputMissing):
        return None
    except HetschedError as error:
        log.warning("job %d starts over: %s", job.number, error)
        return None
    is_progress = job.started_at is not None and written_at >= job.started_at
    return OpenCheckpoint(path, record.iteration, is_progress)


def _is_whole(job: JournaledJob) -> bool:
    """Read all of a checkpoint, which may take long."""
    try:
        record = verify_checkpoint(job.spec.checkpoint)
    except (OSError, HetschedError) as error:
        log.warning("job %d starts over: %s", job.number, error)
        return False
    log.info("job %d continues after iteration %d", job.number, record.iteration)
    return True
