"""The timed step of an iterative job: epochs of iterations, until the method has ended.

Devices iterate on their own. The engine starts epochs, hears of iterations in batches, proposes
splits, and ends an epoch when devices die, come or go; the next one continues after the last
iteration that was complete.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from hetsched.engine.run.arrays import IterativeArrays
from hetsched.engine.run.attempt import (
    Attempt,
    DeviceWait,
    Event,
    Joined,
    Lost,
    Message,
    Rejoined,
    StartOver,
    StopRequested,
    Switched,
)
from hetsched.engine.run.epochs import (
    CompleteIteration,
    Epoch,
    EpochProgress,
    IterationLog,
    IterationState,
    bounds_of,
)
from hetsched.engine.run.running_job import RunningJob
from hetsched.engine.run.saves import Saves
from hetsched.errors import Cancelled
from hetsched.transport.control import IterationControl
from hetsched.transport.device_messages import (
    IterationsDone,
    IterationsStopped,
)
from hetsched.units import format_seconds

log = logging.getLogger(__name__)

ENDS = frozenset(("converged", "limit"))
"""Reasons to stop after which the outputs are complete."""


async def iterate(attempt: Attempt) -> None:
    """Compute iterations until the method has ended, in this attempt or an earlier one.

    Raises StartOver if no device remains, or with devices that are new.
    """
    await _Iterations(attempt).run()


def settle_stopped(running: RunningJob) -> None:
    """Record how far an attempt got whose devices have been stopped."""
    iterations = running.iterations
    if iterations is not None and iterations.epoch is not None:
        _settle(running, iterations.epoch)


def _settle(running: RunningJob, epoch: Epoch, *, is_paused: bool = False) -> bool:
    """Look how far the devices of an epoch got; return whether a lost one had what came last."""
    iterations, control = running.iterations, _control(running)
    assert iterations is not None
    slots = epoch.order.slots
    finished, ended, saved = control.finished(slots), control.ended(slots), control.saved(slots)
    iterations.settle(finished, ended, is_paused=is_paused)
    if saved is None:
        return False
    if saved < finished:  # else another device was lost before any iteration followed
        running.note(f"iterations {saved + 1} to {finished} were lost and repeated")
    iterations.go_back(saved)
    return True


def _control(running: RunningJob) -> IterationControl:
    assert isinstance(running.arrays, IterativeArrays)
    return running.arrays.control


class _Iterations:
    def __init__(self, attempt: Attempt) -> None:
        running = attempt.running
        assert running.iterations is not None and running.saves is not None
        self._attempt = attempt
        self._running = running
        self._state: IterationState = running.iterations
        self._saves: Saves = running.saves
        self._control = _control(running)
        self._deadlines = running.context.deadlines
        self._replan_reason = ""
        self._epoch: Epoch | None = None
        self._computing: set[str] = set()  # Devices of the epoch that haven't stopped
        self._stops: set[str] = set()  # Why others have (`StopReason`)
        self._log = IterationLog(())
        self._progress = EpochProgress(time.monotonic())

    async def run(self) -> None:
        state, attempt, now = self._state, self._attempt, time.monotonic()
        if state.is_complete:
            return
        state.begun_at = now if state.begun_at is None else state.begun_at
        attempt.begin_step("computing", self._waits, self._deadlines.chunk)
        self._running.report_progress(attempt, force=True)
        self._saves.begin(now)
        await self._saves.restore()
        try:
            while not state.is_complete:
                await self._run_epoch(await self._devices())
        except BaseException:
            if self._epoch is not None:
                self._control.abort()
            raise

    # ---- between epochs

    async def _devices(self) -> tuple[str, ...]:
        """Return the devices of the next epoch, once there are some, and none is prepared."""
        attempt, running = self._attempt, self._running
        while True:
            while attempt.has_events:
                self._on_event(await attempt.event())
            if running.stop_error is not None:
                await self._stop(running.stop_error)
            if self._replan_reason:
                running.failures.uncounted += 1  # the next attempt isn't the job's fault
                raise StartOver(self._replan_reason)
            usable = running.failures.remaining(attempt.live & attempt.prepared)
            usable = tuple(device for device in usable if device not in running.disabled)
            if usable and not attempt.joining:
                return usable
            is_disabled = not running.disabled.isdisjoint(attempt.live)
            if not usable and not attempt.joining and is_disabled:
                text = "all devices that could go on are disabled"
                running.report_progress(attempt, text, force=True)
            self._on_event(await attempt.event())

    def _on_event(self, event: Event) -> None:
        """Take in what isn't about iterations; the present epoch pauses if others may compute."""
        match event:
            case Rejoined() if not self._attempt.joining:
                self._pause()
            case Joined(device):
                self._on_joined(device)
            case Switched(disabled):
                has_changed = self._attempt.assignments.keys() & (
                    self._running.disabled ^ disabled
                )
                self._running.disabled = disabled
                if has_changed:
                    self._pause()
            case StopRequested(error):
                self._running.stop_error = error
                self._running.stop_begun_at = time.monotonic()
                self._attempt.begin_step("computing", self._waits, self._deadlines.last_iteration)
                self._pause()
            case Lost(device) if self._epoch is not None and device in self._computing:
                self._computing.discard(device)
                self._stops.add("aborted")
                self._control.abort()  # to go on with the others after the last complete iteration

    def _pause(self) -> None:
        if self._epoch is not None:
            self._control.pause()

    def _on_joined(self, device: str) -> None:
        """Prepare a device whose process has started again; plan again with one that is new."""
        attempt, running = self._attempt, self._running
        if device in attempt.infos:
            attempt.prepare_again(device)
        elif device in running.failures.remaining(running.job.devices):
            self._replan_reason = self._replan_reason or f"{device} is available now"
            self._pause()

    async def _stop(self, error: BaseException) -> None:
        await self._saves.save_last()
        iteration = self._saves.written_iteration
        if self._state.restores:
            text = f"stops after iteration {self._state.finished}: later ones are lost"
            log.warning("job %d: %s", self._running.number, text)
        if iteration < 0 or not isinstance(error, Cancelled):
            raise error  # the next daemon continues a stopped job
        path = self._running.spec.checkpoint
        raise Cancelled(f"{error}; saved after iteration {iteration}, --resume {path} continues")

    # ---- an epoch

    async def _run_epoch(self, devices: Sequence[str]) -> None:
        self._start_epoch(devices)
        while self._computing:
            event = await self._attempt.event()
            now = time.monotonic()
            match event:
                case Message(device, IterationsDone() as done):
                    self._progress.reported(now)
                    self._on_done(device, done, now)
                case Message(device, IterationsStopped() as stopped):
                    self._progress.reported(now)
                    self._on_stopped(device, stopped)
                case _:
                    self._on_event(event)
            self._saves.look(now)
        self._end_epoch(time.monotonic())

    def _start_epoch(self, devices: Sequence[str]) -> None:
        state, attempt = self._state, self._attempt
        is_paced = any(attempt.infos[device].clock == "virtual" for device in devices)
        epoch = self._epoch = state.next_epoch(attempt.id, devices, is_paced=is_paced)
        self._log = IterationLog(epoch.devices, derives_waits=is_paced)
        self._computing, self._stops = set(epoch.devices), set()
        self._progress = EpochProgress(time.monotonic())
        keeps_save = self._saves.is_writing
        first, restores = epoch.order.first, epoch.order.restores
        self._control.begin(first, restores=restores, keeps_save=keeps_save)
        if is_paced:
            self._control.allow(max(first, 1))
        for device, order in epoch.orders():
            self._running.context.fleet.send(device, order)
        if state.is_warming_up:
            self._control.pause()

    def _on_done(self, device: str, done: IterationsDone, now: float) -> None:
        """Record iterations; share the rows out anew if that pays."""
        complete = self._log.add(device, done)
        if not complete or self._epoch is None:
            return
        for each in complete:
            self._state.add(each, now)
        self._balance(complete, self._epoch)
        if self._epoch.order.paced:
            self._control.allow(complete[-1].iteration + 1)
        self._running.report_progress(self._attempt)

    def _balance(self, complete: Sequence[CompleteIteration], epoch: Epoch) -> None:
        """Pass iterations to the balance, and its new split to the devices."""
        state, job = self._state, self._running.job.iterative
        assert job is not None
        if state.proposed == bounds_of(tuple(complete[-1].rows.values())):
            state.proposed = None
        remaining = None if job.must_converge else job.max_iterations - complete[-1].iteration
        state.tell_balance(complete, remaining)
        if state.is_warming_up or state.proposed is not None or state.balance is None:
            return
        wanted = state.wanted_shares(epoch.devices)
        if tuple(wanted) != epoch.devices or self._has_idle_device(epoch):
            self._control.pause()
        elif wanted != complete[-1].rows:
            state.announce(wanted)
            state.proposed = bounds_of(tuple(wanted.values()))
            self._control.propose(state.proposed)

    def _has_idle_device(self, epoch: Epoch) -> bool:
        """Return whether the balance has rows for a device that waits outside of the epoch."""
        state, attempt = self._state, self._attempt
        assert state.balance is not None
        rows = dict(zip(state.devices, state.balance.rows, strict=True))
        outside = attempt.prepared & attempt.live - set(epoch.devices)
        return any(rows[device] for device in outside)

    def _on_stopped(self, device: str, stopped: IterationsStopped) -> None:
        if self._epoch is not None and stopped.epoch == self._epoch.order.epoch:
            self._computing.discard(device)
            self._stops.add(stopped.reason)

    def _end_epoch(self, now: float) -> None:
        """Record how far the epoch got; the method may have ended with it."""
        state, epoch, stops = self._state, self._epoch, self._stops
        assert epoch is not None
        self._epoch = None
        self._saves.on_epoch_end(now)
        if _settle(self._running, epoch, is_paused=stops == {"paused"}):
            self._log.discard()
            return
        state.has_converged |= "converged" in stops
        if stops and ENDS.issuperset(stops):
            self._complete(now)
            return
        self._log.discard()
        if "aborted" in stops:
            state.history.repeat()

    def _complete(self, now: float) -> None:
        state, job = self._state, self._running.job.iterative
        state.complete(now)
        if state.has_converged or (job is not None and job.must_converge):
            state.history.end(state.has_converged)

    # ---- deadlines

    def _waits(self, now: float) -> Mapping[str, DeviceWait]:
        """Return the waits for restarted devices, and for those that iterate.

        The others wait for those that are behind, which alone are killed.
        """
        waits = self._attempt.joining_waits()
        if self._epoch is None:
            return waits
        arrivals = map(self._control.arrivals, self._epoch.order.slots)
        self._progress.look(dict(zip(self._epoch.devices, arrivals, strict=True)), now)
        behind = self._progress.laggards(self._computing)
        since, seconds, reason = self._iteration_wait()
        for device in self._computing:
            waits[device] = DeviceWait(since, seconds, reason, device in behind)
        return waits

    def _iteration_wait(self) -> tuple[float, float, str]:
        """Return since when an iteration is awaited, for how long, and the message after that."""
        deadlines, last = self._deadlines, self._state.last
        seconds, key = float(deadlines.step), "step"
        if last is not None:
            seconds, key = deadlines.chunk_factor * last.seconds, "chunk_factor"
            if seconds < deadlines.chunk:
                seconds, key = deadlines.chunk, "chunk"
        since = self._progress.since
        if self._running.stop_error is not None:
            stop_since, stop_seconds = self._running.stop_begun_at, deadlines.last_iteration
            if stop_since + stop_seconds < since + seconds:
                limit = f"{format_seconds(stop_seconds)} (half of deadlines.stop)"
                text = f"the job stops, and its last iteration takes longer than {limit}"
                return stop_since, stop_seconds, text
        limit = f"{format_seconds(seconds)} (deadlines.{key})"
        return since, seconds, f"an iteration takes longer than {limit}"
