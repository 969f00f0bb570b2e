"""Executes the commands of one job's state machine on the fleet, the arena and threads.

It makes no decisions. An exception in a command becomes an event (StageFailed), which fails only
this job.
"""

from __future__ import annotations

import functools
import logging
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.concurrency.side_plans import SideStart
from hetsched.engine.concurrency.small_job_rule import Outlook
from hetsched.engine.context import EngineContext
from hetsched.engine.explanations import JobSnapshot
from hetsched.engine.iterating.iteration_orders import IterationOrders, job_arrays
from hetsched.engine.job import commands as do
from hetsched.engine.job.device_orders import DeviceOrders
from hetsched.engine.job.device_processes import DeviceProcesses
from hetsched.engine.job.events import (
    AbortRequested,
    Begin,
    DeadlinePassed,
    DeviceExcluded,
    DeviceMessage,
    DevicesJoined,
    DevicesLost,
    DevicesSwitched,
    JobEvent,
    PlanFailed,
    PlanReady,
    Published,
    PublishFailed,
    StageFailed,
)
from hetsched.engine.job.job_record import JobSettings
from hetsched.engine.job.outlook import outlook
from hetsched.engine.job.retries.failure_log import FailureLog
from hetsched.engine.job.state_machine import JobStateMachine
from hetsched.engine.job.states import Stopping
from hetsched.engine.planning.device_findings import DeviceFindings
from hetsched.engine.planning.job_planning import JobPlanning
from hetsched.engine.planning.run_planner import LearningTask
from hetsched.engine.threads.publication import OnPrepared, OutputPublisher
from hetsched.errors import TryAgain
from hetsched.job import Done, Failed, JobSpec, JobState
from hetsched.planner.job_planner import JobPlan
from hetsched.transport import device_messages
from hetsched.transport.loop import Timer

log = logging.getLogger(__name__)

LOG_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def do_nothing(*arguments: object) -> None:
    """Do nothing."""


