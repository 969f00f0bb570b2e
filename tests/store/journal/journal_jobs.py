"""Jobs and a loop for tests of the journal."""

from __future__ import annotations

import queue
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hetsched.errors import ErrorRecord
from hetsched.job import ArenaRef, Done, Failed, FileRef, JobReport, JobSpec
from hetsched.store.journal import Journal
from hetsched.store.journal_records import JobUpdate, JournaledJob, Record

PATIENCE = 60.0
START = time.time()
"""Jobs are submitted and end from now on, a second apart: old ones would be trimmed."""


def spec(durable: bool = True, priority: int = 0) -> JobSpec:
    ref = FileRef("/in.npy") if durable else ArenaRef(1, (2, 3), "complex64")
    params = {"batch": "2x512x512", "dtype": "complex64"}
    return JobSpec(workload="fft", params=params, inputs={"x": ref}, priority=priority)


def accepted(
    number: int, durable: bool = True, client_id: str = "", at: float = 0.0
) -> JournaledJob:
    return JournaledJob(
        number=number,
        spec=spec(durable),
        client_id=client_id,
        submitted_at=at or START + number,
        durable=durable,
    )


def done(number: int, at: float = 0.0) -> JobUpdate:
    report = JobReport(job=number, state="done", workload="fft", load=2, seconds=0.5)
    return JobUpdate(number=number, state=Done(number, report), ended_at=at or START + number)


def failed(number: int, code: int = 1) -> JobUpdate:
    error = ErrorRecord(code, "no")
    report = JobReport(job=number, state="failed", workload="fft", load=2, error=error)
    state = Failed(number, report, error)
    return JobUpdate(number=number, state=state, ended_at=START + number)


class CallQueue:
    """Stands in for the loop: runs what the journal's thread passes to it, on this thread."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        self._calls.put(call)

    def run_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self._calls.get(timeout=max(0.0, deadline - time.monotonic()))()


def write_and_wait(
    journal: Journal, calls: CallQueue, records: Sequence[Record]
) -> BaseException | None:
    """Write urgently; return the outcome once it was reported."""
    outcomes: list[BaseException | None] = []
    journal.write(records, outcomes.append)
    calls.run_until(lambda: bool(outcomes))
    return outcomes[0]


def open_journal(path: Path, calls: CallQueue | None = None) -> Journal:
    return Journal(path, (calls or CallQueue()).call_soon_threadsafe)


def crashed_copy(path: Path) -> Path:
    """Return the path of the journal as a kill of its daemon would leave it now."""
    folder = path.parent.with_name(f"{path.parent.name}-crashed")
    shutil.copytree(path.parent, folder)
    return folder / path.name


def contents_of(path: Path):  # type: ignore[no-untyped-def]
    """Open, load and close a journal."""
    journal = open_journal(path)
    try:
        return journal.load()
    finally:
        journal.close(PATIENCE)
