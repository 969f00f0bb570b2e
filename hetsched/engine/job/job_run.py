"""One job from its turn to its end: plan, prepare, fill, run, check, publish.

A chain of stages; each sends commands and waits for as many answers. A device
that is lost while the load runs costs its unfinished chunks only (`schedule.dispatch` sends them
elsewhere); one that is lost in another stage makes the job start over with what is left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hetsched import errors
from hetsched.engine.context import Context
from hetsched.engine.explanations import Evidence, Times
from hetsched.engine.job.arrays import JobArrays
from hetsched.engine.job.dispatch_driver import Computing
from hetsched.engine.job.fill_and_check import FillOrder, check_orders, fill_orders, helpers
from hetsched.engine.job.pending_answers import Tally
from hetsched.engine.job.report import job_report
from hetsched.engine.job.retry_policy import Patience, loss
from hetsched.engine.job.verification_result import Verdict
from hetsched.engine.planning.plan_ahead import Planning
from hetsched.engine.planning.plan_and_learn import Measured
from hetsched.engine.processes.fleet import no_device_error
from hetsched.engine.resolve import Resolved
from hetsched.errors import ErrorRecord, HetschedError, InternalError, JobFailed, to_record
from hetsched.job import Done, Failed, JobReport, JobSpec, JobState, Running
from hetsched.planner.job_planner import Assignment, JobPlan
from hetsched.transport import device_messages
from hetsched.transport.device_messages import DeviceCommand

log = logging.getLogger(__name__)

BESIDE = ("preparing", "generating", "verifying")
"""Stages in which the loss of a device makes the job start over: before them nothing is lost,
after them nothing is needed. While "computing" its chunks go elsewhere."""
PROGRESS_SECONDS = 0.1  # between two progress states


def _nothing(*state: object) -> None:
    """Nothing to learn."""


class JobRun:
    """Drives one job.

    `ended` is called once, with its last state and what learns from it: that is for the planner's
    thread, once the state has been told, because whoever waits for the job needn't wait for that.
    """

    def __init__(
        self,
        number: int,
        spec: JobSpec,
        job: Resolved,
        context: Context,
        listen: Callable[[JobState], None],
        ended: Callable[[JobState, Callable[[], None]], None],
    ) -> None:
        self.number = number
        self._spec = spec
        self._job = job
        self._context = context
        self._fleet = context.fleet
        self._listen = listen
        self._ended = ended
        self._wire = -1
        self._patience = Patience()
        self._fences = 0
        self._stage = "planning"
        self._plan = JobPlan((), None, ())
        self._assigned: dict[str, Assignment] = {}
        self._planning: Planning | None = None
        self._prepared: set[str] = set()
        self._tally = Tally()
        self._computing: Computing | None = None
        self._times: Times = {}
        self._told = 0.0
        self._limit = spec.memory_limit or context.memory_limit
        self._failure: BaseException | None = None
        self._arrays = JobArrays(job, context.arena)
        self._verdict = Verdict()
        self._filled = False
        self._over = False

    # ---- from outside, on the loop's thread

    def begin(self) -> None:
        try:
            self._arrays.allocate()
        except HetschedError as error:
            self._end(error)
            return
        self._wait(self._fleet.when_settled, self._job.devices, self._attempt)

    def evidence(self) -> Evidence:
        """What an account of the job is made of, as far as it has come."""
        return Evidence.of(self.number, self._job, self._plan, self._times)

    def abort(self, error: BaseException) -> None:
        """Stop at a chunk's edge: no more is sent, what was sent is waited for."""
        if self._failure is not None or self._over or self._stage == "publishing":
            return
        self._failure = error
        if self._stage == "waiting":
            self._end(error)
        elif self._stage not in ("planning", "stopping"):  # they look at it when they end
            self._fence(lambda: self._end(error))

    def event(self, device: str, event: device_messages.Event) -> None:
        if self._over or getattr(event, "job", None) != self._wire:
            return
        match event:
            case device_messages.ChunkDone():
                self._chunk_done(device, event)
            case device_messages.Prepared() | device_messages.Filled() | device_messages.Fenced():
                self._answered(device, event)
            case device_messages.Checked():
                self._verdict.add(event)
                self._answered(device, event)
            case device_messages.CommandFailed():
                self._trouble(device, event)
            case device_messages.DeviceNote():
                self._tell(event.text, force=True)

    def lost(self, devices: tuple[str, ...], reason: str) -> None:
        self._prepared.difference_update(devices)
        self._context.experience.cooled(devices)
        if self._over:
            return
        ours = any(device in self._assigned for device in devices)
        too_often = self._patience.death(reason) if ours else None
        self._job.notes += [loss(devices, reason)] if ours else []
        if too_often is not None:
            self.abort(too_often)
        if self._stage == "stopping":
            self._tally.forgive(devices)
        elif self._stage == "computing" and self._computing is not None:
            for device in devices:
                if device in self._assigned:
                    self._computing.lost(device)
            if not self._fleet.any_remaining(self._assigned):
                self._again(reason)  # others may take over; `_attempt` says if there are none
        elif self._stage in BESIDE and any(device in self._assigned for device in devices):
            self._again(reason)

    def joined(self, devices: tuple[str, ...]) -> None:
        if self._over or self._failure is not None or self._stage != "computing":
            return
        for device in devices:
            if device in self._assigned:
                self._prepare(device)

    # ---- stages

    def _wait(
        self, start: Callable[..., None], devices: Iterable[str], then: Callable[[], None]
    ) -> None:
        """For processes that start. Whoever aborts the job needn't."""
        self._stage = "waiting"
        if self._failure is not None:
            self._end(self._failure)
        else:
            start(devices, lambda: None if self._over else then())

    def _attempt(self) -> None:
        """Plan for the devices that are there now."""
        given_up = self._patience.start()
        if given_up is not None:
            self._end(given_up)
            return
        self._wire = self._context.new_wire()
        self._stage, self._computing = "planning", None
        self._prepared.clear()
        self._verdict = Verdict()
        infos = self._fleet.usable(self._job.devices)
        if not infos:
            self._end(no_device_error(self._fleet.absent))
            return
        self._planning = Planning(self._job, infos, self._limit, self._context)
        self._planning.begin(self._planned)

    def _again(self, reason: str) -> None:
        log.info("job %d starts over: %s", self.number, reason)
        self._patience.again(reason)
        # What was sent must have ended before anything is planned, or the job's memory given back.
        settled = self._fleet.when_settled
        self._fence(lambda: self._wait(settled, self._job.devices, self._attempt))

    def _planned(self, plan: JobPlan | None, error: BaseException | None) -> None:
        if self._failure is not None or plan is None:
            self._end(self._failure or error or InternalError("the planner gave no answer"))
            return
        self._plan, self._times = plan, {}
        self._assigned = {a.device: a for a in plan.assignments if a.chunks}
        self._wait(self._fleet.ensure_started, self._assigned, self._awake)

    def _awake(self) -> None:
        if not self._fleet.ready() >= set(self._assigned):
            self._again("a device went while the job was planned")
            return
        self._stage = "preparing"
        self._tell("")
        poisoned = self._arrays.results if self._spec.verify else ()
        orders = fill_orders(self._job, self._helpers(), self._spec.seed, poisoned)
        # What follows a quick preparation needn't wait for its answer.
        quick = not orders and self._context.experience.warm(self._job, self._assigned.values())
        for device in self._assigned:
            self._prepare(device, answer=not quick)
        if quick:
            self._run()
        else:
            self._await(lambda: self._fill(orders), self._assigned)

    def _prepare(self, device: str, answer: bool = True) -> None:
        one = self._assigned[device]
        self._arrays.attach(self._fleet, device)
        self._fleet.send(device, lambda index: self._arrays.order(self._wire, index, one, answer))

    def _fill(self, orders: Sequence[FillOrder]) -> None:
        self._context.experience.warmed(self._job, self._assigned.values())
        if not orders or self._filled:
            self._run()
            return
        self._stage = "generating"
        self._tell("", force=True)
        self._await(self._after_fill, [order.device for order in orders])
        for o in orders:
            self._send(o.device, device_messages.Fill, o.array, o.first, o.count, o.seed, o.poison)

    def _after_fill(self) -> None:
        """Resident data reaches a device's memory when it is prepared: do that again."""
        self._filled = True
        if not any(array.role == "resident" for array in self._job.generate):
            self._run()
            return
        self._await(self._run, self._assigned)
        for device in self._assigned:
            self._prepare(device)

    def _run(self) -> None:
        self._stage = "computing"
        self._computing = Computing(
            self._assigned,
            lambda device, chunks: self._send(device, device_messages.Run, chunks),
            self._computed,
            stealing=not self._job.measure and self._context.steals(self._assigned),
        )
        self._times = self._computing.times
        self._tell("", force=True)
        self._computing.start()

    def _chunk_done(self, device: str, done: device_messages.ChunkDone) -> None:
        if self._computing is None or self._stage != "computing" or self._failure is not None:
            return
        self._prepared.add(device)
        self._computing.chunk_done(device, done)
        self._tell("")

    def _computed(self) -> None:
        if not self._spec.verify:
            self._publish(None)
            return
        self._stage = "verifying"
        self._tell("", force=True)
        if not self._helpers():
            self._again("nobody is left to check the result")
            return
        seed = self._context.secret ^ self.number
        orders = check_orders(self._job.load, self._helpers(), self._assigned.values(), seed)
        self._await(self._verified, [order.device for order in orders])
        for o in orders:
            self._send(o.device, device_messages.Check, o.first, o.count, o.samples, seed)

    def _verified(self) -> None:
        if self._verdict.wrong is not None:
            self._end(self._verdict.wrong)
        else:
            self._publish(True)

    def _publish(self, verified: bool | None) -> None:
        self._stage = "publishing"
        report = self._report("done", verified=verified)
        if not self._job.outputs:
            self._done(report)
            return
        self._context.planner_thread.submit(
            self._job.publish,
            lambda _, error: self._done(report) if error is None else self._end(error),
        )

    def _done(self, report: JobReport) -> None:
        done = Done(self.number, report, self._arrays.hand_over())
        if self._computing is None or self._computing.disturbed or self._planning is None:
            self._close(done)
        else:
            self._close(done, self._planning.lesson(self._plan, self._measured()))

    # ---- trouble

    def _trouble(self, device: str, trouble: device_messages.CommandFailed) -> None:
        if self._stage == "stopping":
            return
        one, experience = self._assigned[device], self._context.experience
        preparing = trouble.chunk is None and device not in self._prepared
        if trouble.cause == "variant" and preparing:
            log.warning("variant %s: %s", one.variant, trouble.error.message)
            experience.broke(self._job, self._context.info(device), one.variant)
            self._again(trouble.error.message)
        elif trouble.cause == "memory":
            experience.ran_out(device, one.memory)
            self._again(trouble.error.message)
        elif trouble.cause != "fault":  # a fault ends the process: that is seen as a loss
            self.abort(errors.from_record(trouble.error))

    def _fence(self, then: Callable[[], None]) -> None:
        """Go on with `then` when no device writes to the job's arrays any more."""
        self._stage = "stopping"
        self._fences += 1
        devices = sorted(set(self._assigned) & self._fleet.ready())
        self._await(then, devices)
        for device in devices:
            self._send(device, device_messages.Fence, self._fences)

    # ---- answers

    def _await(self, then: Callable[[], None], devices: Iterable[str]) -> None:
        self._tally = Tally(then, devices)
        self._tally.check()

    def _answered(self, device: str, event: device_messages.Event) -> None:
        if self._stage == "stopping":
            if isinstance(event, device_messages.Fenced) and event.number == self._fences:
                self._tally.answered(device)
            return
        if isinstance(event, device_messages.Prepared):
            self._prepared.add(device)
            if self._stage == "computing" and self._computing:
                self._computing.joined(device)
                return
        self._tally.answered(device)

    # ---- the small change

    def _helpers(self) -> list[str]:
        there = [d for d in self._assigned if d in self._prepared or not self._computing]
        return helpers([self._context.info(device) for device in there])

    def _send(self, device: str, kind: Callable[..., DeviceCommand], *arguments: Any) -> None:
        self._fleet.send(device, lambda index: kind(self._wire, index, *arguments))

    def _tell(self, text: str, force: bool = False) -> None:
        now = time.monotonic()
        if not force and not text and now - self._told < PROGRESS_SECONDS:
            return
        self._told = now
        progress = self._computing.progress() if self._computing else ()
        predicted = self._plan.predicted_seconds
        self._listen(Running(self.number, self._stage, progress, predicted, text))

    def _measured(self) -> dict[str, Measured]:
        done = self._computing.measured if self._computing else lambda device: ()
        return {
            device: Measured(one, self._context.info(device), done(device))
            for device, one in self._assigned.items()
        }

    def _report(
        self, state: str, error: ErrorRecord | None = None, verified: bool | None = None
    ) -> JobReport:
        done, worst = self._measured(), self._verdict.max_error
        return job_report(self.number, self._job, self._plan, done, state, error, verified, worst)

    def _end(self, error: BaseException) -> None:
        record = to_record(error)
        if record.code == InternalError.code:
            log.error("job %d: %s", self.number, record.message, exc_info=error)
        state = "cancelled" if record.code == errors.Cancelled.code else "failed"
        verified = False if self._stage == "verifying" and record.code == JobFailed.code else None
        report = self._report(state, record, verified)
        self._close(Failed(self.number, report, record))

    def _close(self, state: JobState, lesson: Callable[[], None] = _nothing) -> None:
        if self._over:
            return
        self._over = True
        for device in self._assigned:
            self._send(device, device_messages.Release)
        self._prepared.clear()
        self._arrays.close(self._fleet)
        if self._job.files or self._job.outputs:
            self._context.planner_thread.submit(self._job.close)
        ended = self._ended
        # They lead to the caller's arrays: no cycle may keep those from being freed at once.
        self._listen = self._ended = _nothing
        self._computing, self._tally = None, Tally()
        ended(state, lesson)
