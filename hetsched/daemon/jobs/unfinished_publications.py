"""Completes the publication of results that a crash has interrupted, before the daemon serves.

In a thread with a deadline: a folder on a dead mount must not keep the daemon from starting.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence

from hetsched.errors import ErrorRecord, HetschedError, IOFailure, to_record
from hetsched.store.arrays.publication import (
    discard_prepared,
    publish_each,
    publish_prepared,
)
from hetsched.store.journal.records import JournaledJob

log = logging.getLogger(__name__)


def finish_publications(
    jobs: Sequence[JournaledJob], seconds: float
) -> Mapping[int, ErrorRecord | None]:
    """Name the prepared files of the jobs that were publishing.

    Returns
    -------
    Number of each of these jobs -> None if its files have their names, else why not.
    """
    publishing = [job for job in jobs if job.stage == "publishing"]
    if not publishing:
        return {}
    errors: dict[int, ErrorRecord | None] = {}

    def run() -> None:
        for job in publishing:
            errors[job.number] = _finish(job)

    thread = threading.Thread(target=run, name="publications", daemon=True)
    thread.start()
    thread.join(seconds)
    late = IOFailure(f"the folder of the result hasn't responded for {seconds:g} s at the start")
    return {
        job.number: errors[job.number] if job.number in errors else to_record(late)
        for job in publishing
    }


def _finish(job: JournaledJob) -> ErrorRecord | None:
    start = time.monotonic()
    try:
        publish_each(
            (os.fsdecode(output.target), functools.partial(publish_prepared, output))
            for output in job.outputs
        )
    except HetschedError as error:
        for output in job.outputs:
            discard_prepared(output)
        log.warning("job %d: its result can't be published: %s", job.number, error)
        return to_record(error)
    log.info("job %d: result published, in %.3f s", job.number, time.monotonic() - start)
    return None
