"""The ends of jobs: whatever refers to one is released, and its last state is reported."""

from __future__ import annotations

import logging
from collections.abc import Callable

from hetsched.engine.admission.check import release_segments
from hetsched.engine.concurrency.side_jobs import SideJobs
from hetsched.engine.context import EngineContext
from hetsched.engine.explanations import ExplanationArchive, JobSnapshot
from hetsched.engine.queued_job import QueuedJob
from hetsched.engine.run.report import minimal_report
from hetsched.errors import to_record
from hetsched.job import Done, Failed
from hetsched.planner.records import JobPlan

log = logging.getLogger(__name__)


class JobEnds:
    """Reports the ends of an engine's jobs. On the loop's thread only.

    Parameters
    ----------
    jobs : dict
        Number -> unfinished job; those that end are removed.
    """

    def __init__(
        self,
        context: EngineContext,
        jobs: dict[int, QueuedJob],
        sides: SideJobs,
        archive: ExplanationArchive,
    ) -> None:
        self._context = context
        self._jobs = jobs
        self._sides = sides
        self._archive = archive

    def report(
        self, queued: QueuedJob, state: Done | Failed, snapshot: Callable[[], JobSnapshot]
    ) -> None:
        """Report the last state. An exception must not block the next job."""
        self._jobs.pop(queued.number, None)
        steps: tuple[Callable[[], None], ...] = (
            lambda: self._sides.removed(queued.number),
            lambda: self._context.admission.pending.remove(queued.number),
            lambda: release_segments(self._context.arena, queued.held_segments),
            lambda: queued.on_state(state),
            lambda: self._archive.add(snapshot().ended(state)),
        )
        for step in steps:
            try:
                step()
            except Exception:
                log.exception("job %d: unexpected error while reporting its end", queued.number)

    def report_unstarted(self, queued: QueuedJob, error: Exception) -> None:
        """Report the end of a job that isn't running and has left the queue."""
        record = to_record(error)
        report = minimal_report(queued.number, queued.job, record)
        if queued.job.files or queued.job.outputs:
            self._context.disk.submit(queued.job.close_files)
        self.report(
            queued,
            Failed(queued.number, report, record),
            lambda: JobSnapshot.of(queued.number, queued.job, JobPlan((), None), {}),
        )
