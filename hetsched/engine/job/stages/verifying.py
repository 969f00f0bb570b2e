"""The stages after the timed one: verify the result if requested, publish it, report."""

from __future__ import annotations

import math

from hetsched.engine.iterating.iteration_report import with_iterations
from hetsched.engine.job.commands import CheckUnits, FinishJob, JobCommand, PublishOutputs
from hetsched.engine.job.computation import Computation
from hetsched.engine.job.events import DeviceMessage, Published, PublishFailed
from hetsched.engine.job.fill_and_check import VerificationResult, check_orders
from hetsched.engine.job.job_record import JobRecord, helper_devices, progress
from hetsched.engine.job.report import job_report
from hetsched.engine.job.stages import deadlines
from hetsched.engine.job.stages.ending import fail
from hetsched.engine.job.states import Attempt, Ended, PendingAnswers, Publishing, Verifying
from hetsched.errors import JobFailed
from hetsched.transport import device_messages
from hetsched.units import counted


def begin(
    record: JobRecord, attempt: Attempt, computation: Computation | None, now: float
) -> list[JobCommand]:
    """Verify, publish or finish, once every unit is computed.

    `computation`: None for an iterative job.
    """
    settings = record.settings
    if not settings.spec.verify or _convergence_error(record) is not None:
        return _publish(record, attempt, computation, None, 0.0)
    devices = helper_devices(attempt)  # at least the device of the last chunk
    seed = settings.verification_seed
    edges = computation.ranges.edges() if computation else []
    orders = check_orders(settings.job.load, devices, edges, seed)
    pending = PendingAnswers((order.device for order in orders), now)
    record.state = Verifying(attempt, computation, pending, VerificationResult())
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
    attempt, computation = state.attempt, state.computation
    return _publish(record, attempt, computation, True, state.result.max_error)


def _convergence_error(record: JobRecord) -> JobFailed | None:
    """Return the error of an iterative job whose method should have converged and hasn't."""
    iterations, job = record.iterations, record.settings.job.iterative
    if iterations is None or job is None or not job.must_converge or iterations.has_converged:
        return None
    residual = "" if math.isnan(iterations.residual) else f": residual {iterations.residual:.3g}"
    count = counted(iterations.finished, "iteration")
    return JobFailed(f"no convergence after {count}{residual}")


def _publish(
    record: JobRecord,
    attempt: Attempt,
    computation: Computation | None,
    verified: bool | None,
    max_error: float,
) -> list[JobCommand]:
    settings = record.settings
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
    if record.iterations is not None:
        report = with_iterations(report, record.iterations, attempt)
    is_typical = computation is not None and not computation.has_lost_device
    error = _convergence_error(record)
    publishing = Publishing(attempt, report, runs if is_typical else None, error)
    if not settings.job.outputs:
        return _finish(record, publishing)
    record.state = publishing
    return [PublishOutputs()]


def _finish(record: JobRecord, state: Publishing) -> list[JobCommand]:
    """End the job: successfully, unless its method hasn't converged."""
    if state.error is not None:
        return fail(record, state.error, keeps_results=True)
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
