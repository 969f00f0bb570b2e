"""`hetsched show ID`: one job in full."""

from __future__ import annotations

from collections.abc import Mapping

from hetsched.cli.connect import control
from hetsched.cli.output import job_lines
from hetsched.cli.output.job_table import summary, table
from hetsched.cli.output.terminal import clean, out, out_json
from hetsched.cli.request_flags import JobNumber, Json
from hetsched.job import SCHEMA, Ended, Failed, JobReport, JobState, Queued


def show(job: JobNumber, json: Json = False) -> None:
    """Show one job in full."""
    with control() as daemon:
        state: JobState = daemon.show(job)
        (entry,) = daemon.status(jobs=[job])
    if isinstance(state, Queued) and isinstance(entry.state, Queued):
        state = entry.state  # with its present position
    if json:
        out_json(_record(state))
        return
    out(clean(f"job {job}  {job_lines.word(state)}  {job_lines.event_detail(state)}".rstrip()))
    for text in job_lines.options(entry):
        out(clean(text))
    if isinstance(state, Failed) and state.error.frames:
        out("\n".join(clean(line) for line in state.error.frames.splitlines()))
    if isinstance(state, Ended):
        report = state.report
        if report.params:
            out(f"{report.workload}  {job_lines.parameters(report.params)}")
        if report.devices:
            for line in [*table(report), *summary(report, with_reasons=True)]:
                out(clean(line))


def _record(state: JobState) -> JobReport | Mapping[str, object]:
    """Return the report of an ended job, else its state; with `schema`, `job` and `state`."""
    if isinstance(state, Ended):
        return state.report
    return {**job_lines.builtins(state), "schema": SCHEMA, "state": job_lines.word(state)}
