"""The timed stage of an iterative job: epochs of iterations, until the method has ended.

Devices iterate on their own. The engine starts epochs, hears of iterations in batches, proposes
splits, and ends an epoch when devices die, come or go; the next one continues after the last
iteration that was complete.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from hetsched.engine.iterating.epoch import bounds_of
from hetsched.engine.iterating.epoch_progress import EpochProgress
from hetsched.engine.iterating.iteration_log import CompleteIteration, IterationLog
from hetsched.engine.iterating.iteration_state import IterationState
from hetsched.engine.job.commands import (
    AbortEpoch,
    AllowIteration,
    JobCommand,
    PauseEpoch,
    ProposeSplit,
    RestoreState,
    SaveState,
    SettleEpoch,
    StartEpoch,
)
from hetsched.engine.job.events import (
    DeviceMessage,
    DevicesJoined,
    DevicesLost,
    DevicesSwitched,
    EpochSettled,
)
from hetsched.engine.job.job_record import JobRecord, progress
from hetsched.engine.job.stages import deadlines, saving_stop, verifying
from hetsched.engine.job.stages.failures import record_loss
from hetsched.engine.job.stages.joining import prepare_joining
from hetsched.engine.job.stages.stopping import start_over
from hetsched.engine.job.states import Attempt, Iterating
from hetsched.transport.iterations.messages import IterationsDone, IterationsStopped

ENDS = frozenset(("converged", "limit"))
"""Reasons to stop after which the outputs are complete."""


def begin(record: JobRecord, attempt: Attempt, now: float) -> list[JobCommand]:
    """Begin the first epoch of an attempt; verify at once if an earlier one has computed all."""
    iterations = _iterations(record)
    if iterations.is_complete:
        return verifying.begin(record, attempt, None, now)
    iterations.begun_at = now if iterations.begun_at is None else iterations.begun_at
    attempt.prepared.update(attempt.live)
    iterations.replan_reason = ""
    state = Iterating(attempt, None, IterationLog(()), set(), EpochProgress(now))
    if iterations.checkpoints is not None:
        iterations.checkpoints.begin(now)
    path = record.settings.spec.resume
    is_restoring = bool(path) and not iterations.is_restored and iterations.finished < 0
    record.state = state
    commands = progress(record, state, now, force=True)
    commands += deadlines.set_first(record, now, record.settings.deadlines.chunk)
    if is_restoring and not iterations.is_held:
        iterations.is_held = True
        return [*commands, RestoreState(path)]
    return commands + next_epoch(record, state, now)


def _iterations(record: JobRecord) -> IterationState:
    assert record.iterations is not None, "the job isn't iterative"
    return record.iterations


def next_epoch(record: JobRecord, state: Iterating, now: float) -> list[JobCommand]:
    """Start an epoch of all usable devices; wait if there is none, or one is being prepared."""
    if record.stop_error is not None:
        record.state = stopped = replace(state, epoch=None)
        return saving_stop.end(record, stopped, now)
    attempt, iterations = state.attempt, _iterations(record)
    if iterations.replan_reason:
        record.retries = record.retries.with_death()  # the next attempt isn't the job's fault
        record.state = replace(state, epoch=None)
        return start_over(record, attempt, iterations.replan_reason, now)
    usable = record.failures.remaining(attempt.live & attempt.prepared)
    usable = tuple(device for device in usable if device not in record.disabled)
    if state.joining or iterations.is_held or not usable:
        record.state = replace(state, epoch=None)
        if usable or state.joining or record.disabled.isdisjoint(attempt.live):
            return []
        text = "all devices that could go on are disabled"
        return progress(record, state, now, text, force=True)
    is_paced = any(attempt.infos[device].clock == "virtual" for device in usable)
    epoch = iterations.next_epoch(usable, is_paced=is_paced)
    log = IterationLog(epoch.devices, derives_waits=is_paced)
    running, advance = set(epoch.devices), EpochProgress(now)
    record.state = Iterating(attempt, epoch, log, running, advance)
    commands: list[JobCommand] = [StartEpoch(attempt.id, epoch)]
    if iterations.is_warming_up:
        commands.append(PauseEpoch())
    return commands


# ---- reports


def on_done(
    record: JobRecord, state: Iterating, event: DeviceMessage, now: float
) -> list[JobCommand]:
    """Record iterations; share the rows out anew if that pays."""
    done = event.message
    assert isinstance(done, IterationsDone)
    state.progress.reported(now)
    complete = state.log.add(event.device, done)
    if not complete or state.epoch is None:
        return []
    iterations = _iterations(record)
    for each in complete:
        iterations.add(each, now)
    commands = _balance(record, state, iterations, complete)
    checkpoints = iterations.checkpoints
    if checkpoints is not None and checkpoints.is_due(now) and not iterations.is_warming_up:
        checkpoints.pause()
        commands.append(PauseEpoch())
    if state.epoch.is_paced:
        commands.append(AllowIteration(complete[-1].iteration + 1))
    return commands + progress(record, state, now)


def _balance(
    record: JobRecord,
    state: Iterating,
    iterations: IterationState,
    complete: Sequence[CompleteIteration],
) -> list[JobCommand]:
    """Pass iterations to the balance, and its new split to the devices."""
    assert state.epoch is not None
    if iterations.proposed == bounds_of(tuple(complete[-1].rows.values())):
        iterations.proposed = None
    job = record.settings.job.iterative
    assert job is not None
    remaining = None if job.must_converge else job.max_iterations - complete[-1].iteration
    iterations.tell_balance(complete, remaining)
    if iterations.is_warming_up or iterations.proposed is not None or iterations.balance is None:
        return []
    wanted = iterations.wanted_shares(state.epoch.devices)
    if tuple(wanted) != state.epoch.devices or _has_idle_device(iterations, state):
        return [PauseEpoch()]
    if wanted == complete[-1].rows:
        return []
    iterations.announce(wanted)
    iterations.proposed = bounds_of(tuple(wanted.values()))
    return [ProposeSplit(iterations.proposed)]


def _has_idle_device(iterations: IterationState, state: Iterating) -> bool:
    """Return whether the balance has rows for a device that waits outside of the epoch."""
    assert state.epoch is not None and iterations.balance is not None
    rows = dict(zip(iterations.devices, iterations.balance.rows, strict=True))
    outside = state.attempt.prepared & state.attempt.live - set(state.epoch.devices)
    return any(rows[device] for device in outside)


# ---- the end of an epoch


def on_stopped(
    record: JobRecord, state: Iterating, event: DeviceMessage, now: float
) -> list[JobCommand]:
    stopped = event.message
    assert isinstance(stopped, IterationsStopped)
    if state.epoch is None or stopped.epoch != state.epoch.number:
        return []
    state.progress.reported(now)
    state.running.discard(event.device)
    state.stops.add(stopped.reason)
    return _settled_if_all_stopped(state)


def _settled_if_all_stopped(state: Iterating) -> list[JobCommand]:
    if state.running or state.epoch is None:
        return []
    return [SettleEpoch(state.epoch.slots)]


def on_settled(
    record: JobRecord, state: Iterating, event: EpochSettled, now: float
) -> list[JobCommand]:
    """Finish the job, or begin the next epoch."""
    if state.epoch is None:
        return []
    iterations = _iterations(record)
    iterations.settle(event.finished, event.ended, is_paused=state.stops == {"paused"})
    if event.saved is not None:
        _go_back(record, event)
        if iterations.checkpoints is not None:
            iterations.checkpoints.give_up(now)
        state.log.discard()
        return next_epoch(record, state, now)
    iterations.has_converged |= "converged" in state.stops
    if state.stops and ENDS.issuperset(state.stops):
        return _complete(record, state, now)
    state.log.discard()
    if "aborted" in state.stops:
        iterations.history.repeat()
    checkpoints = iterations.checkpoints
    if checkpoints is not None and iterations.ended is None:
        finished = iterations.finished
        if checkpoints.copy(finished, now):
            iterations.is_held = True
            record.state = replace(state, epoch=None)
            return [SaveState(finished, iterations.previous, iterations.residual)]
    return next_epoch(record, state, now)


def _go_back(record: JobRecord, event: EpochSettled) -> None:
    """Record that what a lost device had in its own memory is computed again."""
    saved = event.saved
    assert saved is not None
    if saved < event.finished:  # else another device was lost before any iteration followed
        record.note(f"iterations {saved + 1} to {event.finished} were lost and repeated")
    _iterations(record).go_back(saved)


def on_settled_between_attempts(
    record: JobRecord, state: object, event: EpochSettled, now: float
) -> list[JobCommand]:
    """Record how far an attempt got that was stopped."""
    _iterations(record).settle(event.finished, event.ended)
    if event.saved is not None:
        _go_back(record, event)
    return []


def _complete(record: JobRecord, state: Iterating, now: float) -> list[JobCommand]:
    iterations = _iterations(record)
    iterations.complete(now)
    job = record.settings.job.iterative
    if iterations.has_converged or (job is not None and job.must_converge):
        iterations.history.end(iterations.has_converged)
    return verifying.begin(record, state.attempt, None, now)


# ---- devices that come and go


def on_loss(
    record: JobRecord, state: Iterating, event: DevicesLost, now: float
) -> list[JobCommand]:
    """Go on with the others after the last complete iteration."""
    attempt = state.attempt
    devices = [device for device in event.devices if device in attempt.assignments]
    if not devices:
        return []
    commands = record_loss(record, attempt, event)
    if record.failures.excludes_all(attempt.assignments):
        return commands + start_over(record, attempt, event.reason, now)
    for device in devices:
        state.joining.pop(device, None)
    if state.epoch is None:
        return commands + next_epoch(record, state, now)
    if state.running.isdisjoint(devices):
        return commands
    state.running.difference_update(devices)
    state.stops.add("aborted")
    return [*commands, AbortEpoch(), *_settled_if_all_stopped(state)]


def on_joined(
    record: JobRecord, state: Iterating, event: DevicesJoined, now: float
) -> list[JobCommand]:
    """Prepare devices whose process has started again; plan again with those that are new."""
    attempt = state.attempt
    new = [
        device
        for device in record.failures.remaining(event.devices)
        if device in record.settings.job.devices and device not in attempt.infos
    ]
    if new:
        _iterations(record).replan_reason = f"{new[0]} is available now"
        return next_epoch(record, state, now) if state.epoch is None else [PauseEpoch()]
    devices = [
        device
        for device in record.failures.remaining(event.devices)
        if device in attempt.assignments and device not in attempt.live
    ]
    return prepare_joining(state, devices, now)


def on_prepared(
    record: JobRecord, state: Iterating, event: DeviceMessage, now: float
) -> list[JobCommand]:
    """Let a device that restarted take part from the next epoch on."""
    state.attempt.prepared.add(event.device)
    state.joining.pop(event.device, None)
    if state.joining:
        return []
    return next_epoch(record, state, now) if state.epoch is None else [PauseEpoch()]


def on_switched(
    record: JobRecord, state: Iterating, event: DevicesSwitched, now: float
) -> list[JobCommand]:
    """Begin another epoch without the devices that were disabled, with those enabled."""
    attempt = state.attempt
    has_changed = not attempt.assignments.keys().isdisjoint(record.disabled ^ event.disabled)
    record.disabled = event.disabled
    if not has_changed:
        return []
    return next_epoch(record, state, now) if state.epoch is None else [PauseEpoch()]
