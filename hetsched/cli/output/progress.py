"""Watching a job until it has ended: plain lines, or bars where a person looks on."""

from __future__ import annotations

import concurrent.futures
import os
import sys
from typing import Any, Protocol

from hetsched.cli.output.terminal import note
from hetsched.errors import HetschedError, from_record
from hetsched.job import Done, Failed, JobState, Queued, Running, ended

POLL_SECONDS = 0.1
"""Between two looks at a job: 10 Hz, which is also how often the bars move."""
CANCELLED = 130


class View(Protocol):
    """Shows states to people; told them many times, the same one too."""

    def show(self, state: JobState) -> None: ...

    def close(self) -> None: ...


class Plain:
    """One line a change: "submitted 42", "running 42", "done 42 0.0216".

    `whole`: also the changes that were too quick to be seen.
    """

    def __init__(self, whole: bool = True) -> None:
        self._whole = whole
        self._said: list[str] = []

    def show(self, state: JobState) -> None:
        number = state.job
        if self._whole or isinstance(state, Queued):
            self._say(f"submitted {number}")
        if isinstance(state, Running) or (self._whole and isinstance(state, Done)):
            self._say(f"running {number}")
        match state:
            case Running(text=text) if text:
                self._say(f"running {number} {text}")
            case Done(report=report):
                took = "" if report.seconds is None else f" {report.seconds:.4g}"
                self._say(f"done {number}{took}")
            case Failed(error=error):
                self._say(f"{'cancelled' if error.code == CANCELLED else 'failed'} {number}")

    def close(self) -> None:
        pass

    def _say(self, line: str) -> None:
        if line not in self._said:
            self._said.append(line)
            note(line)


def a_person_looks_on() -> bool:
    """Bars make sense: standard error is a terminal that can move its cursor."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


def new_view(whole: bool) -> View:
    if not a_person_looks_on():
        return Plain(whole)
    from hetsched.cli.output.bars import Bars

    return Bars()


def watch(job: Any, whole: bool = True) -> JobState:
    """Show what `job` (of Client or Local) does until it has ended; its last state.

    `whole`: it was submitted just now, so tell all of its story. KeyboardInterrupt passes
    through, with the screen put in order first.
    """
    view = new_view(whole)
    try:
        while True:
            state: JobState = job.progress()
            view.show(state)
            if ended(state):
                return state
            concurrent.futures.wait([job], timeout=POLL_SECONDS)
    finally:
        view.close()


def error_of(state: JobState) -> HetschedError | None:
    """Why the job failed; None when it didn't."""
    return from_record(state.error) if isinstance(state, Failed) else None
