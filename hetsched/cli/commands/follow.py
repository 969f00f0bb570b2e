"""`hetsched follow [ID...]`: the events of jobs, as they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait

from hetsched.cli.connect import control
from hetsched.cli.output import job_lines
from hetsched.cli.output.terminal import clean, flush_lines, note, out, out_json
from hetsched.cli.request_flags import Json, SomeJobNumbers
from hetsched.job import JobState

SCHEMA = "hetsched.event/1"
INTERRUPTED = 130


def follow(jobs: SomeJobNumbers = None, json: Json = False) -> int:
    """Print each event of jobs, or of all; Ctrl-C ends it."""
    try:
        _follow(jobs or (), _as_json if json else _as_line)
    except KeyboardInterrupt:  # the way to end it, so nothing to report
        return INTERRUPTED
    return 0


def _follow(jobs: Sequence[int], show: Callable[[int, JobState], None]) -> None:
    with control() as daemon:
        printer = EventPrinter(show)
        follower = daemon.events(printer.on_event, jobs)
        if not jobs:
            note("following all jobs; Ctrl-C ends it")
        done, _ = wait([follower.done, printer.failed], return_when=FIRST_COMPLETED)
        for future in done:
            future.result()


class EventPrinter:
    """Prints events, and how many are missing between two of them.

    On the client's thread: while printing blocks, nothing is read from the daemon. `failed` gets
    the error if printing fails, such as BrokenPipeError.
    """

    def __init__(self, show: Callable[[int, JobState], None]) -> None:
        self.failed: Future[None] = Future()
        self._show = show
        self._last = 0

    def on_event(self, sequence: int, state: JobState) -> None:
        try:
            self._print(sequence, state)
        except Exception as error:
            if not self.failed.done():
                self.failed.set_exception(error)

    def _print(self, sequence: int, state: JobState) -> None:
        missing = sequence - self._last - 1 if sequence > self._last else 0
        self._last = sequence
        if missing:
            events = "event was" if missing == 1 else "events were"
            note(f"{missing} {events} lost: this reader is too slow")
        self._show(sequence, state)
        flush_lines()


def _as_line(sequence: int, state: JobState) -> None:
    clock = time.strftime("%H:%M:%S")
    text = f"{clock} {job_lines.word(state)} {state.job} {job_lines.event_detail(state)}"
    out(clean(text.rstrip()))


def _as_json(sequence: int, state: JobState) -> None:
    record = {
        "schema": SCHEMA,
        "sequence": sequence,
        "job": state.job,
        "state": job_lines.word(state),
        "detail": job_lines.event_detail(state),
    }
    out_json(record)
