"""Deadlines of everything that devices do for a job: those that miss one are killed.

There is one timer per job. Progress doesn't set it again, which would cost time for each chunk:
when it expires, the waits are computed, and it is set for the next one.
"""

from __future__ import annotations

from collections.abc import Mapping

from hetsched.engine.deadlines import Deadlines
from hetsched.engine.job.commands import JobCommand, KillDevice, SetDeadline
from hetsched.engine.job.computation import RunningChunk
from hetsched.engine.job.events import DeadlinePassed
from hetsched.engine.job.job_record import JobRecord
from hetsched.engine.job.stages.device_wait import DeviceWait
from hetsched.engine.job.states import (
    Computing,
    DeviceStage,
    Filling,
    Iterating,
    PendingAnswers,
    Preparing,
    ReloadingResidents,
    Stopping,
    Verifying,
)
from hetsched.units import format_seconds

JOBS_PER_CORE = 2
"""A core computes for a main job and a side job at once, each half of the time."""


def device_waits(record: JobRecord) -> dict[str, DeviceWait]:
    """Return device -> what the job waits for from it at present."""
    deadlines, state = record.settings.deadlines, record.state
    match state:
        case Preparing() | ReloadingResidents():
            return _answers(state.pending, deadlines.prepare, "preparing kernels", "prepare")
        case Filling():
            return _answers(state.pending, deadlines.fill, "generating arrays", "fill")
        case Verifying():
            return _answers(state.pending, deadlines.check, "verification", "check")
        case Stopping():
            return _answers(state.pending, state.seconds, "stopping", "fence")
        case Computing():
            return _chunks(record, state)
        case Iterating():
            return _iterations(record, state)
    return {}


def _answers(
    pending: PendingAnswers, seconds: float, step: str, key: str
) -> dict[str, DeviceWait]:
    reason = f"{step} takes longer than {format_seconds(seconds)} (deadlines.{key})"
    return {
        device: DeviceWait(since, seconds, reason) for device, since in pending.waits().items()
    }


def _chunks(record: JobRecord, state: Computing) -> dict[str, DeviceWait]:
    waits = _joining(record, state.joining)
    deadlines = record.settings.deadlines
    slowdown = JOBS_PER_CORE if record.shares_cores else 1
    for chunk in state.computation.running_chunks():
        seconds, key = chunk_seconds(chunk, deadlines, slowdown)
        limit = f"{format_seconds(seconds)} (deadlines.{key})"
        reason = f"a chunk of {chunk.units} units takes longer than {limit}"
        waits[chunk.device] = DeviceWait(chunk.since, seconds, reason)
    return waits


def _joining(record: JobRecord, joining: Mapping[str, float]) -> dict[str, DeviceWait]:
    """Return the waits for restarted devices, which prepare their kernels."""
    seconds = record.settings.deadlines.prepare
    text = f"preparing kernels takes longer than {format_seconds(seconds)} (deadlines.prepare)"
    return {device: DeviceWait(since, seconds, text) for device, since in joining.items()}


def _iterations(record: JobRecord, state: Iterating) -> dict[str, DeviceWait]:
    """Return the waits for devices that iterate: all of them, whoever is behind."""
    deadlines, last = record.settings.deadlines, record.iterations and record.iterations.last
    seconds, key = deadlines.unpredicted_chunk, "unpredicted_chunk"
    if last is not None:
        seconds, key = deadlines.chunk_factor * last.seconds, "chunk_factor"
        if seconds < deadlines.chunk:
            seconds, key = deadlines.chunk, "chunk"
    reason = f"an iteration takes longer than {format_seconds(seconds)} (deadlines.{key})"
    wait = DeviceWait(state.progress.since, seconds, reason)
    if record.stop_error is not None:
        seconds = deadlines.last_iteration
        limit = f"{format_seconds(seconds)} (half of deadlines.stop)"
        reason = f"the job stops, and its last iteration takes longer than {limit}"
        wait = min(wait, DeviceWait(record.stop_begun_at, seconds, reason), key=lambda w: w.end)
    return {**dict.fromkeys(state.running, wait), **_joining(record, state.joining)}


def chunk_seconds(
    chunk: RunningChunk, deadlines: Deadlines, slowdown: float = 1
) -> tuple[float, str]:
    """Return how long a chunk may take, and the key of the configuration that decides it.

    `slowdown`: factor on its predicted time.

    A device without a prediction may take `chunk_factor` times as long per unit as the slowest
    of the others has taken so far, and that many times again.
    """
    factor = deadlines.chunk_factor
    if chunk.predicted_seconds is not None:
        seconds = slowdown * factor * chunk.predicted_seconds
    elif chunk.seconds_elsewhere is not None:
        seconds = slowdown * factor * factor * chunk.seconds_elsewhere
    else:
        return deadlines.unpredicted_chunk, "unpredicted_chunk"
    return (seconds, "chunk_factor") if seconds > deadlines.chunk else (deadlines.chunk, "chunk")


def stop_seconds(record: JobRecord, *, is_cancelled: bool) -> float:
    """Return how long devices may take to stop what they are doing.

    After a cancellation `fence`, even if a chunk needs longer; else as long as it may take.
    """
    deadlines = record.settings.deadlines
    if is_cancelled:
        return deadlines.fence
    waits = device_waits(record).values()
    return max([deadlines.chunk, *(wait.seconds for wait in waits)])


def set_first(record: JobRecord, now: float, seconds: float) -> list[JobCommand]:
    """Set the timer at the start of a stage in which all waits are at least `seconds`."""
    return [SetDeadline(now + min(seconds, record.settings.deadlines.chunk))]


def _next_check(record: JobRecord, waits: Mapping[str, DeviceWait], now: float) -> float:
    """Return when to check the waits again.

    A shorter one may begin before these end, so it is no later than `chunk` from now.
    """
    ends = [wait.end for wait in waits.values() if wait.end > now]
    return min([now + record.settings.deadlines.chunk, *ends])


def on_deadline(
    record: JobRecord, state: DeviceStage | Stopping, event: DeadlinePassed, now: float
) -> list[JobCommand]:
    """Kill the devices that are overdue, and set the timer for the others."""
    if isinstance(state, Iterating):
        state.progress.look(event.arrivals, now)
    waits = device_waits(record)
    overdue = [device for device, wait in waits.items() if wait.end <= now]
    if isinstance(state, Iterating):  # the others wait for those that are behind
        laggards = state.progress.laggards(state.running)
        overdue = [d for d in overdue if d in laggards or d in state.joining]
    if not isinstance(state, Stopping):  # it may be right in what it does there
        record.failures.culprits.update(overdue)
        record.failures.overdue.update(overdue)
    return [
        *(KillDevice(device, waits[device].reason) for device in overdue),
        SetDeadline(_next_check(record, waits, now)),
    ]
