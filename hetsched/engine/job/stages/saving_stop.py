"""The stop of an iterative job that may continue later: its state is saved before it ends.

The present epoch pauses after its iteration; then the state is copied and written, unless it has
been, and the job ends. If the iteration takes longer than `Deadlines.last_iteration`, its devices
are killed, and the state before it is saved. Another cancellation ends the job at once.
"""

from __future__ import annotations

from hetsched.engine.job.commands import JobCommand, LogMessage, PauseEpoch, SaveState
from hetsched.engine.job.events import AbortRequested
from hetsched.engine.job.job_record import JobRecord
from hetsched.engine.job.stages import deadlines, stopping
from hetsched.engine.job.states import Fail, Iterating
from hetsched.errors import Cancelled


def on_abort(
    record: JobRecord, state: Iterating, event: AbortRequested, now: float
) -> list[JobCommand]:
    """Stop the job, at once unless its state is to be saved."""
    iterations = record.iterations
    assert iterations is not None, "the job isn't iterative"
    checkpoints = iterations.checkpoints
    if not event.saves_state or checkpoints is None or iterations.is_warming_up:
        return stopping.on_abort(record, state, event, now)
    if iterations.is_held and not checkpoints.is_saving:  # it is being restored
        return stopping.on_abort(record, state, event, now)
    if record.stop_error is not None:  # the state is being saved already
        is_second = isinstance(event.error, Cancelled)
        return stopping.on_abort(record, state, event, now) if is_second else []
    record.stop_error = event.error
    if state.epoch is None:
        return end(record, state, now)
    record.stop_begun_at = now
    seconds = record.settings.deadlines.last_iteration
    return [PauseEpoch(), *deadlines.set_first(record, now, seconds)]


def end(record: JobRecord, state: Iterating, now: float) -> list[JobCommand]:
    """End a job that no device computes, once its state is saved: each save calls this again."""
    iterations = record.iterations
    assert iterations is not None and record.stop_error is not None
    checkpoints = iterations.checkpoints
    assert checkpoints is not None, "others stop at once"
    if checkpoints.is_saving:
        return []
    checkpoints.pause()
    # Rows that a lost device took along are where the next epoch would restore them from.
    is_whole = iterations.ended is None and not iterations.restores
    if is_whole and checkpoints.copy(iterations.finished, now):
        iterations.is_held = True
        return [SaveState(iterations.finished, iterations.previous, iterations.residual)]
    next_step = Fail(_named_checkpoint(record, checkpoints.written_iteration))
    commands = stopping.stop(record, state.attempt, next_step, now, is_cancelled=True)
    if is_whole or iterations.ended is not None:
        return commands
    text = f"stops without a checkpoint after iteration {iterations.finished}: rows of it are lost"
    return [LogMessage("warning", text), *commands]


def _named_checkpoint(record: JobRecord, iteration: int) -> BaseException:
    """Return the job's error; that of a cancelled job says how to continue from its checkpoint."""
    error = record.stop_error
    assert error is not None
    if iteration < 0 or not isinstance(error, Cancelled):
        return error  # the next daemon continues a stopped job
    path = record.settings.spec.checkpoint
    return Cancelled(f"{error}; saved after iteration {iteration}, --resume {path} continues")


def ends_after_save(record: JobRecord, state: Iterating) -> bool:
    """Whether the job has waited for a save, to end."""
    return record.stop_error is not None and state.epoch is None
