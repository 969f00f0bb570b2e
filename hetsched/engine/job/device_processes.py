"""What a job learns of the device processes before it plans, and before it prepares them."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.context import EngineContext
from hetsched.engine.job.arrays import JobArrays
from hetsched.engine.job.events import ProcessesSettled, ProcessesStarted
from hetsched.engine.job.retries.failure_log import FailureLog
from hetsched.planner.job_planner import Assignment


class DeviceProcesses:
    """The device processes as one job sees them. On the loop's thread.

    Parameters
    ----------
    is_side : bool
        It runs beside another job, on one core.
    """

    def __init__(
        self,
        job: ResolvedJob,
        context: EngineContext,
        arrays: JobArrays,
        failure_log: FailureLog,
        *,
        is_side: bool,
    ) -> None:
        self._job = job
        self._context = context
        self._arrays = arrays
        self._failure_log = failure_log
        self._is_side = is_side

    def awaited(self, devices: Sequence[str]) -> Sequence[str]:
        """Return those of `devices` that the job may use; all, if it may use none.

        That others are ready is no reason not to wait for the restart of these.
        """
        unusable = {*self._context.disabled, *self._failure_log.excluded(devices)}
        return [name for name in devices if name not in unusable] or devices

    def settled(self, devices: Sequence[str]) -> ProcessesSettled:
        """Return which of `devices` are usable, now that this is certain."""
        fleet = self._context.fleet
        excluded = self._failure_log.excluded(devices)
        infos = tuple(info for info in fleet.usable(devices) if info.name not in excluded)
        disabled = frozenset(self._context.disabled)
        if self._job.iterative is None:  # an iterative job may use them once they are enabled
            infos = tuple(info for info in infos if info.name not in disabled)
        return ProcessesSettled(
            self._context.new_attempt_id(),
            infos,
            dict(fleet.absent),
            excluded,
            fleet.starting(devices),
            disabled,
        )

    def started(self, assignments: Sequence[Assignment]) -> ProcessesStarted:
        """Return which devices are ready, now that on-demand processes have started."""
        fleet = self._context.fleet
        infos = {a.device: fleet.info(a.device) for a in assignments}
        kernels = self._context.planning.kernels
        are_cached = kernels.contains_all(self._job, assignments, is_side=self._is_side)
        is_quick = are_cached and self._arrays.are_mapped(fleet, infos)
        return ProcessesStarted(frozenset(fleet.ready()), infos, is_quick)
