"""What follows when the state of an iterative job has been copied, written or restored."""

from __future__ import annotations

from hetsched.engine.iterating.iteration_state import IterationState
from hetsched.engine.job.commands import JobCommand, LogMessage
from hetsched.engine.job.events import (
    AbortRequested,
    CheckpointFailed,
    CheckpointWritten,
    RestoreFailed,
    StateCopied,
    StateRestored,
)
from hetsched.engine.job.job_record import JobRecord
from hetsched.engine.job.stages import saving_stop, stopping
from hetsched.engine.job.stages.iterating import next_epoch
from hetsched.engine.job.states import Iterating
from hetsched.errors import HetschedError
from hetsched.explain.iterations.records import WrittenCheckpoint


def _iterations(record: JobRecord) -> IterationState:
    assert record.iterations is not None, "the job isn't iterative"
    return record.iterations


def on_copied(
    record: JobRecord, state: object, event: StateCopied, now: float
) -> list[JobCommand]:
    """Go on with the iterations, in whatever state the job is now."""
    checkpoints = _iterations(record).checkpoints
    assert checkpoints is not None
    if checkpoints.is_copying:
        checkpoints.copied(now)
    return _go_on(record, state, now)


def _go_on(record: JobRecord, state: object, now: float) -> list[JobCommand]:
    """Begin the epoch that has waited; an attempt that comes later doesn't wait."""
    _iterations(record).is_held = False
    return next_epoch(record, state, now) if isinstance(state, Iterating) else []


def on_written(
    record: JobRecord, state: object, event: CheckpointWritten, now: float
) -> list[JobCommand]:
    iterations = _iterations(record)
    assert iterations.checkpoints is not None
    pause = iterations.checkpoints.pause_seconds
    iterations.history.checkpoint(WrittenCheckpoint(event.iteration, pause, event.nbytes))
    iterations.checkpoints.written(now)
    iterations.checkpoints.written_iteration = event.iteration
    return _ended(record, state, now)


def _ended(record: JobRecord, state: object, now: float) -> list[JobCommand]:
    """End a job that stops, if no device computes."""
    if isinstance(state, Iterating) and saving_stop.ends_after_save(record, state):
        return saving_stop.end(record, state, now)
    return []


def on_failed(
    record: JobRecord, state: object, event: CheckpointFailed, now: float
) -> list[JobCommand]:
    """Go on without that checkpoint, and say so."""
    iterations = _iterations(record)
    assert iterations.checkpoints is not None
    has_waited = iterations.checkpoints.is_copying  # no thread has copied the state in time
    iterations.checkpoints.written(now)
    note = f"no checkpoint after iteration {iterations.checkpoints.saved}: {event.error}"
    previous = [text for text in record.notes if text.startswith("no checkpoint after iteration")]
    if previous:  # the last one is enough
        record.notes.remove(previous[0])
    record.note(note)
    is_expected = isinstance(event.error, HetschedError)
    message = LogMessage("warning", note, None if is_expected else event.error)
    if has_waited:
        return [message, *_go_on(record, state, now)]
    return [message, *_ended(record, state, now)]


def on_restored(
    record: JobRecord, state: object, event: StateRestored, now: float
) -> list[JobCommand]:
    """Begin with the iteration after the checkpoint's, in this attempt or the next one."""
    iterations = _iterations(record)
    iterations.is_restored = True
    iterations.begun_at = now
    iterations.continue_after(event.iteration, event.residual)
    if iterations.checkpoints is not None:
        iterations.checkpoints.saved = event.iteration
    path = record.settings.spec.resume
    record.note(f"continued after iteration {event.iteration}, from {path}")
    return _go_on(record, state, now)


def on_restore_failed(
    record: JobRecord, state: object, event: RestoreFailed, now: float
) -> list[JobCommand]:
    """Fail the job; between two attempts, the next one will read the checkpoint again."""
    _iterations(record).is_held = False
    if not isinstance(state, Iterating):
        return []
    return stopping.on_abort(record, state, AbortRequested(event.error), now)
