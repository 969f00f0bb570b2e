"""One start of a job, from its plan on: the devices that work for it, and what they say.

An attempt that doesn't end well leaves no device that still writes to the job's arrays: each one
is idle again, or killed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from hetsched import errors
from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.engine.planning.device_run import DeviceRun
from hetsched.engine.run.computation import Computation, remaining_assignments
from hetsched.engine.run.running_job import RunningJob
from hetsched.planner.job_planner import JobPlan
from hetsched.planner.records import Assignment
from hetsched.transport import device_messages
from hetsched.transport.device_messages import (
    CommandFailed,
    DeviceNote,
    Prepared,
    Released,
)
from hetsched.transport.loop import Timer
from hetsched.units import format_seconds

log = logging.getLogger(__name__)

T = TypeVar("T")

STAGES = {"filling": "generating", "reloading": "generating"}
"""Step of an attempt -> stage that users see, if it has another name."""
KERNEL_STEPS = ("preparing", "reloading", "computing")
"""Steps in which a device fails because of its kernel, not because of data or the workload."""
SILENCE_CHECKS = 8
"""How often devices are looked at within `deadlines.chunk`, without which they are silent."""


@dataclass(frozen=True, slots=True)
class Message:
    """`device` has sent `message` about this attempt."""

    device: str
    message: device_messages.AttemptEvent


@dataclass(frozen=True, slots=True)
class Lost:
    """The process of `device` died."""

    device: str
    reason: str
    counts: bool = True  # Whether this job may be the cause; not if a small one may be


@dataclass(frozen=True, slots=True)
class Joined:
    """The process of `device` has started or restarted, without any state of the job."""

    device: str


@dataclass(frozen=True, slots=True)
class Rejoined:
    """`device` was lost, and has prepared its kernel again."""

    device: str


@dataclass(frozen=True, slots=True)
class Switched:
    """The user has disabled devices, or enabled them; `disabled`: all that aren't to be used."""

    disabled: frozenset[str]


@dataclass(frozen=True, slots=True)
class StopRequested:
    """End with `error` after an iteration, once the state is saved."""

    error: BaseException


Event = Message | Lost | Joined | Rejoined | Switched | StopRequested


class StartOver(Exception):
    """The attempt ends, and the job is planned again for the devices that remain."""


@dataclass(frozen=True, slots=True)
class DeviceWait:
    """A wait for a device."""

    since: float  # The start, or the last progress
    seconds: float  # The longest wait from then on
    reason: str  # Why the device is killed after that
    is_behind: bool = True  # Others wait for it, not it for others

    @property
    def end(self) -> float:
        return self.since + self.seconds


Waits = Callable[[float], Mapping[str, DeviceWait]]
"""waits(now): device -> what is awaited from it."""


def no_waits(now: float) -> Mapping[str, DeviceWait]:
    return {}


class PendingAnswers:
    """How many answers are awaited from each device, and since when.

    `devices`: one entry per answer.
    """

    def __init__(self, devices: Iterable[str], since: float) -> None:
        self._counts = Counter(list(devices))  # of a mapping it would be the values
        self._since = dict.fromkeys(self._counts, since)

    def __bool__(self) -> bool:
        return bool(self._counts)

    def answered(self, device: str, now: float) -> None:
        self._since[device] = now
        self._counts -= Counter([device])  # which drops what is no longer awaited

    def progressed(self, device: str, now: float) -> None:
        self._since[device] = now

    def restart(self, now: float) -> None:
        """Count the time of all waits from `now` on."""
        self._since = dict.fromkeys(self._counts, now)

    def drop(self, device: str) -> None:
        """Expect no further answers from `device`."""
        del self._counts[device]  # if there are any, as it is a Counter

    def waits(self, seconds: float, reason: str) -> dict[str, DeviceWait]:
        return {d: DeviceWait(self._since[d], seconds, reason) for d in self._counts}


