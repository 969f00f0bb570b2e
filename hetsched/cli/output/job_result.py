"""How a job's last state is shown: as a table or as JSON; and what it means for the exit code."""

from __future__ import annotations

from collections.abc import Callable

from hetsched.cli.output.job_table import summary, table
from hetsched.cli.output.progress import error_of
from hetsched.cli.output.terminal import clean, out, out_json
from hetsched.job import Done, Failed, JobReport, JobState


def finish(state: JobState, json: bool, following: Callable[[JobReport], str]) -> None:
    """Print the report of a job that has ended; raise what it failed with.

    `following` makes the last line, about what to do next.

    Raises
    ------
    HetschedError
        The job's own.
    """
    assert isinstance(state, Done | Failed)
    error = error_of(state)
    if json:
        out_json(state.report)
    elif error is None:
        for line in [*table(state.report), *summary(state.report), following(state.report)]:
            out(clean(line))
    if error is not None:
        raise error
