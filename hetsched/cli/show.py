"""`hetsched show ID`: one job in full."""

from __future__ import annotations

from hetsched.cli import jobs
from hetsched.cli.reach import control
from hetsched.cli.report import summary, table
from hetsched.cli.request import JobNumber, Json
from hetsched.cli.say import clean, out, out_json
from hetsched.job import SCHEMA, Done, Failed, JobState


def show(job: JobNumber, json: Json = False) -> None:
    """Show one job in full."""
    with control() as daemon:
        state: JobState = daemon.show(job)
    if json:
        out_json(_record(state))
        return
    out(clean(f"job {job}  {jobs.word(state)}  {jobs.detail(state)}".rstrip()))
    if isinstance(state, Done | Failed):
        report = state.report
        if report.params:
            out(f"{report.workload}  {jobs.parameters(report.params)}")
        if report.devices:
            for line in [*table(report), *summary(report, reasons=True)]:
                out(clean(line))


def _record(state: JobState) -> object:
    """The report of a job that has ended, else its state; both have `schema`, `job`, `state`."""
    if isinstance(state, Done | Failed):
        return state.report
    return {**jobs.builtins(state), "schema": SCHEMA, "state": jobs.word(state)}
