"""One attempt of a run, from its plan on: the devices that work for it, and what they say.

An attempt that doesn't end well leaves no device that still writes to the job's arrays: each one
is idle again, or killed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

from hetsched import errors
from hetsched.device import Chunk, ChunkTimes, DeviceInfo
from hetsched.engine.processes.fleet import Joined, Lost, Message
from hetsched.planner.learning import DeviceRun
from hetsched.planner.records import Assignment, JobPlan
from hetsched.transport import device_messages
from hetsched.transport.loop import Timer
from hetsched.units import Ranges, format_seconds, without

if TYPE_CHECKING:
    from hetsched.engine.run.compute import Computation
    from hetsched.engine.run.runner import JobRunner

log = logging.getLogger(__name__)

T = TypeVar("T")

KERNEL_STEPS = ("preparing", "computing")
"""Steps in which a device fails because of its kernel, not because of data or the workload."""
PREPARING = "preparing kernels"
SILENCE_CHECKS = 8
"""How often devices are looked at within `deadlines.chunk`, without which they are silent."""
RANDOM_SAMPLES = 8
"""Random units compared with the reference, besides the edges of shares."""


@dataclass(frozen=True, slots=True)
class PauseRequested:
    """Iterations are to pause: the user has switched devices, or the job is to stop."""


Event = Message | Lost | Joined | PauseRequested


class StartOver(Exception):
    """The attempt ends, and the job is planned again for the devices that remain."""


class WasHeld(StartOver):
    """Others have used the devices meanwhile, which must be prepared again; the plan holds."""


@dataclass(frozen=True, slots=True)
class DeviceWait:
    since: float  # The start, or the last progress
    seconds: float  # The longest wait from then on; then the device is killed
    text: str  # What it does
    key: str  # What decides the seconds: "deadlines.step"
    is_behind: bool = True  # Others wait for it, not it for others

    @property
    def reason(self) -> str:
        return f"{self.text} takes longer than {format_seconds(self.seconds)} ({self.key})"


Waits = Callable[[float], Mapping[str, DeviceWait]]
"""waits(now): device -> what is awaited from it."""


class Attempt:
    """One attempt of a run. Devices work for it until it is released, or has been stopped."""

    def __init__(self, runner: JobRunner, plan: JobPlan, infos: Iterable[DeviceInfo]) -> None:
        self.runner = runner
        # In every message to and from devices: late answers to another attempt are dropped
        self.id = next(runner.engine.attempt_ids)
        self.plan = plan
        self.infos = {info.name: info for info in infos}  # Device -> its description
        # Device -> its assignment; only devices with chunks
        self.assignments = remaining_assignments(plan.assignments, runner.job.finished)
        self.live = set(self.assignments)  # Those with a running process
        self.prepared: set[str] = set()  # Live devices with a prepared kernel
        self.joining: dict[str, float] = {}  # Restarted device -> when it was asked to prepare
        # Device -> (units, times) of its finished chunks; of very many, neighbours are merged
        self.times: dict[str, list[tuple[int, ChunkTimes]]] = {}
        # Variants that don't work on a device; another one computes their chunks
        self.failed_variants: set[str] = set()
        # Of a job that is computed in one pass, once it is
        self.computation: Computation | None = None
        self.step = ""  # What the devices do, as users see it
        # Whether the result is right; None: it hasn't been checked. `max_error`: of a right one.
        self.verified: bool | None = None
        self.max_error: float | None = None
        self.is_stopping = False
        self.is_held = False  # Between two iterations, for its client
        self._fleet = runner.engine.fleet
        self._deadlines = runner.engine.deadlines
        self.inbox: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._waits: Waits = lambda now: {}
        self._timer: Timer | None = None
        self._is_due = False
        self._fences: dict[str, float] = {}  # Device that is to stop -> since when
        self._fence_seconds = math.inf
        self._final_runs: dict[str, DeviceRun] = {}

    def runs(self) -> dict[str, DeviceRun]:
        return self._final_runs or {
            device: DeviceRun(assignment, self.infos[device], tuple(self.times.get(device, ())))
            for device, assignment in self.assignments.items()
        }

    def chunk_counts(self) -> dict[str, int]:
        return {device: len(times) for device, times in self.times.items()}

    def release(self) -> None:
        """Let devices forget it; none works for it any more."""
        self._final_runs = self.runs()
        for device in self.assignments:
            self._fleet.send(device, device_messages.Release(self.id))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._waits = lambda now: {}  # the last ones may refer to this attempt

    async def prepare(self) -> None:
        """Prepare all devices and fill the arrays.

        Without a wait if nothing is filled, and all devices have kernels and arrays already.
        """
        runner, assignments = self.runner, tuple(self.assignments.values())
        fills, planning = self._fill_messages(), runner.engine.planning
        # Those with a link first: once cores compute, this thread may have to wait for one of them
        devices = sorted(self.assignments, key=lambda name: not self.infos[name].link)
        if (
            planning.has_kernels(runner.job, assignments)
            and not fills
            and runner.iterations is None
            and runner.arrays.are_mapped(self._fleet, devices)
        ):
            self.step = "preparing"
            for device in devices:
                self._prepare(device, answer=False)
            return
        await self._prepare_all(devices)
        planning.record_kernels(
            runner.job, assignments, self.infos, frozenset(self.failed_variants)
        )
        if not fills:
            return
        await self._ask(fills, device_messages.Filled, "generating", "generating arrays")
        runner.inputs_filled = True
        if any(array.role == "resident" for array in runner.job.generate):
            await self._prepare_all(devices)  # they are copied to a device when it is prepared

    async def verify(self) -> None:
        """Check all units, and the edges of shares by the reference. Raises JobFailed."""
        load = self.runner.job.load
        seed = self.runner.engine.verification_secret ^ self.runner.number
        sampled = set(random.Random(seed).sample(range(load), min(RANDOM_SAMPLES, load)))
        if self.computation is not None:
            for assignment in self.assignments.values():
                last = assignment.chunks[-1]
                sampled |= {assignment.chunks[0].first, last.first + last.count - 1}
        samples = sorted(sampled)
        # At least the device of the last chunk is prepared
        infos = [self.infos[d] for d in self.assignments if d in self.prepared]
        messages = []
        for device, first, count in _divided(load, infos):
            own = tuple(unit for unit in samples if first <= unit < first + count)
            messages.append((device, device_messages.Check(self.id, first, count, own, seed)))
        answers = await self._ask(messages, device_messages.Checked, "verifying", "verification")
        self.verified = False
        for checked in answers:
            for value, name in ((checked.worst, "residual"), (checked.sample_error, "difference")):
                if not value <= 1:  # NaN counts as an error
                    raise errors.JobFailed(
                        f"verification failed: unit {checked.unit}: the {name} is {value:.3g}"
                        " times what rounding explains; the result was not kept"
                    )
        self.verified = True
        if self.runner.job.iterative is None:  # of the others no unit is computed in full
            self.max_error = max(checked.max_error for checked in answers)

    def _fill_messages(self) -> list[tuple[str, device_messages.Fill]]:
        """Return what devices are to fill, unless an earlier attempt has: inputs, and the outputs.

        Outputs to be verified are poisoned: units that a device failed to compute could still hold
        the correct results of an earlier job.
        """
        job, spec = self.runner.job, self.runner.spec
        if self.runner.inputs_filled or not (spec.verify or job.generate):
            return []
        fills = [(array, spec.seed, False) for array in job.generate]
        if spec.verify:
            poisoned = [a for a in job.specs if a.is_output and a.name not in job.outputs]
            fills += [(array, 0, True) for array in poisoned]
        infos = [self.infos[name] for name in self.assignments]
        return [
            (device, device_messages.Fill(self.id, array.name, first, count, seed, poison))
            for array, seed, poison in fills
            for device, first, count in _divided(1 if array.is_whole else job.load, infos)
        ]

    async def _prepare_all(self, devices: Iterable[str]) -> None:
        for device in devices:
            self._prepare(device)
        await self._answers(devices, device_messages.Prepared, "preparing", PREPARING)
        self.prepared.update(self.live)

    def _prepare(self, device: str, *, answer: bool = True) -> None:
        arrays, assignment = self.runner.arrays, self.assignments[device]
        failed = self.failed_variants.intersection(assignment.variants)
        # Unless there is no other: they may have failed on another core only.
        if failed and not failed.issuperset(assignment.variants):
            variants = ["" if v in failed else v for v in assignment.variants]
            assignment = dataclasses.replace(
                assignment, variant=variants[0], rivals=tuple(variants[1:])
            )
        arrays.attach(self._fleet, device)
        self._fleet.send(device, arrays.prepare_message(self.id, assignment, answer))

    def prepare_again(self, device: str) -> None:
        """Prepare a device whose process has started anew, if the job may still use it."""
        is_excluded = device in self.runner.failures.excluded
        if device in self.assignments and device not in self.live and not is_excluded:
            self.live.add(device)
            self.joining[device] = time.monotonic()
            self._prepare(device)

    def joining_waits(self) -> dict[str, DeviceWait]:
        return {d: self._step_wait(since, PREPARING) for d, since in self.joining.items()}

    def _step_wait(self, since: float, text: str) -> DeviceWait:
        return DeviceWait(since, self._deadlines.step, text, "deadlines.step")

    async def _ask(
        self,
        messages: Sequence[tuple[str, device_messages.Fill | device_messages.Check]],
        answer: type[T],
        step: str,
        text: str,
    ) -> list[T]:
        for device, message in messages:
            self._fleet.send(device, message)
        return await self._answers([device for device, _ in messages], answer, step, text)

    async def _answers(
        self, devices: Iterable[str], answer: type[T], step: str, text: str
    ) -> list[T]:
        """Wait for an answer per entry of `devices`, which do what `text` says."""
        pending = list(devices)
        since = dict.fromkeys(pending, time.monotonic())  # The last sign of progress
        self.begin_step(step, lambda now: {d: self._step_wait(since[d], text) for d in pending})
        self.runner.report_progress(self, force=step != "preparing")
        answers: list[T] = []
        while pending:
            event = await self.event()
            if isinstance(event, Lost):
                raise StartOver(event.reason)
            if not isinstance(event, Message) or event.device not in pending:
                continue
            if isinstance(event.message, answer):
                pending.remove(event.device)
                answers.append(event.message)
            if isinstance(event.message, answer | device_messages.DeviceNote):
                since[event.device] = time.monotonic()
        return answers

    def post(self, event: Event) -> None:
        """Add an event. On the loop's thread; never calls back."""
        if isinstance(event, Lost) and event.device not in self.assignments:
            return
        self.inbox.append(event)
        self._wake.set()

    def begin_step(self, step: str, waits: Waits) -> None:
        self.step, self._waits = step, waits
        self._set_timer(time.monotonic())

    async def event(self) -> Event:
        """Return the next event; meanwhile, kill overdue devices. Raises what follows from it."""
        event = await self._next_event()
        match event:
            case Message(device, device_messages.CommandFailed() as failure):
                self._on_command_failed(device, failure)
            case Message(device, device_messages.Prepared()):
                self.prepared.add(device)
                self.joining.pop(device, None)
            case Message(device, device_messages.DeviceNote(text=text)):
                if device in self.joining:
                    self.joining[device] = time.monotonic()
                self.runner.report_progress(self, text, force=True)
            case Lost():
                self._on_loss(event)
        return event

    async def _next_event(self) -> Event:
        while not self.inbox:
            self._wake.clear()
            if self._is_due:
                self._check_deadlines()
            await self._wake.wait()
        return self.inbox.popleft()

    # ---- deadlines: one timer, which progress doesn't set again, as that would cost each chunk

    def _set_timer(self, now: float) -> None:
        """Set it for the first deadline of the present waits, and for the next look at devices."""
        if self._timer is not None:
            self._timer.cancel()
        left = [wait.since + wait.seconds - now for wait in self._waits(now).values()]
        seconds = min([self._deadlines.chunk / SILENCE_CHECKS, *(s for s in left if s > 0)])

        def on_timer() -> None:
            self._is_due = True
            self._wake.set()

        self._timer = self.runner.engine.loop.call_later(seconds, on_timer)

    def _check_deadlines(self) -> None:
        """Kill the devices that are overdue or silent, and set the timer for the others.

        A thread can't be killed: a job in threads is only given up once it is stopping.
        """
        self._is_due = False
        now, patience = time.monotonic(), self._deadlines.chunk
        is_patient = self.runner.job.in_threads and not self.is_stopping
        waits = {} if is_patient else self._waits(now)
        for device, wait in waits.items():
            if wait.since + wait.seconds <= now and wait.is_behind:
                if not self.is_stopping:  # it may be right in what it does then
                    self.runner.failures.overdue.add(device)
                self._fleet.kill_process(device, wait.reason)
            elif self._fleet.silent_seconds(device, wait.since) >= patience:
                limit = f"{format_seconds(patience)} (deadlines.chunk)"
                self._fleet.kill_process(device, f"no sign of life for {limit}")
        self._set_timer(now)

    async def stop(self, *, is_cancelled: bool) -> None:
        """Wait until no device writes to the job's arrays; after a cancellation not for long."""
        self.is_stopping = True
        if self.is_held:  # none does, but they may work for others
            self.release()
            return
        now = time.monotonic()
        seconds = self._deadlines.device_stop
        if not is_cancelled:
            waits = self._waits(now).values()
            seconds = max([self._deadlines.chunk, *(wait.seconds for wait in waits)])
        self._fences = dict.fromkeys(sorted(self.live), now)
        self._fence_seconds = seconds
        for device in self._fences:
            self._fleet.send(device, device_messages.Release(self.id, answer=True))

        def fence_waits(now: float) -> Mapping[str, DeviceWait]:
            limit, key = self._fence_seconds, "a twelfth of deadlines.stop"
            return {d: DeviceWait(t, limit, "stopping", key) for d, t in self._fences.items()}

        self.begin_step(self.step, fence_waits)
        while self._fences:
            match await self._next_event():
                case Message(device, device_messages.Released()):
                    self._fences.pop(device, None)
                case Lost(device):
                    self._remove(device)
                    self._fences.pop(device, None)

    def hurry(self) -> None:
        """Wait no longer for fences than after a cancellation, which has come now."""
        now = time.monotonic()
        self._fences = dict.fromkeys(self._fences, now)
        self._fence_seconds = min(self._fence_seconds, self._deadlines.device_stop)
        self._set_timer(now)

    def _remove(self, device: str) -> None:
        self.live.discard(device)
        self.prepared.discard(device)
        self.joining.pop(device, None)

    def _on_loss(self, event: Lost) -> None:
        iterations, failures, device = self.runner.iterations, self.runner.failures, event.device
        sent = self.computation.dispatcher.oldest_sent() if self.computation else ()
        kernels = [chunk.kernel for name, chunk, _ in sent if name == device]
        was_working = device in self._waits(time.monotonic())
        self._remove(device)
        what, finished = "its unfinished chunks ran again", len(self.times.get(device, ()))
        if iterations is not None:
            what, finished = "the iteration was repeated", iterations.reported
        if self.is_held:
            what = "nothing was lost, as the job was held"
        self.runner.note(f"the process of {device} died, {event.reason}: {what}")
        if event.counts and was_working:
            failures.note_successes(self.chunk_counts(), device)
            failures.record_death(device, finished, event.reason)
            variants = self.assignments[device].variants
            if kernels and {*variants} - self.failed_variants - {variants[kernels[0]]}:  # a race
                died = f"its process died, {event.reason}"
                self._leave_race(device, variants[kernels[0]], died)
        failures.overdue.discard(device)
        may_return = {info.name for info in self._fleet.infos}
        if not self.live and may_return.isdisjoint(failures.remaining(self.assignments)):
            raise StartOver(event.reason)

    def _leave_race(self, device: str, variant: str, reason: str) -> None:
        if variant not in self.failed_variants:  # else it failed on another core
            self.failed_variants.add(variant)
            self._exclude_variant(device, variant, reason)

    def _exclude_variant(self, device: str, variant: str, reason: str) -> None:
        runner = self.runner
        runner.warn(f"{device}: variant {variant} can't be used: {reason}")
        runner.engine.planning.exclude_variant(runner.job, self.infos[device], variant, reason)

    def _on_command_failed(self, device: str, failure: device_messages.CommandFailed) -> None:
        """Raise what follows from a device's error: another attempt, the end, or nothing yet."""
        runner, failures = self.runner, self.runner.failures
        assignment, reason = self.assignments[device], failure.error.message
        was_preparing = failure.chunk is None and device not in self.prepared
        if failure.cause == "fault":  # the process ends; its loss is the next event
            return
        if failure.variant:  # another one computes its chunks
            self._leave_race(device, failure.variant, reason)
            return
        if failure.cause == "variant" and was_preparing:
            self._exclude_variant(device, assignment.variant, reason)
            raise StartOver(reason)
        if failure.cause == "memory":
            runner.engine.planning.record_out_of_memory(device, assignment.slot_memory)
            raise StartOver(reason)
        is_kernel = failure.cause in ("kernel", "variant")
        is_data = failure.error.code == errors.DataError.code  # it would fail elsewhere, too
        if is_kernel and not is_data and self._may_run_elsewhere(device):
            runner.warn(f"{device} takes no part in this job: {reason}")
            failures.excluded[device] = reason
            failures.record(device, reason)
            raise StartOver(reason)
        raise errors.from_record(failure.error)

    def _may_run_elsewhere(self, device: str) -> bool:
        """Return whether another kind of device, with other variants, may succeed."""
        job, own = self.runner.job, self.infos[device]
        others = [d for d in self.runner.failures.remaining(job.devices) if d != device]
        may_depend = self.step in KERNEL_STEPS and not job.measure
        kinds = {self.infos[d].variant_kind for d in others if d in self.infos}
        # A kernel that fails on a core would fail on all of them.
        is_other = own.link or not (own.is_core or kinds <= {own.variant_kind})
        return is_other and bool(others) and may_depend


