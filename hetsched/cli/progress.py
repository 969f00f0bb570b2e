"""Watching a job until it has ended: as bars on a terminal, else as plain lines."""

from __future__ import annotations

import concurrent.futures
import math
import sys
import time
from typing import TYPE_CHECKING, Protocol

from hetsched.cli import interrupts
from hetsched.cli.jobs import TURN, iteration_progress
from hetsched.cli.terminal import can_move_cursor, note
from hetsched.errors import Cancelled
from hetsched.job import Done, Ended, Failed, JobState, Queued, Running
from hetsched.text import MAX_GROUP_ROWS, clean, grouped_rows
from hetsched.units import format_seconds

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from hetsched.client.job import Job

POLL_SECONDS = 0.1
"""Seconds between two polls of a job; also how often the bars are redrawn."""
MIN_DURATION = 0.5
"""Seconds: shorter jobs show no bars, only their table."""
BAR_WIDTH = 32


class JobLines:
    """One line per change: "submitted 42", "running 42", "done 42 0.0216".

    Parameters
    ----------
    from_start : bool
        Also print changes that happened between two polls.
    is_local : bool
        The job isn't in a queue.
    """

    def __init__(self, from_start: bool = True, is_local: bool = False) -> None:
        self._from_start = from_start
        self._is_local = is_local
        self._printed: list[str] = []

    def show(self, state: JobState) -> None:
        job = state.job
        if not self._is_local and (self._from_start or isinstance(state, Queued)):
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


class LiveTable:
    """A table on standard error that is redrawn in place and removed at the end."""

    def __init__(self) -> None:
        self._live: Live | None = None

    @property
    def is_shown(self) -> bool:
        return self._live is not None

    def draw(self, table: Table) -> None:
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, markup=False, highlight=False, emoji=False)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(table, refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class JobBars(LiveTable):
    """Bars of a job that takes, or is predicted to take, longer than MIN_DURATION."""

    def __init__(self) -> None:
        super().__init__()
        self._began = time.monotonic()

    def show(self, state: JobState) -> None:
        predicted = state.predicted_seconds if isinstance(state, Running) else None
        elapsed = time.monotonic() - self._began
        if isinstance(state, Ended):
            self.close()
        elif self.is_shown or max(elapsed, predicted or 0.0) > MIN_DURATION:
            self.draw(job_table(state))


def has_bars() -> bool:
    """Whether standard error is a terminal that can move its cursor."""
    return sys.stderr.isatty() and can_move_cursor()


def grid(columns: int) -> Table:
    """Make an empty table without lines."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for _ in range(columns):
        table.add_column(no_wrap=True)
    return table


def job_table(state: JobState) -> Table:
    """Draw the present state of a job: done units, or the rows of an iterative one."""
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    whole, table = grid(1), grid(3)
    whole.add_row(Text(f"job {state.job}  {clean(_headline(state))}".rstrip()))
    if isinstance(state, Running):
        load = sum(device.share for device in state.devices)
        rows = grouped_rows(state.devices, lambda device: device.device, MAX_GROUP_ROWS)
        for name, members in rows:
            done, share = sum(m.done for m in members), sum(m.share for m in members)
            if state.iteration is None:
                bar = ProgressBar(total=max(1, share), completed=done, width=BAR_WIDTH)
                label = f"{done}/{share}"
            else:
                bar = ProgressBar(total=max(1, load), completed=share, width=BAR_WIDTH)
                label = f"{share} rows, {100 * share / max(1, load):.1f} %"
            table.add_row(Text(f"  {clean(name)}"), bar, Text(label))
        if state.devices:
            whole.add_row(table)
    return whole


def _headline(state: JobState) -> str:
    match state:
        case Queued() if state.reason not in ("", *TURN):
            return f"queued, {state.reason}"
        case Queued():
            return f"queued, {state.ahead} ahead" if state.ahead else "starting"
        case Running():
            text = state.text or iteration_progress(state) or state.stage
            if state.predicted_seconds is not None:
                text += f", predicted {format_seconds(state.predicted_seconds)}"
            return text
    return ""


def watch(job: Job, from_start: bool = True, is_local: bool = False) -> JobState:
    """Show the progress of `job` until it has ended; return its last state.

    KeyboardInterrupt passes through after the screen has been restored.

    Parameters
    ----------
    job : Job
        Of a Client or a Local.
    from_start : bool
        It has just been submitted: print every change.
    is_local : bool
        It isn't in a queue.
    """
    view = JobBars() if has_bars() else JobLines(from_start, is_local)
    try:
        return watch_until(job, view)
    finally:
        view.close()


class JobView(Protocol):
    """Shows the states of a job; a state may be repeated."""

    def show(self, state: JobState) -> None: ...


def watch_until(job: Job, view: JobView, deadline: float = math.inf) -> JobState:
    """Show the states of `job` until it has ended, or `deadline` (monotonic); return the last."""
    while True:
        interrupts.reraise()
        state = job.progress()
        view.show(state)
        if isinstance(state, Ended) or time.monotonic() >= deadline:
            return state
        concurrent.futures.wait([job], timeout=POLL_SECONDS)
