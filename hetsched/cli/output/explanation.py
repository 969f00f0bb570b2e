"""What --trace and --plot of several commands have in common, and how an account is shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from hetsched.cli.output.terminal import note, out, out_json, width
from hetsched.errors import CantCreate, HetschedError, UsageError
from hetsched.job import Failed, JobState

if TYPE_CHECKING:
    from hetsched.explain import Account

Trace = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write a trace for Perfetto or chrome://tracing, as JSON."),
]
Plot = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Draw who did what when, as .png, .svg or .pdf."),
]
ForceFiles = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]


def check(trace: str | None, plot: str | None, force: bool) -> None:
    """Whether these files can be written, as far as that is known before anything is done.

    Raises
    ------
    UsageError, Unavailable, CantCreate
    """
    if plot is not None:
        from hetsched.cli.output.charts import check as check_picture

        check_picture(plot, force)
    if trace is None:
        return
    if not trace or trace == plot:
        what = "it is the file of --plot too" if trace else "it has no name"
        raise UsageError(f"--trace {trace!r}: {what}; give the name of a file")
    path = Path(trace)
    if path.is_dir():
        raise CantCreate(f"{trace}: is a directory; give the name of a file")
    if path.exists() and not force:
        raise CantCreate(f"{trace}: exists; give another name, or replace it with --force")
    if not path.absolute().parent.is_dir():
        raise CantCreate(f"{trace}: there is no folder {path.absolute().parent}; make it first")


def write(account: Account, trace: str | None, plot: str | None, force: bool) -> None:
    """Write what was asked for. Raises as `check`, and IOFailure."""
    if trace is not None:
        from hetsched.explain import trace as traced
        from hetsched.store.array_files import write_whole

        write_whole(trace, msgspec.json.encode(traced(account)), force)
        note(f"trace: {trace} (open it at https://ui.perfetto.dev)")
    if plot is not None:
        from hetsched.cli.output.gantt import draw

        draw(account, plot, force)
        note(f"drawn: {plot}")


def keep(job: Any, state: JobState, trace: str | None, plot: str | None, force: bool) -> None:
    """Write what was asked for of a job that has ended; its own error goes before ours."""
    if trace is None and plot is None:
        return
    try:
        account = job.explain()
    except HetschedError:
        if isinstance(state, Failed):
            return
        raise
    write(account, trace, plot, force)


def show(account: Any, json: bool) -> None:
    """The account, for people or as JSON."""
    if json:
        out_json(account)
        return
    from hetsched.explain.text import text

    for line in text(account, width()).splitlines():
        out(line)
