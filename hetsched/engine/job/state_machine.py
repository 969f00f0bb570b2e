"""The state machine of one job: handle(event, now) -> commands. No clock, thread, process or log.

`TRANSITIONS` is complete: an event that it doesn't list for the current stage is ignored, and so
is a message about an earlier attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hetsched.engine.job.commands import JobCommand
from hetsched.engine.job.events import (
    AbortRequested,
    Begin,
    CheckpointFailed,
    CheckpointWritten,
    DeadlinePassed,
    DeviceExcluded,
    DeviceMessage,
    DevicesJoined,
    DevicesLost,
    DevicesSwitched,
    EpochSettled,
    InputsLoaded,
    JobEvent,
    LoadFailed,
    PlanFailed,
    PlanReady,
    ProcessesSettled,
    ProcessesStarted,
    Published,
    PublishFailed,
    RestoreFailed,
    StageFailed,
    StateCopied,
    StateRestored,
)
from hetsched.engine.job.job_record import JobRecord, JobSettings, progress
from hetsched.engine.job.stages import (
    checkpoints,
    computing,
    deadlines,
    ending,
    failures,
    iterating,
    planning,
    preparing,
    saving_stop,
    stopping,
    verifying,
)
from hetsched.engine.job.states import (
    Computing,
    DeviceStage,
    DiscardingPlan,
    Ended,
    Filling,
    Iterating,
    JobStage,
    LoadingInputs,
    New,
    Planning,
    Preparing,
    Publishing,
    ReloadingResidents,
    StartingProcesses,
    Stopping,
    Verifying,
    WaitingForProcesses,
)
from hetsched.transport.device_messages import (
    Checked,
    ChunkDone,
    CommandFailed,
    DeviceNote,
    Event,
    Fenced,
    Filled,
    Prepared,
    ProcessEvent,
    TailChunksDone,
    VariantFailed,
)
from hetsched.transport.iterations.messages import IterationsDone, IterationsStopped

Transition = Callable[[JobRecord, Any, Any, float], list[JobCommand]]


def on_note(
    record: JobRecord, state: DeviceStage, event: DeviceMessage, now: float
) -> list[JobCommand]:
    """Report a device's note about a slow step."""
    assert isinstance(event.message, DeviceNote)
    if isinstance(state, Computing | Iterating):
        if event.device in state.joining:
            state.joining[event.device] = now
    else:
        state.pending.progressed(event.device, now)
    return progress(record, state, now, event.message.text, force=True)


ENDS_AT_ONCE: dict[type, Transition] = {
    AbortRequested: stopping.on_abort_at_once,
    StageFailed: stopping.on_exception_at_once,
}
"""Transitions of stages in which no device is prepared for the job."""
ENDS_AFTER_FENCES: dict[type, Transition] = {
    DeviceNote: on_note,
    CommandFailed: failures.on_command_failed,
    VariantFailed: failures.on_variant_failed,
    DevicesLost: failures.on_loss,
    DeviceExcluded: failures.on_excluded,
    AbortRequested: stopping.on_abort,
    DeadlinePassed: deadlines.on_deadline,
    StageFailed: stopping.on_exception,
}
"""Transitions of stages in which devices work for the job."""

CHECKPOINT_EVENTS: dict[type, Transition] = {
    StateCopied: checkpoints.on_copied,
    CheckpointWritten: checkpoints.on_written,
    CheckpointFailed: checkpoints.on_failed,
    StateRestored: checkpoints.on_restored,
    RestoreFailed: checkpoints.on_restore_failed,
}
"""Transitions of all stages from the first plan on: threads read and write beside them."""

ACTIVE_STATES = (
    Preparing,
    Filling,
    ReloadingResidents,
    Computing,
    Iterating,
    Verifying,
    Stopping,
)
"""States in which messages of devices are handled."""

