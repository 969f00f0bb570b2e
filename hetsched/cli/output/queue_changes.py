"""Applying one change to several jobs: a line for each, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import typer

from hetsched.cli.output.terminal import clean, flush_lines, note, out
from hetsched.errors import HetschedError


def change_each(jobs: Iterable[int], change: Callable[[int], str]) -> None:
    """Call `change` for each job once and print the line that it returns, or its error.

    A job that can't be changed doesn't keep the others from it.

    Raises
    ------
    HetschedError
        The error of a single job.
    typer.Exit
        With the code of the first of several jobs' errors.
    """
    numbers = list(dict.fromkeys(jobs))
    if len(numbers) == 1:
        out(clean(change(numbers[0])))
        return
    codes = []
    for job in numbers:
        try:
            out(clean(change(job)))
            flush_lines()
        except HetschedError as error:
            note(f"error: {error}")
            codes.append(error.code)
    if codes:
        raise typer.Exit(codes[0])
