"""The timed step of a job that is computed in one pass: chunks run, lost ones elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from hetsched.dispatch.commands import Command, Send
from hetsched.engine.deadlines import Deadlines
from hetsched.engine.run.attempt import Attempt, Joined, Lost, Message
from hetsched.engine.run.computation import Computation, RunningChunk
from hetsched.engine.run.failures import StartOver
from hetsched.engine.run.parts import FinishedParts
from hetsched.engine.run.waits import DeviceWait
from hetsched.engine.small_jobs import Outlook
from hetsched.transport.device_messages import (
    ChunksDone,
    DeviceNote,
    Prepared,
    Run,
)
from hetsched.units import format_seconds

JOBS_PER_CORE = 2
"""A core computes for a main job and a side job at once, each half of the time."""


async def compute(attempt: Attempt) -> None:
    """Run all chunks. Raises StartOver if no assigned device remains."""
    await _Pass(attempt).run()


class _Pass:
    """One pass of an attempt over the load."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._running = attempt.running
        self._deadlines = attempt.running.context.deadlines
        infos = [attempt.infos[device] for device in attempt.assignments]
        self._parts = FinishedParts(self._running.job, self._running.context)
        self._computation = attempt.computation = Computation(
            attempt.assignments,
            attempt.times,
            stealing=self._running.steals(infos),
            on_finished=self._parts.add,
        )
        self._joining: dict[str, float] = {}  # Restarted device -> when it was asked to prepare
        self._is_done = False

    async def run(self) -> None:
        attempt, computation = self._attempt, self._computation
        attempt.begin_step("computing", self._waits, self._deadlines.chunk)
        self._running.report_progress(attempt, force=True)
        self._send(computation.start(time.monotonic()))
        while not self._is_done:
            event = await attempt.event()
            now = time.monotonic()
            match event:
                case Message(device, ChunksDone() as done):
                    attempt.prepared.add(device)  # if no answer to Prepare is due
                    self._send(computation.chunks_done(device, done, now))
                case Message(device, Prepared()):
                    self._on_prepared(device, now)
                case Message(device, DeviceNote()) if device in self._joining:
                    self._joining[device] = now
                case Joined(device):
                    self._prepare_again(device, now)
                case Lost(device, reason):
                    self._on_loss(device, reason, now)
            if not self._is_done:
                self._running.report_progress(attempt)
        await self._parts.close()

    def _send(self, commands: Iterable[Command]) -> None:
        attempt = self._attempt
        for command in commands:
            if isinstance(command, Send):
                _run_chunks(attempt, command)
            else:
                self._is_done = True

    def _prepare_again(self, device: str, now: float) -> None:
        """Prepare a device whose process has started anew; it computes once it has answered."""
        attempt = self._attempt
        if device in attempt.assignments and device not in self._running.failures.excluded:
            attempt.live.add(device)
            self._joining[device] = now
            attempt.prepare_device(device)

    def _on_prepared(self, device: str, now: float) -> None:
        """Give chunks to a device that restarted; others have them already."""
        if self._joining.pop(device, None) is not None:
            self._send(self._computation.device_joined(device, now))

    def _on_loss(self, device: str, reason: str, now: float) -> None:
        """Run unfinished chunks elsewhere; start over if all assigned devices are abandoned."""
        attempt = self._attempt
        if not attempt.live and self._running.failures.excludes_all(attempt.assignments):
            raise StartOver(reason)
        self._joining.pop(device, None)
        self._send(self._computation.device_lost(device, now))

    def _waits(self, now: float) -> Mapping[str, DeviceWait]:
        seconds = self._deadlines.step
        limit = f"{format_seconds(seconds)} (deadlines.step)"
        reason = f"preparing kernels takes longer than {limit}"
        waits = {
            device: DeviceWait(since, seconds, reason) for device, since in self._joining.items()
        }
        slowdown = JOBS_PER_CORE if self._running.shares_cores else 1
        for chunk in self._computation.running_chunks():
            seconds, key = chunk_seconds(chunk, self._deadlines, slowdown)
            limit = f"{format_seconds(seconds)} (deadlines.{key})"
            reason = f"a chunk of {chunk.units} units takes longer than {limit}"
            waits[chunk.device] = DeviceWait(chunk.since, seconds, reason)
        return waits


def _run_chunks(attempt: Attempt, command: Send) -> None:
    message = Run(attempt.id, command.chunks, command.opens_tail)
    attempt.running.context.fleet.send(command.device, message)


def chunk_seconds(
    chunk: RunningChunk, deadlines: Deadlines, slowdown: float = 1
) -> tuple[float, str]:
    """Return how long a chunk may take, and the key of the configuration that decides it.

    A device without a prediction may take `chunk_factor` times as long per unit as the slowest
    of the others has taken so far, and that many times again.

    `slowdown`: factor on its predicted time.
    """
    factor = deadlines.chunk_factor
    if chunk.predicted_seconds is not None:
        seconds = slowdown * factor * chunk.predicted_seconds
    elif chunk.seconds_elsewhere is not None:
        seconds = slowdown * factor * factor * chunk.seconds_elsewhere
    else:
        return deadlines.step, "step"
    return (seconds, "chunk_factor") if seconds > deadlines.chunk else (deadlines.chunk, "chunk")


def outlook(attempt: Attempt, now: float) -> Outlook | None:
    """Return what an attempt still has to do; None if nothing may run beside it, or it is unknown.

    Nothing runs beside explicit measurements, iterations or a core team (they wait for the slowest
    core) or devices with a virtual clock; nor while kernels are made, which takes up to a minute.
    """
    running = attempt.running
    if attempt.step not in ("filling", "computing") or running.iterations is not None:
        return None
    infos = [attempt.infos[device] for device in attempt.assignments]
    if running.job.measure or any(i.members or i.clock == "virtual" for i in infos):
        return None
    if attempt.is_stopping:
        return None
    if attempt.computation is None:
        return _planned_outlook(attempt)
    dispatcher = attempt.computation.dispatcher
    remaining = dispatcher.remaining_seconds(now)
    if remaining is None:
        return None
    return Outlook(remaining, dispatcher.busy_devices())


def _planned_outlook(attempt: Attempt) -> Outlook | None:
    """Return the outlook before the first chunk."""
    seconds = attempt.plan.predicted_seconds
    return None if seconds is None else Outlook(seconds, attempt.assignments.keys())