def _divided(load: int, infos: Sequence[DeviceInfo]) -> list[tuple[str, int, int]]:
    """Divide units evenly among the cores, or all devices if there are none; no part is empty."""
    devices = [info.name for info in infos if info.is_core] or [info.name for info in infos]
    parts = min(len(devices), load)
    bounds = [load * part // parts for part in range(parts + 1)]
    pairs = zip(devices, itertools.pairwise(bounds), strict=False)
    return [(device, low, high - low) for device, (low, high) in pairs]


def remaining_assignments(
    assignments: Iterable[Assignment], finished: Ranges
) -> dict[str, Assignment]:
    """Return the assignments without finished units; cores share what is left of a tail."""
    devices = {a.device: a for a in assignments if a.chunks}
    if not finished:
        return devices
    left: dict[str, list[Chunk]] = {device: [] for device in devices}
    tails: dict[tuple[int, int], list[str]] = {}
    for device, assignment in devices.items():
        for chunk in assignment.chunks:
            end = chunk.first + chunk.count
            for begin, stop in without(chunk.first, end, finished):
                left[device].append(Chunk(0, begin, stop - begin, kernel=chunk.kernel))
        if (tail := assignment.tail) is not None:
            tails.setdefault((tail.first, tail.first + tail.units), []).append(device)
    for (first, end), sharing in tails.items():
        turns, size = itertools.cycle(sharing), min(devices[each].max_chunk for each in sharing)
        for start, stop in without(first, end, finished):
            for begin in range(start, stop, size):
                left[next(turns)].append(Chunk(0, begin, min(stop - begin, size)))
    numbers = itertools.count()
    return {
        device: dataclasses.replace(
            devices[device],
            chunks=[
                msgspec.structs.replace(chunk, id=next(numbers), last=chunk is chunks[-1])
                for chunk in chunks
            ],
            tail=None,
        )
        for device, chunks in left.items()
        if chunks
    }
