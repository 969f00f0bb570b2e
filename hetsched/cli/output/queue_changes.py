"""Applying one change to several jobs: a line for each, then the first error."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hetsched.cli.output.terminal import clean, note, out
from hetsched.errors import HetschedError


def change_each(jobs: Iterable[int], change: Callable[[int], str]) -> None:
    """Call `change` for each job once and print the line that it returns.

    A job that can't be changed doesn't keep the others from it.

    Raises
    ------
    HetschedError
        The first error; the others have been printed.
    """
    errors: list[HetschedError] = []
    for job in dict.fromkeys(jobs):
        try:
            out(clean(change(job)))
        except HetschedError as error:
            errors.append(error)
    for later_error in errors[1:]:
        note(f"error: {later_error}")
    if errors:
        raise errors[0]
