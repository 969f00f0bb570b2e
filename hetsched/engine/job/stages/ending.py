"""The end of a job: its report and the release of resources."""

from __future__ import annotations

from hetsched.engine.iterating.iteration_report import with_iterations
from hetsched.engine.job.commands import FinishJob, JobCommand, LogMessage
from hetsched.engine.job.job_record import JobRecord
from hetsched.engine.job.report import job_report, minimal_report
from hetsched.engine.job.states import Ended
from hetsched.errors import ErrorRecord, InternalError, to_record
from hetsched.job import JobReport
from hetsched.planner.job_planner import JobPlan


def fail(
    record: JobRecord,
    error: BaseException,
    verified: bool | None = None,
    *,
    keeps_results: bool = False,
) -> list[JobCommand]:
    """End the job with `error`, once no device writes to its arrays.

    `keeps_results`: they are the best that there are.
    """
    error_record = to_record(error)
    attempt, settings = record.latest, record.settings
    report = job_report(
        settings.number,
        settings.job,
        attempt.plan if attempt else JobPlan((), None, ()),
        attempt.runs() if attempt else {},
        record.report_notes,
        error=error_record,
        verified=verified,
    )
    if record.iterations is not None:
        report = with_iterations(report, record.iterations, attempt)
    commands: list[JobCommand] = []
    if error_record.code == InternalError.code:
        commands.append(LogMessage("error", error_record.message, error))
    return [*commands, _failed(record, report, error_record, keeps_results=keeps_results)]


def fail_without_report(record: JobRecord, error: BaseException) -> list[JobCommand]:
    """End the job without a full report, if `fail` itself raises."""
    error_record = to_record(error)
    report = minimal_report(record.settings.number, record.settings.job, error_record)
    return [_failed(record, report, error_record)]


def _failed(
    record: JobRecord, report: JobReport, error: ErrorRecord, *, keeps_results: bool = False
) -> FinishJob:
    attempt = record.latest
    record.state = Ended()
    if attempt is None:
        return FinishJob(report, error, None, ())
    devices = tuple(attempt.assignments)
    return FinishJob(report, error, attempt.id, devices, keeps_results=keeps_results)
