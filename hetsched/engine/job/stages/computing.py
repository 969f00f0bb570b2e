"""The timed stage: chunks run, and those of lost devices run elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

from hetsched.dispatch.commands import Command as DispatchCommand
from hetsched.dispatch.commands import Send
from hetsched.engine.job.commands import JobCommand, RunChunks
from hetsched.engine.job.computation import Computation
from hetsched.engine.job.events import DeviceMessage, DevicesJoined, DevicesLost
from hetsched.engine.job.job_record import JobRecord, progress
from hetsched.engine.job.stages import deadlines, verifying
from hetsched.engine.job.stages.failures import record_loss
from hetsched.engine.job.stages.joining import prepare_joining
from hetsched.engine.job.stages.stopping import start_over
from hetsched.engine.job.states import Attempt, Computing
from hetsched.transport import device_messages


def begin(record: JobRecord, attempt: Attempt, now: float) -> list[JobCommand]:
    infos = [attempt.infos[device] for device in attempt.assignments]
    computation = Computation(attempt.assignments, attempt.times, stealing=record.steals(infos))
    state = record.state = Computing(attempt, computation)
    commands = progress(record, state, now, force=True)
    commands += deadlines.set_first(record, now, record.settings.deadlines.chunk)
    return commands + _commands(record, state, computation.start(now), now)


def on_chunk_done(
    record: JobRecord, state: Computing, event: DeviceMessage, now: float
) -> list[JobCommand]:
    done, computation = event.message, state.computation
    assert isinstance(done, device_messages.ChunkDone | device_messages.TailChunksDone)
    state.attempt.prepared.add(event.device)  # a finished chunk implies it if no answer is due
    if isinstance(done, device_messages.TailChunksDone):
        dispatched = computation.tail_chunks_done(event.device, done, now)
    else:
        dispatched = computation.chunk_done(event.device, done, now)
    commands = _commands(record, state, dispatched, now)
    if record.state is not state:
        return commands
    if state.held:
        commands += _release_held(record, state, now)
    return commands + progress(record, state, now)


def on_prepared(
    record: JobRecord, state: Computing, event: DeviceMessage, now: float
) -> list[JobCommand]:
    """Give chunks to a device that restarted."""
    state.attempt.prepared.add(event.device)
    state.joining.pop(event.device, None)
    dispatched = state.computation.device_joined(event.device, now)
    return _commands(record, state, dispatched, now)


def on_joined(
    record: JobRecord, state: Computing, event: DevicesJoined, now: float
) -> list[JobCommand]:
    attempt = state.attempt
    devices = [
        device
        for device in record.failures.remaining(event.devices)
        if device in attempt.assignments
    ]
    if record.failures.is_ambiguous:
        state.held[:] = devices[1:]
        devices = devices[:1]
    return prepare_joining(state, devices, now)


def _release_held(record: JobRecord, state: Computing, now: float) -> list[JobCommand]:
    """Let the next device of a process compute, after the others have shown that they can."""
    devices = record.failures.remaining(state.held)[:1]
    del state.held[: len(state.held) if not devices else state.held.index(devices[0]) + 1]
    return prepare_joining(state, devices, now)


def on_loss(
    record: JobRecord, state: Computing, event: DevicesLost, now: float
) -> list[JobCommand]:
    """Run unfinished chunks on other devices; replan if all assigned devices are abandoned."""
    attempt = state.attempt
    devices = [device for device in event.devices if device in attempt.assignments]
    if not devices:
        return []
    commands = record_loss(record, attempt, event)
    if record.failures.excludes_all(attempt.assignments):
        return commands + start_over(record, attempt, event.reason, now)
    state.held[:] = [device for device in state.held if device not in event.devices]
    for device in devices:
        state.joining.pop(device, None)
        commands += _commands(record, state, state.computation.device_lost(device, now), now)
    return commands


def _commands(
    record: JobRecord, state: Computing, dispatched: Iterable[DispatchCommand], now: float
) -> list[JobCommand]:
    """Convert the dispatcher's commands to the job's."""
    computation = state.computation
    commands: list[JobCommand] = []
    for command in dispatched:
        if isinstance(command, Send):
            attempt_id = state.attempt.id
            commands.append(
                RunChunks(attempt_id, command.device, command.chunks, command.opens_tail)
            )
        else:
            commands += verifying.begin(record, state.attempt, computation, now)
    return commands
