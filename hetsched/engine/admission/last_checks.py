"""The last checks of a job before it is queued: against what other jobs have at that moment."""

from __future__ import annotations

from hetsched.engine.admission.checked_job import CheckedJob
from hetsched.engine.admission.pending_outputs import PendingOutputs
from hetsched.errors import ErrorRecord, TryAgain, UsageError, to_record
from hetsched.transport.arena import Arena


def refusal(
    checked: CheckedJob, arena: Arena, pending: PendingOutputs, *, is_new: bool
) -> ErrorRecord | None:
    """Return why a job can't be queued; None if it can. On the loop's thread.

    `is_new`: no earlier daemon has accepted it.
    """
    try:
        arena.check_segments(checked.job.segments_needed)
        if is_new:
            _check_checkpoint(checked, pending)
    except (TryAgain, UsageError) as error:
        return to_record(error)
    return None


def _check_checkpoint(checked: CheckedJob, pending: PendingOutputs) -> None:
    """Check that no job that may run meanwhile writes the same checkpoint."""
    spec = checked.spec
    if not checked.checkpoint:
        return
    earlier = {dependency.job for dependency in spec.after}
    others = pending.with_checkpoint(checked.checkpoint).difference(earlier)
    if others:
        raise UsageError(
            f"{spec.checkpoint}: job {min(others)} writes its checkpoints there; give another"
            " name, or run this job after that one"
        )
