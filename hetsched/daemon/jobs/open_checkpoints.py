"""Finds the checkpoints from which the jobs of an earlier daemon can continue.

In a thread with a deadline, as `unfinished_publications`. Only a whole file counts, which was
written since the job was submitted: an older one may be another job's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hetsched.errors import HetschedError, InputMissing
from hetsched.store.checkpoints.checkpoint_file import verify_checkpoint
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

    thread = threading.Thread(target=run, name="checkpoints", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        log.warning("a checkpoint's folder hasn't responded for %g s at the start", seconds)
    return dict(found)


def _checkpoint_of(job: JournaledJob) -> OpenCheckpoint | None:
    path = job.spec.checkpoint
    try:
        written_at = Path(path).stat().st_mtime
        if written_at < job.submitted_at:
            return None
        record = verify_checkpoint(path)
    except (OSError, InputMissing):
        return None
    except HetschedError as error:
        log.warning("job %d starts over: %s", job.number, error)
        return None
    log.info("job %d continues after iteration %d, from %s", job.number, record.iteration, path)
    is_progress = job.started_at is not None and written_at >= job.started_at
    return OpenCheckpoint(path, record.iteration, is_progress)
