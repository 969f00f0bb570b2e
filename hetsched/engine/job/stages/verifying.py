"""The stages after the timed one: verify the result if requested, publish it, report."""

from __future__ import annotations

from hetsched.engine.job.commands import CheckUnits, FinishJob, JobCommand, PublishOutputs
from hetsched.engine.job.events import DeviceMessage, Published, PublishFailed
from hetsched.engine.job.fill_and_check import VerificationResult, check_orders
from hetsched.engine.job.job_record import JobRecord, helper_devices, progress
from hetsched.engine.job.report import job_report
from hetsched.engine.job.stages import deadlines
from hetsched.engine.job.stages.ending import fail
from hetsched.engine.job.states import Computing, Ended, PendingAnswers, Publishing, Verifying
from hetsched.transport import device_messages


def begin(record: JobRecord, state: Computing, now: float) -> list[JobCommand]:
    """Verify, publish or finish, once every unit is computed."""
    settings, attempt = record.settings, state.attempt
    if not settings.spec.verify:
        return _publish(record, state, None, 0.0)
    devices = helper_devices(attempt)  # at least the device of the last chunk
    seed = settings.verification_seed
    edges = state.computation.ranges.edges()
    orders = check_orders(settings.job.load, devices, edges, seed)
    pending = PendingAnswers((order.device for order in orders), now)
    record.state = Verifying(attempt, state.computation, pending, VerificationResult())
    checks = [CheckUnits(attempt.id, order, seed) for order in orders]
    commands = [*progress(record, record.state, now, force=True), *checks]
    return commands + deadlines.set_first(record, now, settings.deadlines.check)


def on_checked(
    record: JobRecord, state: Verifying, event: DeviceMessage, now: float
) -> list[JobCommand]:
    checked = event.message
    assert isinstance(checked, device_messages.Checked)
    state.result.add(checked)
    state.pending.answered(event.device, now)
    if state.pending:
        return []
    if state.result.error is not None:
        return fail(record, state.result.error, verified=False)
    return _publish(record, state, True, state.result.max_error)


def _publish(
    record: JobRecord, state: Computing | Verifying, verified: bool | None, max_error: float
) -> list[JobCommand]:
    settings, attempt = record.settings, state.attempt
    runs = attempt.runs()
    report = job_report(
        settings.number,
        settings.job,
        attempt.plan,
        runs,
        record.report_notes,
        verified=verified,
        max_error=max_error,
    )
    has_loss = state.computation.has_lost_device
    publishing = Publishing(attempt, report, None if has_loss else runs)
    if not settings.job.outputs:
        return _finish(record, publishing)
    record.state = publishing
    return [PublishOutputs()]


def _finish(record: JobRecord, state: Publishing) -> list[JobCommand]:
    """End the job successfully."""
    attempt = state.attempt
    record.state = Ended()
    return [FinishJob(state.report, None, attempt.id, tuple(attempt.assignments), state.runs)]


def on_published(
    record: JobRecord, state: Publishing, event: Published, now: float
) -> list[JobCommand]:
    return _finish(record, state)


def on_publish_failed(
    record: JobRecord, state: Publishing, event: PublishFailed, now: float
) -> list[JobCommand]:
    return fail(record, event.error)
