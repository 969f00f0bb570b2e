"""One measurement: run jobs until every size has been measured accurately enough."""

from __future__ import annotations

import concurrent.futures
import math
import time
from typing import TYPE_CHECKING

import msgspec

from hetsched.cli.commands.models.measurement_lines import MeasurementView, new_view
from hetsched.cli.output.progress import POLL_SECONDS, error_of
from hetsched.cli.output.terminal import note
from hetsched.cli.request_flags import JobOptions
from hetsched.errors import Cancelled, Unavailable
from hetsched.job import Ended, JobSpec, JobState
from hetsched.units import counted
from hetsched.workload import BaseWorkload

if TYPE_CHECKING:
    from hetsched.cli.commands.models.measurement_schedule import (
        MeasurementCase,
        MeasurementSchedule,
    )
    from hetsched.client.job import Job
    from hetsched.local import Local


class MeasurementRun:
    """Runs the jobs that a `MeasurementSchedule` asks for, for so many seconds.

    The last job is stopped when they are over, and doesn't count.

    Attributes
    ----------
    jobs : int
        Jobs that have succeeded.
    late : int
        Phases of emulated devices that took longer than modelled.
    """

    def __init__(
        self,
        local: Local,
        name: str,
        workload: BaseWorkload,
        params: msgspec.Struct,
        options: JobOptions,
        plan: MeasurementSchedule,
        seconds: float,
    ) -> None:
        self._local = local
        self._name = name
        self._workload = workload
        self._params = params
        self._options = options
        self._plan = plan
        self._ends_at = time.monotonic() + seconds
        self.jobs = 0
        self.late = 0

    def run(self) -> None:
        """Run jobs until all cases are done, or the time is up.

        Raises
        ------
        Cancelled
            On Ctrl-C.
        HetschedError
            The error of a job that failed.
        """
        view = new_view(self._plan)
        try:
            while (case := self._plan.ask(self._ends_at - time.monotonic())) is not None:
                self._run_case(case, view)
        except KeyboardInterrupt:
            jobs = counted(self.jobs, "job")
            raise Cancelled(f"interrupted; the measurements of {jobs} are kept") from None
        finally:
            view.close()

    @property
    def is_over(self) -> bool:
        """Whether the time is up: what isn't done would take longer."""
        return not all(progress.is_done for progress in self._plan.progress())

    def _run_case(self, case: MeasurementCase, view: MeasurementView) -> None:
        start = time.monotonic()
        job = self._local.run(self._spec(case))
        try:
            state = _watch(job, case, view, self._ends_at)
            if not isinstance(state, Ended):
                job.cancel()
                state = _watch(job, case, view)
        except KeyboardInterrupt:
            self._stop(job, case, view)
            raise
        error = error_of(state)
        if isinstance(error, Cancelled):
            return
        if isinstance(error, Unavailable):
            self._plan.drop(case)
            note(f"skipped: {error}")
            if self._plan.progress():
                return
        if error is not None:
            raise error
        report = job.report
        assert report is not None
        self.jobs += 1
        self.late += sum(device.late for device in report.devices)
        self._plan.tell(case, report, time.monotonic() - start)
        view.on_result(case)

    def _stop(self, job: Job, case: MeasurementCase, view: MeasurementView) -> None:
        """Stop after the current chunks; a second Ctrl-C stops at once."""
        note("stopping after the current chunks; Ctrl-C again stops at once")
        try:
            job.cancel()
            _watch(job, case, view)
        except KeyboardInterrupt:
            self._local.abandon()

    def _spec(self, case: MeasurementCase) -> JobSpec:
        params = self._workload.resized(self._params, case.load)
        return JobSpec(
            workload=self._name,
            params=msgspec.to_builtins(params),
            devices=tuple(case.variants),
            memory_limit=self._options.memory_limit,
            seed=self._options.seed,
            measure=dict(case.variants),
        )


def _watch(
    job: Job, case: MeasurementCase, view: MeasurementView, until: float = math.inf
) -> JobState:
    """Show the progress of `job` until it has ended, or `until`; return its last state."""
    while True:
        state = job.progress()
        if isinstance(state, Ended) or time.monotonic() >= until:
            return state
        view.show(case, state)
        concurrent.futures.wait([job], timeout=POLL_SECONDS)
