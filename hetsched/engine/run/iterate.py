"""The timed step of an iterative job: epochs of iterations, until the method has ended.

Devices iterate on their own. The engine starts epochs, hears of iterations in batches, proposes
splits, and ends an epoch when devices die, come or go; the next one continues after the last
iteration that was complete.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from hetsched.engine.processes.fleet import Joined, Lost, Message
from hetsched.engine.run.attempt import (
    Attempt,
    DeviceWait,
    Event,
    PauseRequested,
    StartOver,
    WasHeld,
)
from hetsched.engine.run.epochs import bounds_of
from hetsched.errors import Cancelled
from hetsched.job import Held
from hetsched.partition.iterations import TimedIteration
from hetsched.transport import device_messages

log = logging.getLogger(__name__)

ENDS = frozenset(("converged", "limit"))
"""Reasons to stop after which the outputs are complete."""


class Iterations:
    def __init__(self, attempt: Attempt) -> None:
        runner = attempt.runner
        assert runner.iterations is not None and runner.saves is not None
        self._attempt = attempt
        self._runner = runner
        self._state = runner.iterations
        self._saves = runner.saves
        self._control = runner.arrays.control
        self._deadlines = runner.engine.deadlines
        self._replan_reason = ""
        self._computing: set[str] = set()  # Devices of the epoch that haven't stopped
        self._stops: set[str] = set()  # Why others have (`StopReason`)
        # How often each device has arrived at the end of a stage, and when one last did
        self._arrivals: list[int] = []
        self._since = time.monotonic()

    async def run(self) -> None:
        """Compute iterations until the method has ended. Raises StartOver."""
        state, attempt, now = self._state, self._attempt, time.monotonic()
        if state.epoch is not None:  # of an earlier attempt, whose devices have been stopped
            self._settle(state.epoch)
        if state.is_complete:
            return
        state.begun_at = now if state.begun_at is None else state.begun_at
        attempt.begin_step("computing", self._waits)
        self._runner.report_progress(attempt, force=True)
        self._saves.begin(now)
        await self._saves.restore()
        try:
            while not state.is_complete:
                if state.is_hold_due:
                    await self._hold()
                await self._run_epoch(await self._devices())
        except BaseException:
            if state.epoch is not None:
                self._control.abort()
            raise

    async def _hold(self) -> None:
        """Let others use the devices until the job is released. Raises StartOver if they did."""
        state, runner, began = self._state, self._runner, time.monotonic()
        iteration = state.held_after = state.finished
        seconds = max((sums.total for sums in state.sums.values()), default=0.0)
        held = Held(iteration, seconds, runner.arrays.results_after(iteration))
        self._attempt.is_held = True
        has_devices = await runner.engine.scheduler.hold(runner, held)
        if state.begun_at is not None:
            state.begun_at += time.monotonic() - began
        if not has_devices:
            runner.failures.uncounted += 1
            raise WasHeld("others have used the devices while it was held")
        self._attempt.is_held = False
        runner.report_progress(self._attempt, force=True)

    async def _devices(self) -> tuple[str, ...]:
        """Return the devices of the next epoch, once there are some, and none is prepared."""
        attempt, runner = self._attempt, self._runner
        while True:
            while attempt.inbox:
                self._on_event(await attempt.event())
            if runner.stop_error is not None:
                await self._stop(runner.stop_error)
            if self._replan_reason:
                runner.failures.uncounted += 1  # the next attempt isn't the job's fault
                raise StartOver(self._replan_reason)
            usable = runner.failures.remaining(attempt.live & attempt.prepared)
            disabled = runner.engine.disabled
            usable = tuple(device for device in usable if device not in disabled)
            if usable and not attempt.joining:
                return usable
            if not attempt.joining and not disabled.isdisjoint(attempt.live):
                text = "all devices that could go on are disabled"
                runner.report_progress(attempt, text, force=True)
            self._on_event(await attempt.event())

    def _on_event(self, event: Event) -> None:
        """Take in what isn't about iterations; the present epoch pauses if others may compute."""
        match event:
            case Message(message=device_messages.Prepared()) if not self._attempt.joining:
                self._pause()  # a device is back
            case Joined(device):
                runner = self._runner
                if device in self._attempt.infos:
                    self._attempt.prepare_again(device)
                elif device in runner.failures.remaining(runner.job.devices):  # it is new
                    self._replan_reason = self._replan_reason or f"{device} is available now"
                    self._pause()
            case PauseRequested():
                self._attempt.begin_step("computing", self._waits)  # a stop has its own deadline
                self._pause()
            case Lost(device) if device in self._computing:
                self._computing.discard(device)
                self._stops.add("aborted")
                self._control.abort()  # to go on with the others after the last complete iteration

    def _pause(self) -> None:
        if self._state.epoch is not None:
            self._control.pause()

    async def _stop(self, error: BaseException) -> None:
        await self._saves.save_last()
        iteration = self._saves.written_iteration
        if self._state.restores:
            text = f"stops after iteration {self._state.finished}: later ones are lost"
            log.warning("job %d: %s", self._runner.number, text)
        if iteration < 0 or not isinstance(error, Cancelled):
            raise error  # the next daemon continues a stopped job
        path = self._runner.spec.checkpoint
        raise Cancelled(f"{error}; saved after iteration {iteration}, --resume {path} continues")

    async def _run_epoch(self, devices: Sequence[str]) -> None:
        epoch = self._start_epoch(devices)
        while self._computing:
            event = await self._attempt.event()
            now = time.monotonic()
            match event:
                case Message(device, device_messages.IterationsDone() as done):
                    self._since = now
                    if complete := self._state.report(device, done, now):
                        self._balance(complete, epoch)
                        self._runner.report_progress(self._attempt)
                case Message(device, device_messages.IterationsStopped() as stopped):
                    self._since = now
                    if stopped.epoch == epoch.epoch:
                        self._computing.discard(device)
                        self._stops.add(stopped.reason)
                case _:
                    self._on_event(event)
            self._saves.look(now)
        self._end_epoch(epoch, time.monotonic())

    def _start_epoch(self, devices: Sequence[str]) -> device_messages.Iterate:
        state, attempt = self._state, self._attempt
        is_paced = any(attempt.infos[device].clock == "virtual" for device in devices)
        epoch = state.next_epoch(attempt.id, devices, is_paced=is_paced)
        devices = state.devices_of(epoch)
        self._computing, self._stops = set(devices), set()
        self._arrivals, self._since = [], time.monotonic()
        keeps_save = self._saves.is_writing
        self._control.begin(epoch.first, restores=epoch.restores, keeps_save=keeps_save)
        if is_paced:
            self._control.allow(max(epoch.first, 1))
        for rank, device in enumerate(devices):
            self._runner.engine.fleet.send(device, replace(epoch, rank=rank))
        if state.is_warming_up:
            self._control.pause()
        return epoch

    def _balance(self, reported: Sequence[TimedIteration], epoch: device_messages.Iterate) -> None:
        state, job, last = self._state, self._runner.job.iterative, reported[-1].iteration
        assert job is not None
        rows = state.rows
        if state.proposed == bounds_of(tuple(rows.values())):
            state.proposed = None
        state.tell_balance(reported, None if job.must_converge else job.max_iterations - last)
        if not state.is_warming_up and state.proposed is None:
            wanted = state.wanted_shares()
            if tuple(wanted) != state.devices_of(epoch):  # others get some in the next epoch
                self._control.pause()
            elif wanted != rows:
                state.announce(wanted)
                state.proposed = bounds_of(tuple(wanted.values()))
                self._control.propose(state.proposed)
        if epoch.paced:
            self._control.allow(last + 1)

    def _end_epoch(self, epoch: device_messages.Iterate, now: float) -> None:
        """Record how far the epoch got; the method may have ended with it."""
        state, stops, job = self._state, self._stops, self._runner.job.iterative
        self._saves.look(now, is_over=True)
        if self._settle(epoch, is_paused=stops == {"paused"}):
            return
        state.has_converged |= "converged" in stops
        if stops and ENDS.issuperset(stops):
            state.is_complete = True
            if not state.seconds and state.begun_at is not None:
                state.seconds = now - state.begun_at
            if state.has_converged or (job is not None and job.must_converge):
                state.history.end(state.has_converged)
        elif "aborted" in stops:
            state.history.repeat()

    def _settle(self, epoch: device_messages.Iterate, *, is_paused: bool = False) -> bool:
        """Record how far the stopped devices got; return whether a lost one had what came last."""
        state, control, slots = self._state, self._control, epoch.slots
        finished, saved = control.finished(slots), control.saved(slots)
        state.settle(finished, control.ended(slots), is_paused=is_paused)
        if saved is None:
            return False
        if saved < finished:  # else another device was lost before any iteration followed
            self._runner.note(f"iterations {saved + 1} to {finished} were lost and repeated")
        state.go_back(saved)
        return True

    def _waits(self, now: float) -> Mapping[str, DeviceWait]:
        """Return the waits for restarted devices, and for those that all others wait for."""
        waits = self._attempt.joining_waits()
        epoch = self._state.epoch
        if epoch is None:
            return waits
        arrivals = [self._control.arrivals(slot) for slot in epoch.slots]
        if arrivals != self._arrivals:
            self._arrivals, self._since = arrivals, now
        counts = dict(zip(self._state.devices_of(epoch), arrivals, strict=True))
        least = min((counts[device] for device in self._computing), default=0)
        wait = self._iteration_wait()
        for device in self._computing:
            waits[device] = dataclasses.replace(wait, is_behind=counts[device] == least)
        return waits

    def _iteration_wait(self) -> DeviceWait:
        deadlines, last_seconds = self._deadlines, self._state.last_seconds
        seconds, key = float(deadlines.step), "deadlines.step"
        if self._state.last is not None:
            seconds, key = max(
                (deadlines.chunk, "deadlines.chunk"),
                (deadlines.chunk_factor * last_seconds, "deadlines.chunk_factor"),
            )
        wait = DeviceWait(self._since, seconds, "an iteration", key)
        if self._runner.stop_error is not None:
            text = "the job stops, and its last iteration"
            begun, seconds = self._runner.stop_begun_at, deadlines.last_iteration
            if begun + seconds < wait.since + wait.seconds:
                return DeviceWait(begun, seconds, text, "half of deadlines.stop")
        return wait
