"""Explanations of jobs: printing them, and the files of --trace and --plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from hetsched.cli.output.terminal import note, out, out_json, width
from hetsched.errors import HetschedError, UsageError
from hetsched.job import Failed, JobState

if TYPE_CHECKING:
    from hetsched.client.job import Job
    from hetsched.explain import Explanation

Trace = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write a trace for Perfetto or chrome://tracing."),
]
Plot = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Draw what ran when (.png, .svg or .pdf)."),
]
ForceFiles = Annotated[bool, typer.Option("--force", help="Replace existing files.")]


def check(trace: str | None, plot: str | None, force: bool) -> None:
    """Check whether these files can be written, before anything is computed.

    Raises
    ------
    UsageError, Unavailable, CantCreate
    """
    if plot is not None:
        from hetsched.cli.output.plots.figure_file import check as check_picture

        check_picture(plot, force)
    if trace is None:
        return
    from hetsched.cli.output.new_file import check_new_file

    if not trace:
        raise UsageError("--trace '': the file name is missing")
    if trace == plot:
        raise UsageError(f"--trace {trace!r}: --plot has the same file; give it another name")
    check_new_file(trace, force)


def write(explanation: Explanation, trace: str | None, plot: str | None, force: bool) -> None:
    """Write the files asked for. Raises as `check`, and IOFailure."""
    is_plan = explanation.job is None and explanation.iterations is not None
    if is_plan and (trace is not None or plot is not None):
        raise UsageError(f"a plan of {explanation.workload} has no iterations to draw; run it")
    if trace is not None:
        from hetsched.explain.trace import trace as make_trace
        from hetsched.store.output_files import write_whole

        write_whole(trace, msgspec.json.encode(make_trace(explanation)), force)
        note(f"trace: {trace} (open it at https://ui.perfetto.dev)")
    if plot is not None:
        _draw(explanation, plot, force)
        note(f"plot: {plot}")


def _draw(explanation: Explanation, plot: str, force: bool) -> None:
    if explanation.iterations is not None:
        from hetsched.cli.output.plots.iterations import draw as draw_iterations

        draw_iterations(explanation, explanation.iterations, plot, force)
    else:
        from hetsched.cli.output.plots.gantt import draw

        draw(explanation, plot, force)


def write_ended(
    job: Job, state: JobState, trace: str | None, plot: str | None, force: bool
) -> None:
    """Write the files of a job that has ended; the job's own error has priority over ours."""
    if trace is None and plot is None:
        return
    try:
        explanation = job.explain()
    except HetschedError:
        if isinstance(state, Failed):
            return
        raise
    write(explanation, trace, plot, force)


def show(explanation: Explanation, json: bool) -> None:
    """Print the explanation as text or as JSON."""
    if json:
        out_json(explanation)
        return
    from hetsched.explain.text import explanation_text

    for line in explanation_text(explanation, width()).splitlines():
        out(line)