TRANSITIONS: dict[type[JobStage], dict[type, Transition]] = {
    New: {**ENDS_AT_ONCE, Begin: planning.on_begin},
    LoadingInputs: {
        InputsLoaded: planning.on_loaded,
        LoadFailed: planning.on_load_failed,
        AbortRequested: stopping.on_abort_while_loading,
        StageFailed: stopping.on_exception_at_once,
    },
    WaitingForProcesses: {
        **ENDS_AT_ONCE,
        ProcessesSettled: planning.on_settled,
        EpochSettled: iterating.on_settled_between_attempts,
    },
    Planning: {
        PlanReady: planning.on_plan,
        PlanFailed: planning.on_plan_failed,
        AbortRequested: stopping.on_abort_while_planning,
        StageFailed: stopping.on_exception_at_once,
    },
    DiscardingPlan: {
        PlanReady: planning.on_discarded_plan,
        PlanFailed: planning.on_discarded_plan,
        StageFailed: stopping.on_exception_at_once,
    },
    StartingProcesses: {**ENDS_AT_ONCE, ProcessesStarted: planning.on_started},
    Preparing: {**ENDS_AFTER_FENCES, Prepared: preparing.on_prepared},
    Filling: {**ENDS_AFTER_FENCES, Filled: preparing.on_filled},
    ReloadingResidents: {**ENDS_AFTER_FENCES, Prepared: preparing.on_reloaded},
    Computing: {
        **ENDS_AFTER_FENCES,
        ChunkDone: computing.on_chunk_done,
        TailChunksDone: computing.on_chunk_done,
        Prepared: computing.on_prepared,
        DevicesJoined: computing.on_joined,
        DevicesLost: computing.on_loss,
        DeviceExcluded: failures.on_excluded_at_work,
    },
    Iterating: {
        **ENDS_AFTER_FENCES,
        IterationsDone: iterating.on_done,
        IterationsStopped: iterating.on_stopped,
        EpochSettled: iterating.on_settled,
        AbortRequested: saving_stop.on_abort,
        Prepared: iterating.on_prepared,
        DevicesJoined: iterating.on_joined,
        DevicesSwitched: iterating.on_switched,
        DevicesLost: iterating.on_loss,
        DeviceExcluded: failures.on_excluded_at_work,
    },
    Verifying: {**ENDS_AFTER_FENCES, Checked: verifying.on_checked},
    Publishing: {
        Published: verifying.on_published,
        PublishFailed: verifying.on_publish_failed,
        StageFailed: stopping.on_exception_at_once,
    },
    Stopping: {
        Fenced: stopping.on_fenced,
        DevicesLost: stopping.on_loss_while_stopping,
        DeviceExcluded: failures.on_excluded,
        AbortRequested: stopping.on_abort_while_stopping,
        DeadlinePassed: deadlines.on_deadline,
        StageFailed: stopping.on_exception_while_stopping,
    },
    Ended: {StageFailed: stopping.on_exception_after_end},
}
"""Stage -> type of an event or of a device's message -> transition."""

for stage, transitions in TRANSITIONS.items():
    if stage not in (New, LoadingInputs, Ended):
        transitions.update(CHECKPOINT_EVENTS)


class JobStateMachine:
    """The state machine of one job."""

    def __init__(self, settings: JobSettings) -> None:
        self.record = JobRecord(settings)

    @property
    def state(self) -> JobStage:
        return self.record.state

    def handle(self, event: JobEvent, now: float) -> list[JobCommand]:
        """Return the commands that follow from `event`; `now` in monotonic seconds."""
        record = self.record
        kind: type = type(event)
        if isinstance(event, DeviceMessage):
            if not _is_current(record.state, event.message):
                return []
            kind = type(event.message)
        transition = TRANSITIONS[type(record.state)].get(kind)
        if isinstance(event, DevicesSwitched) and transition is None:
            record.disabled = event.disabled  # from the next epoch on
        return [] if transition is None else transition(record, record.state, event, now)

    def give_up(self, error: Exception) -> list[JobCommand]:
        """End the job if handling StageFailed itself raised `error`."""
        return ending.fail_without_report(self.record, error)


def _is_current(state: JobStage, message: Event) -> bool:
    """Return whether `message` is about the current attempt, not an earlier one or another job."""
    if not isinstance(state, ACTIVE_STATES) or isinstance(message, ProcessEvent):
        return False
    return message.job == state.attempt.id
