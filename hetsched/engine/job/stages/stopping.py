"""Early ends of an attempt: an abort or an exception; waiting until devices have stopped.

Replanning and releasing wait until every live device has passed a fence, after which it no longer
writes to the job's arrays.
"""

from __future__ import annotations

from msgspec.structs import replace

from hetsched.engine.job.commands import (
    AbortEpoch,
    CancelLoading,
    FenceDevice,
    JobCommand,
    LogMessage,
    SettleEpoch,
)
from hetsched.engine.job.events import AbortRequested, DeviceMessage, DevicesLost, StageFailed
from hetsched.engine.job.job_record import JobRecord, wait_for_processes
from hetsched.engine.job.stages import deadlines
from hetsched.engine.job.stages.ending import fail
from hetsched.engine.job.states import (
    Attempt,
    DeviceStage,
    DiscardingPlan,
    Ended,
    Fail,
    Iterating,
    JobStage,
    LoadingInputs,
    PendingAnswers,
    Planning,
    StartOver,
    Stopping,
)


def stop(
    record: JobRecord,
    attempt: Attempt,
    next_step: StartOver | Fail,
    now: float,
    *,
    is_cancelled: bool = False,
) -> list[JobCommand]:
    """Fence the live devices, then take the next step; end a job that was about to."""
    if isinstance(next_step, StartOver) and record.stop_error is not None:
        next_step = Fail(record.stop_error)
    devices = sorted(attempt.live)
    abort: list[JobCommand] = [AbortEpoch()] if isinstance(record.state, Iterating) else []
    seconds = deadlines.stop_seconds(record, is_cancelled=is_cancelled)
    record.state = Stopping(attempt, PendingAnswers(devices, now), next_step, seconds)
    if not devices:
        return abort + _stopped(record, next_step)
    fences: list[JobCommand] = [FenceDevice(attempt.id, device) for device in devices]
    return abort + fences + deadlines.set_first(record, now, seconds)


def start_over(record: JobRecord, attempt: Attempt, reason: str, now: float) -> list[JobCommand]:
    """Stop, then plan again for the remaining devices."""
    return [_restart_noted(record, reason), *stop(record, attempt, StartOver(), now)]


def start_over_unprepared(record: JobRecord, reason: str) -> list[JobCommand]:
    """Plan again at once, since no device has been prepared for this attempt."""
    return [_restart_noted(record, reason), *wait_for_processes(record)]


def _restart_noted(record: JobRecord, reason: str) -> JobCommand:
    record.retries = record.retries.with_reason(reason)
    return LogMessage("info", f"starts over: {reason}")


def _stopped(record: JobRecord, next_step: StartOver | Fail) -> list[JobCommand]:
    if isinstance(next_step, Fail):
        return fail(record, next_step.error)
    iterations = record.iterations
    settling: list[JobCommand] = []
    if iterations is not None and iterations.epoch is not None:
        settling = [SettleEpoch(iterations.epoch.slots)]
    return settling + wait_for_processes(record)


# ---- while stopping


def on_fenced(
    record: JobRecord, state: Stopping, event: DeviceMessage, now: float
) -> list[JobCommand]:
    state.pending.answered(event.device, now)
    return [] if state.pending else _stopped(record, state.next_step)


def on_loss_while_stopping(
    record: JobRecord, state: Stopping, event: DevicesLost, now: float
) -> list[JobCommand]:
    """Drop the fences of dead processes, which write nothing."""
    state.attempt.remove(event.devices)
    state.pending.drop(event.devices)
    return [] if state.pending else _stopped(record, state.next_step)


def on_abort_while_stopping(
    record: JobRecord, state: Stopping, event: AbortRequested, now: float
) -> list[JobCommand]:
    if isinstance(state.next_step, StartOver):
        state = replace(state, next_step=Fail(event.error))
    for device in state.pending.waits():
        state.pending.progressed(device, now)  # from now on, the cancellation's deadline counts
    seconds = deadlines.stop_seconds(record, is_cancelled=True)
    record.state = replace(state, seconds=min(state.seconds, seconds))
    return deadlines.set_first(record, now, seconds)


def on_exception_while_stopping(
    record: JobRecord, state: Stopping, event: StageFailed, now: float
) -> list[JobCommand]:
    """Drop a fence that couldn't be sent."""
    commands: list[JobCommand] = []
    next_step = state.next_step
    if isinstance(next_step, StartOver):
        next_step = Fail(event.error)
    else:
        commands.append(logged_exception(event))
    if isinstance(event.command, FenceDevice):
        state.pending.drop([event.command.device])
    record.state = replace(state, next_step=next_step)
    return commands if state.pending else [*commands, *_stopped(record, next_step)]


# ---- aborts


def on_abort_at_once(
    record: JobRecord, state: JobStage, event: AbortRequested, now: float
) -> list[JobCommand]:
    """End the job at once, since no device has been prepared for this attempt."""
    return fail(record, event.error)


def on_abort_while_loading(
    record: JobRecord, state: LoadingInputs, event: AbortRequested, now: float
) -> list[JobCommand]:
    """End when the thread that reads the inputs has stopped."""
    record.state = LoadingInputs(event.error)
    return [CancelLoading()]


def on_abort_while_planning(
    record: JobRecord, state: Planning, event: AbortRequested, now: float
) -> list[JobCommand]:
    record.state = DiscardingPlan(event.error)
    return []


def on_abort(
    record: JobRecord, state: DeviceStage, event: AbortRequested, now: float
) -> list[JobCommand]:
    return stop(record, state.attempt, Fail(event.error), now, is_cancelled=True)


# ---- exceptions


def on_exception_at_once(
    record: JobRecord, state: JobStage, event: StageFailed, now: float
) -> list[JobCommand]:
    """Fail the job at once, since no device writes to its arrays."""
    return fail(record, event.error)


def on_exception(
    record: JobRecord, state: DeviceStage, event: StageFailed, now: float
) -> list[JobCommand]:
    return stop(record, state.attempt, Fail(event.error), now)


def on_exception_after_end(
    record: JobRecord, state: Ended, event: StageFailed, now: float
) -> list[JobCommand]:
    return [logged_exception(event)]


def logged_exception(event: StageFailed) -> JobCommand:
    """Return the log entry of an exception in a job that has ended or ends with another error."""
    return LogMessage("error", "unexpected error at the end of the job", event.error)
