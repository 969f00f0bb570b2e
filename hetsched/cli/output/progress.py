"""Watching a job until it has ended: as bars on a terminal, else as plain lines."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING, Protocol

from hetsched.cli.output.terminal import is_interactive, note
from hetsched.errors import Cancelled, HetschedError, from_record
from hetsched.job import Done, Ended, Failed, JobState, Queued, Running

if TYPE_CHECKING:
    from hetsched.client.job import Job

POLL_SECONDS = 0.1
"""Seconds between two polls of a job; also how often the bars are redrawn."""

TURN = ("priority", "resources")
"""Reasons of a job that only waits for its turn."""


class JobView(Protocol):
    """Shows the states of a job; a state may be repeated."""

    def show(self, state: JobState) -> None: ...

    def close(self) -> None: ...


class JobLines:
    """One line per change: "submitted 42", "running 42", "done 42 0.0216".

    Parameters
    ----------
    from_start : bool
        Also print changes that happened between two polls.
    """

    def __init__(self, from_start: bool = True) -> None:
        self._from_start = from_start
        self._printed: list[str] = []

    def show(self, state: JobState) -> None:
        job = state.job
        if self._from_start or isinstance(state, Queued):
            self._print(f"submitted {job}")
        if isinstance(state, Running) or (self._from_start and isinstance(state, Done)):
            self._print(f"running {job}")
        match state:
            case Queued(reason=reason) if reason not in ("", *TURN):
                self._print(f"waiting {job} {reason}")
            case Running(text=text) if text:
                self._print(f"running {job} {text}")
            case Done(report=report):
                seconds = "" if report.seconds is None else f" {report.seconds:.4g}"
                self._print(f"done {job}{seconds}")
            case Failed(error=error):
                self._print(f"{'cancelled' if error.code == Cancelled.code else 'failed'} {job}")

    def close(self) -> None:
        pass

    def _print(self, line: str) -> None:
        if line not in self._printed:
            self._printed.append(line)
            note(line)


def new_view(from_start: bool) -> JobView:
    """Return bars on a terminal, else plain lines."""
    if not is_interactive():
        return JobLines(from_start)
    from hetsched.cli.output.bars import JobBars

    return JobBars()


def watch(job: Job, from_start: bool = True) -> JobState:
    """Show the progress of `job` until it has ended; return its last state.

    KeyboardInterrupt passes through after the screen has been restored.

    Parameters
    ----------
    job : Job
        Of a Client or a Local.
    from_start : bool
        It has just been submitted: print every change.
    """
    view = new_view(from_start)
    try:
        while True:
            state = job.progress()
            view.show(state)
            if isinstance(state, Ended):
                return state
            concurrent.futures.wait([job], timeout=POLL_SECONDS)
    finally:
        view.close()


def error_of(state: JobState) -> HetschedError | None:
    """Return the error of a failed job, else None."""
    return from_record(state.error) if isinstance(state, Failed) else None
