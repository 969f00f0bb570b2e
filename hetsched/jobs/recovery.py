"""What becomes of the jobs of earlier daemons."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from hetsched import errors
from hetsched.job import Done, Ended, FileOut
from hetsched.jobs.table import JobRecord, JobTable, report_without_run, unstarted
from hetsched.store import output_files
from hetsched.store.checkpoint import read_record
from hetsched.store.journal_records import JournalContents, JournaledJob, job_token
from hetsched.transport.messages import encode

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_STARTS = 3
"""Times that a job may be running when the daemon ends without stopping in order."""


class SavedWork(NamedTuple):
    checkpoint: str  # From which it continues; "": none
    is_progress: bool  # Since the job was last started: that start got further than others


def recover(
    table: JobTable, contents: JournalContents, seconds: float
) -> tuple[list[JobRecord], list[JobRecord]]:
    """Take over all jobs of the journal, within `seconds`; return those to run, and ended ones."""
    publishing = [job for job in contents.open_jobs if job.stage == "publishing"]
    finished = _in_time(_finish, publishing, "publications", seconds)
    late = errors.IOFailure(
        f"the folder of the result hasn't responded for {seconds:g} s at the start"
    )
    publish_errors = {
        job.number: finished.get(job.number, errors.to_record(late)) for job in publishing
    }
    saved_work = functools.partial(_saved_work, token=contents.token)
    saved = _in_time(saved_work, contents.open_jobs, "saved work", seconds)
    ended, opened = [], []
    for journaled in contents.ended_jobs:
        job = restored(journaled)
        table.add_ended(job)
        ended.append(job)
    for journaled in contents.open_jobs:  # by number: one that runs after another comes after it
        job = restored(journaled)
        table.add(job)
        table.jobs[job.number] = job
        if (work := saved.get(job.number)) is not None:
            job.checkpoint = work.checkpoint
            if work.is_progress:  # the last start hasn't failed, so earlier ones were bad luck
                job.starts = 0
        end = _known_end(job, publish_errors)
        if end is None:
            opened.append(job)
        else:
            table.report_end(job, end)
            ended.append(job)
    return opened, ended


def restored(journaled: JournaledJob) -> JobRecord:
    """Return the record of a job of the journal; if it has ended, as clients may see it."""
    job = JobRecord(
        journaled.number,
        journaled.spec,
        key=journaled.client_id,
        submitted_at=journaled.submitted_at,
        nbytes=len(encode(journaled.spec)),
        started_at=journaled.started_at,
        ended_at=journaled.ended_at,
        starts=journaled.starts,
        failures=journaled.failures,
        prepared=journaled.outputs if journaled.stage == "publishing" else (),
    )
    job.priority, job.is_held = journaled.priority, journaled.held
    if isinstance(journaled.state, Done):
        job.state = replace(journaled.state, lost=lost_results(job))
    elif journaled.state is not None:
        job.state = journaled.state
    return job


def lost_results(job: JobRecord) -> str:
    outputs: Sequence[object] = list(job.spec.outputs.values())
    if outputs and all(isinstance(output, FileOut) for output in outputs):
        return ""
    again = (
        f"run it again: hetsched retry {job.number}"
        if job.is_durable
        else "submit it again from the program that has its arrays"
    )
    return (
        f"the result of job {job.number} was in the memory of an earlier daemon and is lost;"
        f" {again}"
    )


def _known_end(
    job: JobRecord, publish_errors: Mapping[int, errors.ErrorRecord | None]
) -> Ended | None:
    """Return the end of a job that needn't, or mustn't, run again."""
    if job.number in publish_errors:
        if (error := publish_errors[job.number]) is not None:
            return unstarted(job, error)
        outputs = job.spec.outputs.items()
        report = report_without_run(
            job,
            "done",
            outputs={name: output.path for name, output in outputs if isinstance(output, FileOut)},
            notes=("the daemon ended while the result was being published; its times are lost",),
        )
        return Done(job.number, report, lost=lost_results(job))
    if job.starts < MAX_STARTS:
        return None
    text = (
        f"job {job.number} was running each of the {job.starts} times that the daemon ended"
        " unexpectedly; it isn't started again (see the daemon's log)"
    )
    return unstarted(job, errors.ErrorRecord(errors.JobFailed.code, text))


# ---- what a crash has interrupted
#
# In a thread with a deadline: a folder on a dead mount must not keep the daemon from starting.


def _in_time(
    work: Callable[[JournaledJob], T], jobs: Iterable[JournaledJob], name: str, seconds: float
) -> Mapping[int, T]:
    """Return job number -> what `work` returns, for the jobs that it has done in time."""
    found: dict[int, T] = {}

    def work_on_all() -> None:
        for job in jobs:
            found[job.number] = work(job)

    thread = threading.Thread(target=work_on_all, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        log.warning("%s: not all jobs were seen to within %g s at the start", name, seconds)
    return dict(found)


def _finish(job: JournaledJob) -> errors.ErrorRecord | None:
    start = time.monotonic()
    try:
        output_files.publish_all(job.outputs)
    except errors.HetschedError as error:
        log.warning("job %d: its result can't be published: %s", job.number, error)
        return errors.to_record(error)
    log.info("job %d: result published, in %.3f s", job.number, time.monotonic() - start)
    return None


def _saved_work(job: JournaledJob, token: str) -> SavedWork | None:
    """Return what this job and this user have left on disk; `token`: the journal's."""
    owner = job_token(token, job.number)
    if job.spec.checkpoint:
        return _checkpoint_of(job, owner)
    if job.started_at is None:
        return None
    for output in job.spec.outputs.values():
        if isinstance(output, FileOut):
            with contextlib.suppress(OSError):
                at = output_files.finished_at(output.path, owner)
                return SavedWork("", at >= job.started_at)
    return None


def _checkpoint_of(job: JournaledJob, owner: str) -> SavedWork | None:
    path = job.spec.checkpoint
    try:
        status = Path(path).stat()
        if status.st_uid != os.geteuid():
            log.warning(
                "job %d starts over: %s belongs to uid %d", job.number, path, status.st_uid
            )
            return None
        record = read_record(path)
        if record.job != owner:
            return None
    except (OSError, errors.InputMissing):
        return None
    except errors.HetschedError as error:
        log.warning("job %d starts over: %s", job.number, error)
        return None
    log.info("job %d continues after iteration %d", job.number, record.iteration)
    is_progress = job.started_at is not None and status.st_mtime >= job.started_at
    return SavedWork(path, is_progress)
