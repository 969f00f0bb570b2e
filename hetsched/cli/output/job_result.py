"""The end of a job as table or JSON, and as exit code."""

from __future__ import annotations

from collections.abc import Callable

from hetsched.cli.output.job_table import summary, table
from hetsched.cli.output.progress import error_of
from hetsched.cli.output.terminal import clean, out, out_json
from hetsched.job import Ended, JobReport, JobState


def finish(state: JobState, json: bool, next_steps: Callable[[JobReport], str]) -> None:
    """Print the report of a job that has ended; raise its error if it failed.

    `next_steps` makes the last line: what to do next. An iterative job that hasn't converged has
    a report, too: what it reached.

    Raises
    ------
    HetschedError
        The job's own.
    """
    assert isinstance(state, Ended)
    error = error_of(state)
    if json:
        out_json(state.report)
    elif error is None or _has_ended_by_limit(state.report):
        for line in [*table(state.report), *summary(state.report), next_steps(state.report)]:
            out(clean(line))
    if error is not None:
        raise error


def _has_ended_by_limit(report: JobReport) -> bool:
    """Whether all allowed iterations were computed, without convergence."""
    return report.converged is False and bool(report.iterations)
