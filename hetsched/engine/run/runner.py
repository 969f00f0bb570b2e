"""The whole life of a job's run, from its arrays to its report."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from hetsched.device import DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.context import EngineContext
from hetsched.engine.failures import names
from hetsched.engine.planning.device_run import DeviceRun
from hetsched.engine.planning.run_planner import JobPlanning, LearningTask
from hetsched.engine.run.arrays import IterativeArrays, OnPrepared, publish
from hetsched.engine.run.attempt import (
    Attempt,
    Joined,
    Lost,
    Message,
    StartOver,
    StopRequested,
    Switched,
)
from hetsched.engine.run.compute import compute, outlook
from hetsched.engine.run.iterate import iterate, settle_stopped
from hetsched.engine.run.preparing import prepare, verify
from hetsched.engine.run.running_job import RunningJob, job_report
from hetsched.engine.small_jobs import Outlook
from hetsched.errors import (
    Cancelled,
    ErrorRecord,
    InternalError,
    JobFailed,
    TryAgain,
    Unavailable,
    to_record,
)
from hetsched.job import Done, Failed, JobReport, JobSpec, JobState, outcome
from hetsched.planner.job_planner import JobPlan
from hetsched.transport import device_messages
from hetsched.units import counted

log = logging.getLogger(__name__)

OnEnd = Callable[[Done | Failed, Callable[[], LearningTask | None]], None]


def do_nothing(*arguments: object) -> None:
    return None


class JobRunner:
    """Runs one job, on the loop's thread.

    Parameters
    ----------
    on_state : callable
        Called with each Running state.
    on_prepared : callable or None
        Called when output files are complete, before they get their names.
    on_end : callable
        Called once with the last state and a function that returns the learning task, to be called
        after the state has been reported; None if there is nothing to learn.
    plan : JobPlan, optional
        On one core, beside another job.
    """

    def __init__(
        self,
        number: int,
        spec: JobSpec,
        job: ResolvedJob,
        context: EngineContext,
        on_state: Callable[[JobState], None],
        on_end: OnEnd,
        plan: JobPlan | None = None,
        on_prepared: OnPrepared | None = None,
    ) -> None:
        self.number = number
        self._plan_beside = plan
        self._context = context
        self._on_end = on_end
        self._on_prepared = on_prepared
        self.running = running = RunningJob(number, spec, job, context, on_state, plan)
        self._job = running.job
        self._planning = JobPlanning(running)
        self._task: asyncio.Task[None] | None = None
        self._attempt: Attempt | None = None  # The present one, while devices work for it
        self._abort_error: BaseException | None = None
        self._has_begun = self._is_past_abort = False

    # ---- from outside

    def begin(self) -> None:
        self._task = self._context.loop.create_task(self._run())

    def abort(self, error: BaseException, *, saves_state: bool = False) -> None:
        """Stop between chunks: send nothing more and wait for the chunks already sent.

        `saves_state`: an iterative job with checkpoints first finishes its iteration and saves it,
        unless it is asked a second time.
        """
        if self._is_past_abort or self._task is None:
            return
        attempt, running = self._attempt, self.running
        if attempt is not None and saves_state and self._can_save(attempt):
            if running.stop_error is None:
                running.stop_error = error
                attempt.post(StopRequested(error))
                return
            if not isinstance(error, Cancelled):  # the state is being saved already
                return
        if attempt is not None and attempt.is_stopping:
            self._abort_error = self._abort_error or error
            attempt.hurry()
            return
        self._abort_error = self._abort_error or error
        if attempt is not None:
            attempt.drop_events()
        if self._has_begun:  # a task that hasn't would end without a word
            self._task.cancel()

    def _can_save(self, attempt: Attempt) -> bool:
        iterations, saves = self.running.iterations, self.running.saves
        return (
            iterations is not None
            and saves is not None
            and saves.can_save
            and not iterations.is_warming_up
            and attempt.step == "computing"
            and not attempt.is_stopping
        )

    def on_message(self, device: str, message: device_messages.AttemptEvent) -> None:
        """Take a message, if it is about the present attempt."""
        attempt = self._attempt
        if attempt is not None and message.attempt == attempt.id:
            attempt.post(Message(device, message))

    def on_lost(self, device: str, reason: str, *, counts: bool = True) -> None:
        """Note the death of a device's process; `counts`: this job may be the cause."""
        if self._attempt is not None:
            fleet = self._context.fleet
            gone = [name for name in self._job.devices if not fleet.any_remaining([name])]
            self.running.failures.abandoned = frozenset(gone)
            self._attempt.post(Lost(device, reason, counts))

    def on_joined(self, device: str) -> None:
        if self._attempt is not None:
            self._attempt.post(Joined(device))

    def on_switched(self) -> None:
        """Note that the user has disabled devices, or enabled them."""
        disabled = frozenset(self._context.disabled)
        if self._attempt is None:
            self.running.disabled = disabled
        else:
            self._attempt.post(Switched(disabled))

    def uses(self, device: str) -> bool:
        """Return whether the present attempt has chunks for `device`."""
        latest = self.running.latest
        return latest is not None and device in latest.assignments

    @property
    def has_excluded_devices(self) -> bool:
        """Whether the job doesn't use some of its devices because of failures."""
        return bool(self.running.failures.excluded)

    @property
    def has_checkpoint(self) -> bool:
        """Whether another start of the job may continue from a checkpoint of this one."""
        saves = self.running.saves
        return saves is not None and saves.has_checkpoint

    def outlook(self) -> Outlook | None:
        """Return what the job still has to do; None if nothing may run beside it now."""
        return None if self._attempt is None else outlook(self._attempt, time.monotonic())

    @property
    def is_small(self) -> bool:
        """Whether it runs beside another job, on one core."""
        return self._plan_beside is not None

    @property
    def is_stopping(self) -> bool:
        """Whether devices are asked to stop working for it."""
        return self._attempt is not None and self._attempt.is_stopping

    # ---- the run

    async def _run(self) -> None:
        """Run the job; whatever happens, it ends once and its resources are released."""
        self._has_begun = True
        error: ErrorRecord | None = None  # no exception, whose traceback would keep arrays alive
        runs: Mapping[str, DeviceRun] | None = None
        report: JobReport | None = None
        keeps_results = False
        try:
            self._check_abort()
            report, runs = await self._run_to_report()
        except asyncio.CancelledError:
            error = to_record(self._abort_error or TryAgain("the engine has stopped; try again"))
        except Exception as failure:
            error, keeps_results = to_record(failure), isinstance(failure, _Unconverged)
            if error.code == InternalError.code:
                log.exception("job %d: %s", self.number, error.message)
            elif error.frames:
                log.warning("job %d: %s\n%s", self.number, error.message, error.frames)
        self._is_past_abort = True
        self._abort_error = self.running.stop_error = None
        self._end(self._last_state(report, error, keeps_results=keeps_results), runs)

    async def _run_to_report(self) -> tuple[JobReport, Mapping[str, DeviceRun] | None]:
        """Return the report, and the part of each device; None: the run isn't a typical one."""
        running = self.running
        running.arrays.allocate()
        for note in running.arrays.notes:
            running.note(note)
        if self._job.finished:
            units = sum(end - first for first, end in self._job.finished)
            running.note(f"continued: {units} of {self._job.load} units were complete on disk")
        await self._load_inputs()
        attempt = await self._attempts()
        unconverged = self._convergence_error()
        runs = attempt.runs()
        report = job_report(running, runs)
        if self._job.outputs:
            self._is_past_abort = True  # from now on files get their names
            await self._publish()
        if unconverged is not None:
            raise unconverged
        running.failures.record_success(attempt.chunk_counts())
        is_typical = attempt.computation is not None and not attempt.computation.has_lost_device
        is_typical = is_typical and not self._job.finished
        return report, runs if is_typical else None

    async def _load_inputs(self) -> None:
        """Copy inputs of an iterative job to its segments, in a thread."""
        arrays, files = self.running.arrays, self._context.files
        if not self._job.copied_inputs or not isinstance(arrays, IterativeArrays):
            return
        loads = arrays.loads()
        if loads is None:
            return
        seconds = files.deadline + loads.seconds
        try:
            await self._context.disk.call(
                loads.run, release=arrays.retain_copied(), deadline=seconds
            )
        except asyncio.CancelledError:
            loads.cancel()
            raise

    async def _attempts(self) -> Attempt:
        """Start the job until it is computed; return the attempt that has done it."""
        running, wait_for_restarts = self.running, False
        while True:
            attempt_id, infos, starting, absent = await self._usable_devices(wait_for_restarts)
            try:
                plan = await self._plan(infos)
            except Unavailable as error:
                if not starting:
                    raise self._without_variant(error, absent) from error
                wait_for_restarts = True  # none of the others has a variant
                continue
            wait_for_restarts = False
            attempt = Attempt(running, attempt_id, plan, infos)
            if running.latest is None and starting:
                self._note_restarting(starting)
            running.latest = attempt
            try:
                await self._start(attempt)
            except StartOver as reason:
                self._check_abort()
                running.failures.reason = str(reason)
                log.info("job %d: starts over: %s", self.number, reason)
                settle_stopped(running)
            else:
                return attempt

    async def _start(self, attempt: Attempt) -> None:
        """Run one attempt. Raises StartOver if another one may do better."""
        running, fleet = self.running, self._context.fleet
        devices = list(attempt.assignments)
        await fleet.started(devices)
        if not fleet.ready() >= attempt.assignments.keys():
            raise StartOver("a device process ended while the job was planned")
        attempt.infos.update((device, fleet.info(device)) for device in devices)
        self._attempt = attempt
        try:
            async with attempt:
                await prepare(attempt, kernels_cached=self._has_kernels(attempt))
                if running.iterations is not None:
                    await iterate(attempt)
                else:
                    await compute(attempt)
                if running.spec.verify and self._convergence_error() is None:
                    await verify(attempt)
        finally:
            self._attempt = None

    def _check_abort(self) -> None:
        """End the job if that was requested while devices were stopped for another attempt."""
        error = self._abort_error or self.running.stop_error
        if error is not None:
            raise error

    # ---- before an attempt

    async def _usable_devices(
        self, wait_for_restarts: bool
    ) -> tuple[int, list[DeviceInfo], frozenset[str], Mapping[str, str]]:
        """Return the number of the next attempt and the devices usable now.

        And those that are starting, and why others are absent. Raises Unavailable, or JobFailed
        after too many attempts.
        """
        running, fleet, failures = self.running, self._context.fleet, self.running.failures
        devices = failures.remaining(self._job.devices)
        # That others are ready is no reason not to wait for the restart of these.
        unusable = {*self._context.disabled, *failures.reasons_against(devices)}
        awaited = [name for name in devices if name not in unusable] or devices
        await fleet.settled(awaited, with_restarts=wait_for_restarts)
        failures.count_attempt()
        for device, reason in failures.reasons_against(devices).items():
            if device not in failures.excluded:
                failures.excluded[device] = reason
                running.note(f"{device}: {reason}")
        running.disabled = frozenset(self._context.disabled)
        absent = dict(fleet.absent)
        infos = [i for i in fleet.usable(devices) if i.name not in failures.excluded]
        enabled = [info for info in infos if info.name not in running.disabled]
        if not enabled:
            own = running.disabled.intersection(self._job.devices)
            disabled = dict.fromkeys(sorted(own), "disabled")
            raise failures.error() if failures.excluded else _no_device({**absent, **disabled})
        if running.iterations is None:  # an iterative job may use others once they are enabled
            infos = enabled
        starting = fleet.starting(devices).difference(failures.excluded)
        return self._context.new_attempt_id(), infos, starting, absent

    async def _plan(self, infos: Sequence[DeviceInfo]) -> JobPlan:
        if self._plan_beside is None:
            return await self._planning.plan(infos)
        if self.running.latest is None:
            return self._plan_beside
        # Its plan has failed: the job needs all devices to choose from.
        raise TryAgain("the job will run alone")

    def _without_variant(self, error: Unavailable, absent: Mapping[str, str]) -> Exception:
        if self.running.failures.excluded:
            return self.running.failures.error()  # the others have no variant of this workload
        if absent:
            return Unavailable(f"{error}; devices not available: {_listed(absent)}")
        return error

    def _note_restarting(self, starting: Collection[str]) -> None:
        """Report devices that an earlier job lost, and that may take part later."""
        restarting = [device for device in self._job.devices if device in starting]
        if restarting:
            self.running.note(f"began without {names(restarting)}: the process is starting again")

    def _has_kernels(self, attempt: Attempt) -> bool:
        """Return whether the devices have these kernels, and large arrays mapped."""
        kernels = self._context.planning.kernels
        return kernels.contains_all(self._job, attempt.assignments.values()) and (
            self.running.arrays.are_mapped(self._context.fleet, attempt.assignments)
        )

    # ---- the end

    def _convergence_error(self) -> _Unconverged | None:
        """Return the error of an iterative job whose method should have converged and hasn't."""
        iterations, declared = self.running.iterations, self._job.iterative
        if iterations is None or declared is None or not declared.must_converge:
            return None
        if iterations.has_converged:
            return None
        is_known = not math.isnan(iterations.residual)
        residual = f": residual {iterations.residual:.3g}" if is_known else ""
        count = counted(iterations.finished, "iteration")
        return _Unconverged(f"no convergence after {count}{residual}")

    async def _publish(self) -> None:
        arrays = self.running.arrays
        copies = arrays.saves() if isinstance(arrays, IterativeArrays) else None
        await publish(self._job, self._context, copies, self._on_prepared)

    def _end(self, state: Done | Failed, runs: Mapping[str, DeviceRun] | None) -> None:
        """Take all final steps, even if some of them raise."""
        learning_task = functools.partial(self._try, self._planning.learning_task, runs)
        running = self.running
        if running.saves is not None:
            running.saves.close()
        self._try(running.arrays.close, self._context.fleet)
        if self._job.files or self._job.outputs:
            is_stopped = isinstance(state, Failed) and state.error.code == TryAgain.code
            if is_stopped and self._context.is_stopping:  # the next daemon goes on with them
                self._job.keeps_parts = True
            self._try(self._context.disk.submit, self._job.close_files)
        on_end = self._on_end
        # These refer to the caller's arrays: break cycles, so that the arrays are freed now.
        self._on_end = running.on_state = do_nothing
        self._task = None
        self._try(on_end, state, learning_task)
        running.latest = running.saves = None

    def _last_state(
        self, report: JobReport | None, error: ErrorRecord | None, *, keeps_results: bool
    ) -> Done | Failed:
        running = self.running
        if error is None:
            assert report is not None
            return Done(self.number, report, running.arrays.hand_over())
        results = running.arrays.hand_over() if keeps_results else {}
        try:
            runs = running.latest.runs() if running.latest is not None else {}
            report = job_report(running, runs, error=error)
        except Exception:
            log.exception("job %d: no full report", self.number)
            report = JobReport(
                job=self.number,
                state=outcome(error),
                workload=self._job.workload.name,
                load=self._job.load,
                error=error,
            )
        return Failed(self.number, report, error, results)

    def _try(self, step: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return step(*arguments)
        except Exception:
            log.exception("job %d: unexpected error at the end of the job", self.number)
            return None


class _Unconverged(JobFailed):
    """Its results are kept: they are the best that there are."""


def _no_device(absent: Mapping[str, str]) -> Unavailable:
    """Return the error of a job without usable devices; `absent`: device -> reason."""
    reasons = _listed(absent) or "none configured"
    return Unavailable(f"no device is available for this job ({reasons})")


def _listed(absent: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in absent.items())