class Attempt:
    """One start of a job. Within ``async with``, devices work for it."""

    def __init__(
        self, running: RunningJob, attempt_id: int, plan: JobPlan, infos: Iterable[DeviceInfo]
    ) -> None:
        self.running = running
        # In every message to and from devices: late answers to another attempt are dropped
        self.id = attempt_id
        self.plan = plan
        self.infos = {info.name: info for info in infos}  # Device -> its description
        # Device -> its assignment; only devices with chunks
        self.assignments = remaining_assignments(plan.assignments, running.job.finished)
        self.live: set[str] = set()  # Assigned devices with a running process
        self.prepared: set[str] = set()  # Live devices with a prepared kernel
        self.joining: dict[str, float] = {}  # Restarted device -> when it was asked to prepare
        # Device -> (units, times) of its finished chunks
        self.times: dict[str, list[tuple[int, ChunkTimes]]] = {}
        # Variants that don't work on a device; another one computes their chunks
        self.failed_variants: set[str] = set()
        # Of a job that is computed in one pass, once it is
        self.computation: Computation | None = None
        self.step = ""  # What the devices do
        # Whether the result is right; None: it hasn't been checked. `max_error`: of its samples.
        self.verified: bool | None = None
        self.max_error = 0.0
        self.is_stopping = False
        self._fleet = running.context.fleet
        self._deadlines = running.context.deadlines
        self._inbox: deque[Event] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._waits: Waits = no_waits
        self._timer: Timer | None = None
        self._is_due = False
        self._fences = PendingAnswers((), 0.0)
        self._fence_seconds = self._deadlines.device_stop

    @property
    def stage(self) -> str:
        """The step, as users see it."""
        return STAGES.get(self.step, self.step)

    def runs(self) -> dict[str, DeviceRun]:
        """Device -> its part of the run."""
        return {
            device: DeviceRun(assignment, self.infos[device], tuple(self.times.get(device, ())))
            for device, assignment in self.assignments.items()
        }

    def chunk_counts(self) -> dict[str, int]:
        """Device -> how many chunks it has finished."""
        return {device: len(times) for device, times in self.times.items()}

    async def __aenter__(self) -> Self:
        self.live.update(self.assignments)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                try:
                    self._release()
                except Exception:  # the result is there
                    log.exception("job %d: devices can't release it", self.running.number)
            elif not isinstance(error, GeneratorExit):  # raised when the loop has ended
                await self._stop(is_cancelled=isinstance(error, asyncio.CancelledError))
        finally:
            self._cancel_timer()
            self._waits = no_waits  # which may refer to this attempt

    def _release(self) -> None:
        for device in self.assignments:
            self._fleet.send(device, device_messages.Release(self.id))

    # ---- commands

    def prepare_device(self, device: str, *, answer: bool = True) -> None:
        arrays, assignment = self.running.arrays, self._to_prepare(device)
        arrays.attach(self._fleet, device)
        self._fleet.send(device, arrays.prepare_message(self.id, assignment, answer))

    def prepare_again(self, device: str) -> None:
        """Prepare a device whose process has started anew, if the job may still use it."""
        is_excluded = device in self.running.failures.excluded
        if device in self.assignments and device not in self.live and not is_excluded:
            self.live.add(device)
            self.joining[device] = time.monotonic()
            self.prepare_device(device)

    def joining_waits(self) -> dict[str, DeviceWait]:
        seconds = self._deadlines.step
        reason = f"preparing kernels takes longer than {format_seconds(seconds)} (deadlines.step)"
        return {d: DeviceWait(since, seconds, reason) for d, since in self.joining.items()}

    def _to_prepare(self, device: str) -> Assignment:
        """Return the assignment of `device` with "" for variants that have failed.

        Unless it has no other: they may have failed on another core only.
        """
        assignment = self.assignments[device]
        if self.failed_variants.isdisjoint(assignment.variants):
            return assignment
        if self.failed_variants.issuperset(assignment.variants):
            return assignment
        variants = ["" if v in self.failed_variants else v for v in assignment.variants]
        return dataclasses.replace(assignment, variant=variants[0], rivals=tuple(variants[1:]))

    # ---- events

    def post(self, event: Event) -> None:
        """Add an event. On the loop's thread; never calls back."""
        if isinstance(event, Lost) and event.device not in self.assignments:
            return
        self._inbox.append(event)
        self._wake_up()

    def drop_events(self) -> None:
        """Drop what has come, but for losses: the job is cancelled, perhaps by its own callback.

        Its task would notice that only when it has to wait.
        """
        self._inbox = deque(event for event in self._inbox if isinstance(event, Lost))

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    @property
    def has_events(self) -> bool:
        return bool(self._inbox)

    def begin_step(self, step: str, waits: Waits, seconds: float) -> None:
        """Begin a step; `seconds`: the shortest of its waits."""
        self.step, self._waits = step, waits
        self._set_timer(min(seconds, self._deadlines.chunk / SILENCE_CHECKS))

    async def event(self) -> Event:
        """Return the next event; meanwhile, kill devices that are overdue.

        Raises StartOver, or the job's error, if a device reports an error that ends the attempt,
        or none is left.
        """
        event = await self._next_event()
        match event:
            case Message(device, CommandFailed() as failure):
                self._on_command_failed(device, failure)
            case Message(device, Prepared()):
                self.prepared.add(device)
                if self.joining.pop(device, None) is not None:
                    return Rejoined(device)
            case Message(device, DeviceNote(text=text)):
                if device in self.joining:
                    self.joining[device] = time.monotonic()
                self.running.report_progress(self, text, force=True)
            case Lost():
                self._on_loss(event)
            case Switched(disabled) if self.running.iterations is None:
                self.running.disabled = disabled
        return event

    async def answers(
        self, answer: type[T], devices: Iterable[str], step: str, text: str
    ) -> list[T]:
        """Wait for an answer per entry of `devices`; a loss of one is a reason to start over.

        `text`: what the devices do.
        """
        seconds = self._deadlines.step
        pending = PendingAnswers(devices, time.monotonic())
        reason = f"{text} takes longer than {format_seconds(seconds)} (deadlines.step)"
        self.begin_step(step, lambda now: pending.waits(seconds, reason), seconds)
        self.running.report_progress(self, force=step != "preparing")
        answers: list[T] = []
        while pending:
            event = await self.event()
            if isinstance(event, Lost):
                raise StartOver(event.reason)
            if not isinstance(event, Message):
                continue
            if isinstance(event.message, answer):
                pending.answered(event.device, time.monotonic())
                answers.append(event.message)
            elif isinstance(event.message, DeviceNote):
                pending.progressed(event.device, time.monotonic())
        return answers

    async def _next_event(self) -> Event:
        while not self._inbox:
            if self._is_due:
                self._check_deadlines()
            self._wake = self.running.context.loop.create_future()
            try:
                await self._wake
            finally:
                self._wake = None
        return self._inbox.popleft()

    # ---- deadlines: one timer, which progress doesn't set again, as that would cost each chunk

    def _set_timer(self, seconds: float) -> None:
        self._cancel_timer()
        self._timer = self.running.context.loop.call_later(max(0.0, seconds), self._on_timer)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._is_due = True
        self._wake_up()

    def _check_deadlines(self) -> None:
        """Kill the devices that are overdue or silent, and set the timer for the others."""
        self._is_due = False
        now, patience = time.monotonic(), self._deadlines.chunk
        waits = self._waits(now)
        for device, wait in waits.items():
            if wait.end <= now and wait.is_behind:
                if not self.is_stopping:  # it may be right in what it does then
                    self.running.failures.overdue.add(device)
                self._kill(device, wait.reason)
            elif self._fleet.silent_seconds(device, wait.since) >= patience:
                limit = f"{format_seconds(patience)} (deadlines.chunk)"
                self._kill(device, f"no sign of life for {limit}")
        ends = [wait.end - now for wait in waits.values() if wait.end > now]
        self._set_timer(min([patience / SILENCE_CHECKS, *ends]))

    def _kill(self, device: str, reason: str) -> None:
        try:
            self._fleet.kill_process_of(device, reason)
        except Exception:  # its loss is awaited all the same: it may still write
            log.exception("job %d: %s can't be killed", self.running.number, device)

    # ---- the end of an attempt that hasn't ended well

    async def _stop(self, *, is_cancelled: bool) -> None:
        """Wait until no device writes to the job's arrays.

        After a cancellation for `fence`, even if a chunk needs longer; else as long as it may
        take.
        """
        self.is_stopping = True
        now = time.monotonic()
        seconds = self._deadlines.device_stop
        if not is_cancelled:
            waits = self._waits(now).values()
            seconds = max([self._deadlines.chunk, *(wait.seconds for wait in waits)])
        self._fences = PendingAnswers(self.live, now)
        self._fence_seconds = seconds
        for device in sorted(self.live):
            try:
                self._fleet.send(device, device_messages.Release(self.id, answer=True))
            except Exception:
                log.exception("job %d: %s can't be fenced", self.running.number, device)
                self._fences.drop(device)
        self.begin_step(self.step, self._fence_waits, seconds)
        while self._fences:
            match await self._next_event():
                case Message(device, Released()):
                    self._fences.answered(device, time.monotonic())
                case Lost(device):
                    self._remove(device)
                    self._fences.drop(device)

    def _fence_waits(self, now: float) -> Mapping[str, DeviceWait]:
        seconds = self._fence_seconds
        limit = f"{format_seconds(seconds)} (a twelfth of deadlines.stop)"
        return self._fences.waits(seconds, f"stopping takes longer than {limit}")

    def hurry(self) -> None:
        """Wait no longer for fences than after a cancellation, which has come now."""
        self._fences.restart(time.monotonic())
        self._fence_seconds = min(self._fence_seconds, self._deadlines.device_stop)
        self._set_timer(self._fence_seconds)

    # ---- failures

    def _remove(self, device: str) -> None:
        self.live.discard(device)
        self.prepared.discard(device)
        self.joining.pop(device, None)

    def _on_loss(self, event: Lost) -> None:
        running, failures, device = self.running, self.running.failures, event.device
        variant = self._running_variant(device)
        was_working = device in self._waits(time.monotonic())
        self._remove(device)
        what = "its unfinished chunks ran again"
        if running.iterations is not None:
            what = "the iteration was repeated"
        running.note(f"the process of {device} died, {event.reason}: {what}")
        if event.counts and was_working:
            failures.note_successes(self.chunk_counts(), device)
            failures.record_death(device, self._finished(device), event.reason)
            self._leave_race(device, variant, event.reason)
        failures.overdue.discard(device)
        if not self.live and failures.excludes_all(self.assignments):
            raise StartOver(event.reason)

    def _finished(self, device: str) -> int:
        """Return how many chunks, or iterations, `device` has finished."""
        iterations = self.running.iterations
        return iterations.reported if iterations else len(self.times.get(device, ()))

    def _running_variant(self, device: str) -> str:
        """Return the variant with which `device` computes a chunk; "" if it doesn't."""
        if self.computation is None or device not in self.assignments:
            return ""
        kernel = self.computation.running_kernel(device)
        return "" if kernel is None else self.assignments[device].variants[kernel]

    def _leave_race(self, device: str, variant: str, reason: str) -> None:
        """Exclude the variant that ran when a process died, if another one can take its place."""
        if not variant:
            return
        if len(set(self.assignments[device].variants) - self.failed_variants) < 2:
            return
        self.failed_variants.add(variant)
        self._exclude_variant(device, variant, f"its process died, {reason}")

    def _exclude_variant(self, device: str, variant: str, reason: str) -> None:
        self._note_warning(f"{device}: variant {variant} can't be used: {reason}")
        running = self.running
        running.context.planning.exclude_variant(running.job, self.infos[device], variant, reason)

    def _note_warning(self, text: str) -> None:
        self.running.note(text)
        log.warning("job %d: %s", self.running.number, text)

    def _on_command_failed(self, device: str, failure: CommandFailed) -> None:
        """Raise what follows from a device's error: another attempt that may avoid it, or the end.

        Nothing follows from a fault: the process ends, and its loss is the next event.
        """
        running, failures = self.running, self.running.failures
        assignment, reason = self.assignments[device], failure.error.message
        was_preparing = failure.chunk is None and device not in self.prepared
        if failure.cause == "fault":
            return
        if failure.variant:  # another one computes its chunks
            if failure.variant not in self.failed_variants:  # else it failed on another core
                self.failed_variants.add(failure.variant)
                self._exclude_variant(device, failure.variant, reason)
            return
        if failure.cause == "variant" and was_preparing:
            self._exclude_variant(device, assignment.variant, reason)
            if device not in failures.without_variant:  # several missing libraries count once
                failures.without_variant.add(device)
                failures.record(device, reason)
            raise StartOver(reason)
        if failure.cause == "memory":
            running.context.planning.record_out_of_memory(device, assignment.slot_memory)
            raise StartOver(reason)
        is_kernel = failure.cause in ("kernel", "variant")
        if failure.error.code == errors.DataError.code:  # it would fail elsewhere, too
            is_kernel = False
        if is_kernel and self._may_run_elsewhere(device):
            self._note_warning(f"{device} takes no part in this job: {reason}")
            failures.excluded[device] = reason
            failures.record(device, reason)
            raise StartOver(reason)
        raise errors.from_record(failure.error)

    def _may_run_elsewhere(self, device: str) -> bool:
        """Return whether the kernel of another kind of device may succeed.

        The variants of a device with a link, such as a GPU, differ from those of the cores. A
        kernel that fails on a core would fail on all of them.
        """
        job = self.running.job
        others = [d for d in self.running.failures.remaining(job.devices) if d != device]
        may_depend = self.step in KERNEL_STEPS and not job.measure
        return self.infos[device].link and bool(others) and may_depend