class JobDriver:
    """The driver of one job, on the loop's thread.

    Parameters
    ----------
    on_state : callable
        Called with each Running state.
    on_prepared : callable or None
        Called when output files are complete, before they get their names.
    on_end : callable
        Called once with the last state and a function that returns the learning task, to be called
        after the state has been reported; None if there is nothing to learn.
    side : SideStart, optional
        Run beside another job, on one core.

    Attributes
    ----------
    is_withdrawn : bool
        It was a side job that has to start again, alone; its last state is of no interest.
    """

    def __init__(
        self,
        number: int,
        spec: JobSpec,
        job: ResolvedJob,
        context: EngineContext,
        on_state: Callable[[JobState], None],
        on_end: Callable[[Done | Failed, Callable[[], LearningTask | None]], None],
        side: SideStart | None = None,
        on_prepared: OnPrepared | None = None,
    ) -> None:
        self.number = number
        self.side = side
        self._is_side = side is not None
        self.is_withdrawn = False
        if side is not None:
            job = replace(job, devices=(side.core,))
        self._job = job
        self._context = context
        self._fleet = context.fleet
        self._on_state, self._on_end = on_state, on_end
        seed = context.verification_secret ^ number
        settings = JobSettings(
            number, spec, job, seed, context.stealing, context.deadlines, self._is_side
        )
        self._machine = JobStateMachine(settings)
        self._timer: Timer | None = None
        self._arrays = job_arrays(job, context.arena)
        self._iterations = IterationOrders(spec, self._arrays, context, self._post)
        self._publisher = OutputPublisher(
            job, context.files, context.deadlines, on_prepared, self._iterations.saves
        )
        self._findings = DeviceFindings(job, context.planning, is_side=self._is_side)
        self._orders = DeviceOrders(self._fleet, self._arrays, is_side=self._is_side)
        self._failure_log = FailureLog(job, context)
        self._processes = DeviceProcesses(
            job, context, self._arrays, self._failure_log, is_side=self._is_side
        )
        self._planning = JobPlanning(job, spec, context, side)
        self._events: deque[JobEvent] = deque()
        self._is_handling = False
        if side is not None:
            self._machine.record.note(f"ran beside job {side.beside}, on {side.core}")

    # ---- from outside

    def begin(self) -> None:
        self._post(Begin())

    def abort(self, error: BaseException, *, saves_state: bool = False) -> None:
        """Stop between chunks: send nothing more and wait for the chunks already sent.

        `saves_state`: as `AbortRequested.saves_state`.
        """
        self._post(AbortRequested(error, saves_state))

    def on_message(self, device: str, message: device_messages.Event) -> None:
        self._post(DeviceMessage(device, message))

    def withdraw(self) -> None:
        """Stop a side job, which shall start again with all devices when its turn comes."""
        self.is_withdrawn = True
        self.abort(TryAgain("the job will run alone"))

    def on_lost(
        self,
        devices: tuple[str, ...],
        reason: str,
        culprits: tuple[str, ...],
        *,
        counts: bool = True,
    ) -> None:
        abandoned = [name for name in self._job.devices if not self._fleet.any_remaining([name])]
        self._post(DevicesLost(devices, reason, frozenset(abandoned), culprits, counts))

    def on_joined(self, devices: tuple[str, ...]) -> None:
        self._post(DevicesJoined(devices))

    def on_switched(self) -> None:
        """Note that the user has disabled devices, or enabled them."""
        self._post(DevicesSwitched(frozenset(self._context.disabled)))

    def uses(self, devices: Collection[str]) -> bool:
        """Return whether the present attempt has chunks for any of `devices`."""
        latest = self._machine.record.latest
        return latest is not None and not latest.assignments.keys().isdisjoint(devices)

    @property
    def attempt_id(self) -> int | None:
        """The `job` of messages to and from devices; None before the first plan."""
        latest = self._machine.record.latest
        return None if latest is None else latest.id

    @property
    def has_excluded_devices(self) -> bool:
        """Whether the job doesn't use some of its devices because of failures."""
        return bool(self._machine.record.failures.excluded)

    def outlook(self) -> Outlook | None:
        """Return what the job still has to do; None if nothing may run beside it now."""
        return outlook(self._machine.record, time.monotonic())

    def add_side_job(self) -> None:
        """Note that a small job runs beside this one from now on."""
        self._machine.record.side_jobs += 1

    def snapshot(self) -> JobSnapshot:
        """Return the job's present state for an explanation."""
        record = self._machine.record
        attempt = record.latest
        plan = attempt.plan if attempt else JobPlan((), None, ())
        snapshot = JobSnapshot.of(self.number, self._job, plan, attempt.times if attempt else {})
        if record.iterations is not None:
            snapshot = replace(snapshot, history=record.iterations.history.history())
        if record.report_notes:
            snapshot = replace(snapshot, notes=(*snapshot.notes, *record.report_notes))
        return snapshot

    @property
    def is_stopping(self) -> bool:
        """Whether devices are asked to stop working for it."""
        return isinstance(self._machine.state, Stopping)

    # ---- events in, commands out

    def _post(self, event: JobEvent) -> None:
        """Handle `event`, then any events posted by its commands, in order."""
        self._events.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._is_handling = False

    def _post_result_of(self, make_event: Callable[[], JobEvent]) -> None:
        """Post the event from `make_event`, or its exception. For use in callbacks."""
        try:
            event = make_event()
        except Exception as error:
            event = StageFailed(error)
        self._post(event)

    def _handle(self, event: JobEvent) -> None:
        try:
            commands = self._machine.handle(event, time.monotonic())
        except Exception as error:
            if not isinstance(event, StageFailed):
                self._events.append(StageFailed(error))
                return
            log.exception("job %d: error while handling a failure", self.number)
            log.error("job %d: the original failure", self.number, exc_info=event.error)
            commands = self._machine.give_up(event.error)
        for command in commands:
            try:
                EXECUTE[type(command)](self, command)
            except Exception as error:
                self._events.append(StageFailed(error, command))

    # ---- planning

    def _allocate(self, command: do.AllocateArrays) -> None:
        self._arrays.allocate()
        for note in self._arrays.notes:
            self._machine.record.note(note)

    def _wait_for_processes(self, command: do.WaitForProcesses) -> None:
        on_settled = functools.partial(
            self._post_result_of, functools.partial(self._settled, command)
        )
        awaited = self._processes.awaited(command.devices)
        self._fleet.when_settled(awaited, on_settled, with_restarts=command.with_restarts)

    def _settled(self, command: do.WaitForProcesses) -> JobEvent:
        settled = self._processes.settled(command.devices)
        if self.side is not None and not settled.infos:
            self.is_withdrawn = True  # other devices may be usable
        return settled

    def _make_plan(self, command: do.MakePlan) -> None:
        if self.side is not None:
            self._plan_at_side(self.side)
        else:
            self._planning.begin(command.infos, self._post)

    def _plan_at_side(self, side: SideStart) -> None:
        """Use the given plan, once: if that failed, the job needs all devices to choose from."""
        if self._machine.record.latest is None:
            self._post(PlanReady(side.plan))
        else:
            self.is_withdrawn = True
            self._post(PlanFailed(TryAgain("the job will run alone")))

    def _start_processes(self, command: do.StartProcesses) -> None:
        devices = [assignment.device for assignment in command.assignments]
        started = functools.partial(self._processes.started, command.assignments)
        self._fleet.ensure_started(devices, lambda: self._post_result_of(started))

    # ---- deadlines

    def _set_deadline(self, command: do.SetDeadline) -> None:
        self._cancel_timer()
        seconds = max(0.0, command.at - time.monotonic())
        self._timer = self._context.loop.call_later(seconds, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        self._post(DeadlinePassed(self._iterations.arrivals()))

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- findings about devices

    def _record_failure(self, command: do.RecordFailure) -> None:
        reason = self._failure_log.record(command, self._machine.record)
        if reason:
            self._events.append(DeviceExcluded(command.device, reason))

    # ---- reports and the end

    def _log(self, command: do.LogMessage) -> None:
        level = LOG_LEVELS[command.level]
        log.log(level, "job %d: %s", self.number, command.text, exc_info=command.error)

    def _publish(self, command: do.PublishOutputs) -> None:
        self._publisher.publish(self._published)

    def _published(self, value: None, error: BaseException | None) -> None:
        self._post(Published() if error is None else PublishFailed(error))

    def _finish(self, command: do.FinishJob) -> None:
        """Take all final steps, even if some of them raise."""
        self._cancel_timer()
        state: Done | Failed
        if command.error is None:
            state = Done(self.number, command.report, self._arrays.hand_over())
            self._run_final_step(self._failure_log.record_success, self._machine.record)
        else:
            results = self._arrays.hand_over() if command.keeps_results else {}
            state = Failed(self.number, command.report, command.error, results)
        learning_task = functools.partial(
            self._run_final_step, self._planning.learning_task, self._machine.record, command
        )
        self._run_final_step(self._orders.release, command)
        self._run_final_step(self._arrays.close, self._fleet)
        self._run_final_step(self._close_files)
        on_end = self._on_end
        # These refer to the caller's arrays: break cycles, so that the arrays are freed now.
        self._on_state = self._on_end = do_nothing
        self._run_final_step(on_end, state, learning_task)

    def _run_final_step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return step(*arguments)
        except Exception:
            log.exception("job %d: unexpected error at the end of the job", self.number)
            return None

    def _close_files(self) -> None:
        if self._job.files or self._job.outputs:
            self._context.files.submit(self._job.close_files)


EXECUTE: dict[type[do.JobCommand], Callable[[JobDriver, Any], None]] = {
    do.AllocateArrays: JobDriver._allocate,
    do.WaitForProcesses: JobDriver._wait_for_processes,
    do.MakePlan: JobDriver._make_plan,
    do.StartProcesses: JobDriver._start_processes,
    do.PrepareDevice: lambda driver, command: driver._orders.prepare_device(command),
    do.FillUnits: lambda driver, command: driver._orders.fill_units(command),
    do.RunChunks: lambda driver, command: driver._orders.run_chunks(command),
    do.CheckUnits: lambda driver, command: driver._orders.check_units(command),
    do.FenceDevice: lambda driver, command: driver._orders.fence_device(command),
    do.KillDevice: lambda driver, command: driver._orders.kill_device(command),
    do.SetDeadline: JobDriver._set_deadline,
    do.PublishOutputs: JobDriver._publish,
    do.ReportProgress: lambda driver, command: driver._on_state(command.state),
    do.LoadInputs: lambda driver, command: driver._iterations.load_inputs(),
    do.CancelLoading: lambda driver, command: driver._iterations.cancel_loading(),
    do.StartEpoch: lambda driver, command: driver._iterations.start_epoch(command),
    do.ProposeSplit: lambda driver, command: driver._iterations.propose(command),
    do.AllowIteration: lambda driver, command: driver._iterations.allow(command),
    do.PauseEpoch: lambda driver, command: driver._iterations.pause(),
    do.AbortEpoch: lambda driver, command: driver._iterations.abort(),
    do.SettleEpoch: lambda driver, command: driver._iterations.settle(command),
    do.SaveState: lambda driver, command: driver._iterations.save_state(command),
    do.RestoreState: lambda driver, command: driver._iterations.restore_state(command),
    do.RecordKernels: lambda driver, command: driver._findings.record_kernels(command),
    do.ExcludeVariant: lambda driver, command: driver._findings.exclude_variant(command),
    do.RecordFailure: JobDriver._record_failure,
    do.ReduceMemory: lambda driver, command: driver._findings.reduce_memory(command),
    do.LogMessage: JobDriver._log,
    do.FinishJob: JobDriver._finish,
}
