"""Watching a job until it has ended: as bars on a terminal, else as plain lines."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from hetsched.cli import interrupts
from hetsched.cli.jobs import TURN, iteration_progress
from hetsched.cli.terminal import can_move_cursor, note
from hetsched.errors import Cancelled
from hetsched.job import Done, Ended, Failed, JobState, Queued, Running
from hetsched.text import clean, grouped_rows
from hetsched.units import format_seconds

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from hetsched.client.job import Job
    from hetsched.local import Local

POLL_SECONDS = 0.1  # Seconds between two polls of a job; also how often the bars are redrawn
MIN_DURATION = 0.5  # Seconds: shorter jobs show no bars, only their table
BAR_WIDTH = 32


class JobLines:
    """One line per change: "submitted 42", "running 42", "done 42 0.0216".

    `from_start`: also changes that happened between two polls. `is_local`: it isn't in a queue.
    """

    def __init__(self, from_start: bool = True, is_local: bool = False) -> None:
        self._from_start, self._is_local = from_start, is_local
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

    def _print(self, line: str) -> None:
        if line not in self._printed:
            self._printed.append(line)
            note(line)


class JobNotes(JobLines):
    """Only what a job says about its slow steps."""

    def show(self, state: JobState) -> None:
        if isinstance(state, Running) and state.text:
            self._print(state.text)


class JobBars:
    """Bars of a job that takes, or is predicted to take, longer than MIN_DURATION.

    They are on standard error, redrawn in place, and removed at the end.
    """

    def __init__(self) -> None:
        self._live: Live | None = None
        self._began = time.monotonic()

    def show(self, state: JobState) -> None:
        predicted = state.predicted_seconds if isinstance(state, Running) else None
        elapsed = time.monotonic() - self._began
        if isinstance(state, Ended):
            self.close()
        elif self._live is not None or max(elapsed, predicted or 0.0) > MIN_DURATION:
            if self._live is None:
                from rich.console import Console
                from rich.live import Live

                console = Console(stderr=True, markup=False, highlight=False, emoji=False)
                self._live = Live(console=console, auto_refresh=False, transient=True)
                self._live.start()
            self._live.update(job_table(state), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


View = JobLines | JobBars


def has_bars() -> bool:
    """Whether standard error is a terminal that can move its cursor."""
    return sys.stderr.isatty() and can_move_cursor()


def job_table(state: JobState) -> Table:
    """Draw the present state of a job: done units, or the rows of an iterative one."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    whole, table = (Table.grid(padding=(0, 2)) for _ in range(2))
    whole.add_row(Text(f"job {state.job}  {clean(_headline(state))}".rstrip(), no_wrap=True))
    if isinstance(state, Running):
        load = sum(device.share for device in state.devices)
        rows = grouped_rows(state.devices, lambda device: device.device)
        for name, members in rows:
            done, share = sum(m.done for m in members), sum(m.share for m in members)
            total, part, label = share, done, f"{done}/{share}"
            if state.iteration is not None:
                total, part = load, share
                label = f"{share} rows, {100 * share / max(1, load):.1f} %"
            bar = ProgressBar(total=max(1, total), completed=part, width=BAR_WIDTH)
            table.add_row(Text(f"  {clean(name)}", no_wrap=True), bar, Text(label, no_wrap=True))
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


def watch(
    job: Job, from_start: bool = True, is_local: bool = False, deadline: float = math.inf
) -> JobState:
    """Show `job` until it has ended, as `watch_until`. Flags as of JobLines.

    KeyboardInterrupt passes through after the screen has been restored.
    """
    if not has_bars():
        return watch_until(job, JobLines(from_start, is_local), deadline)
    bars = JobBars()
    try:
        return watch_until(job, bars, deadline)
    finally:
        bars.close()


def stop(job: Job, local: Local, view: View | None = None) -> JobState:
    """After Ctrl-C: cancel the job and show it until it has ended; a second Ctrl-C aborts it."""
    interrupts.seen()
    view = view or JobLines(is_local=True)
    try:
        job.cancel()
        state = job.progress()
        is_iterating = isinstance(state, Running) and state.iteration is not None
        step = "iteration" if is_iterating else "chunks"
        note(f"stopping after the current {step}; Ctrl-C again stops at once")
        return watch_until(job, view)
    except KeyboardInterrupt:
        local.abandon()
        raise Cancelled(f"interrupted twice; job {job.id} was aborted") from None


def watch_until(job: Job, view: View, deadline: float = math.inf) -> JobState:
    """Show the states of `job` until it has ended, or `deadline` (monotonic); return the last."""
    interrupts.reraise()
    sleep = sleeper(job)
    while True:
        state = job.progress()
        view.show(state)
        if isinstance(state, Ended) or time.monotonic() >= deadline:
            return state
        sleep()


def sleeper(*futures: Future[Any]) -> Callable[[], None]:
    """Return what sleeps for POLL_SECONDS, or until another of `futures` ends, and raises Ctrl-C.

    Within `concurrent.futures.wait` that may leave them locked for the client's thread, and one
    just before a thread sleeps doesn't wake it.
    """
    ended: SimpleQueue[object] = SimpleQueue()
    for future in futures:
        future.add_done_callback(ended.put)

    def sleep() -> None:
        with contextlib.suppress(Empty):
            ended.get(timeout=POLL_SECONDS)
        interrupts.reraise()

    return sleep
