"""How fast the journal is: commits against plain fsyncs and bare SQLite, in the same run."""

from __future__ import annotations

import gc
import os
import queue
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from benchmarks.results import Bar, Result
from hetsched.errors import HetschedError
from hetsched.job import ArenaRef, Done, FileRef, InputRef, JobReport, JobSpec
from hetsched.store import database, journal_records
from hetsched.store.journal import MAX_GATHERED, Journal
from hetsched.store.journal_records import (
    FORMAT,
    HistoryFilter,
    JournaledJob,
    Record,
)
from robustness.scale import Scale

OUTSTANDING = 256
"""Jobs that wait for their acknowledgement at a time."""
FSYNCS = 100
RESTART_JOBS = 10_000


class Calls:
    """Stands in for the daemon's loop."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.put = self._calls.put

    def run_one(self) -> None:
        self._calls.get(timeout=60.0)()


@contextmanager
def journal_in(folder: Path) -> Iterator[tuple[Journal, Calls]]:
    calls = Calls()
    journal = Journal(folder / "journal.db", calls.put)
    try:
        yield journal, calls
    finally:
        journal.close(60.0)


def accepted(number: int, durable: bool = True) -> JournaledJob:
    ref: InputRef = FileRef("/data/in.npy") if durable else ArenaRef(1, (1, 64, 64), "complex64")
    params = {"batch": "1x64x64", "dtype": "complex64", "direction": "forward"}
    spec = JobSpec(workload="fft", params=params, inputs={"x": ref})
    return JournaledJob(
        number=number,
        spec=spec,
        client_id=f"client-{number}" if durable else "",
        submitted_at=time.time(),
        durable=durable,
    )


def whole(number: int) -> JournaledJob:
    """Return a volatile job that has ended."""
    report = JobReport(job=number, state="done", workload="fft", load=1, seconds=0.1)
    job = accepted(number, durable=False)
    return replace(job, state=Done(number, report), ended_at=time.time())


def fsync_seconds(folder: Path) -> float:
    """Median of writing 4 KiB and waiting until they are on disk, as an append to a WAL."""
    seconds = []
    with (folder / "plain").open("wb", buffering=0) as file:
        for _ in range(FSYNCS):
            begin = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def single_commit_seconds(folder: Path) -> float:
    """Median from `write` to `on_done` of one durable job at a time."""
    seconds = []
    with journal_in(folder) as (journal, calls):
        for number in range(1, FSYNCS + 1):
            record = accepted(number)
            begin = time.perf_counter()
            journal.write([record], _nothing)
            calls.run_one()
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def bare_rate(folder: Path, jobs: Sequence[Record]) -> float:
    """Jobs per second: the same rows with SQLite alone, OUTSTANDING in each commit."""
    connection = database.open_database(folder / "bare.db", FORMAT)
    connection.execute("PRAGMA wal_autocheckpoint = 1000")
    rows = [journal_records.statement(job) for job in jobs]
    begin = time.perf_counter()
    for first in range(0, len(rows), OUTSTANDING):
        with database.transaction(connection):
            for sql, values in rows[first : first + OUTSTANDING]:
                connection.execute(sql, values)
    seconds = time.perf_counter() - begin
    connection.close()
    return len(jobs) / seconds


def journal_rate(folder: Path, jobs: Sequence[Record]) -> float:
    """Jobs per second through the journal, with OUTSTANDING waiting at any time."""
    with journal_in(folder) as (journal, calls):
        acknowledged = 0
        waiting = iter(jobs)

        def submit() -> None:
            record = next(waiting, None)
            if record is not None:
                journal.write([record], on_done)

        def on_done(error: HetschedError | None) -> None:
            nonlocal acknowledged
            assert error is None, error
            acknowledged += 1
            submit()

        begin = time.perf_counter()
        for _ in range(OUTSTANDING):
            submit()
        while acknowledged < len(jobs):
            calls.run_one()
        return len(jobs) / (time.perf_counter() - begin)


def volatile_seconds(folder: Path, jobs: int) -> float:
    """Median seconds that a volatile job costs the thread that writes its record."""
    with journal_in(folder) as (journal, calls):
        seconds = []
        for number in range(1, jobs + 1):
            record = whole(number)
            begin = time.perf_counter()
            journal.write((record,))
            seconds.append(time.perf_counter() - begin)
            if number % MAX_GATHERED == MAX_GATHERED - 1:  # not during a commit
                journal.query(HistoryFilter(limit=1), _nothing_read)
                calls.run_one()
    return statistics.median(seconds)


def restart_seconds(folder: Path, jobs: int) -> float:
    """Seconds to open and load a journal with many waiting jobs, after a crash."""
    with journal_in(folder) as (journal, calls):
        journal.write([accepted(number) for number in range(1, jobs + 1)], _nothing)
        calls.run_one()
    begin = time.perf_counter()
    with journal_in(folder) as (journal, _):
        assert len(journal.load().open_jobs) == jobs
        return time.perf_counter() - begin


def _nothing(error: HetschedError | None) -> None:
    assert error is None, error


def _nothing_read(rows: object, error: HetschedError | None) -> None:
    assert error is None, error


def measure(scale: Scale) -> Result:
    jobs = scale.of(500, 20_000, 100_000)
    records = [accepted(number) for number in range(1, jobs + 1)]
    result = Result("journal_rate", "Speed of the journal", ("what", "figure"))
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)

        def part(label: str) -> Path:
            gc.collect()
            (folder / label).mkdir(mode=0o700)
            return folder / label

        fsync = fsync_seconds(part("fsync"))
        single = single_commit_seconds(part("single"))
        bare = bare_rate(part("bare"), records)
        rate = journal_rate(part("group"), records)
        volatile = volatile_seconds(part("volatile"), jobs)
        restart = restart_seconds(part("restart"), scale.of(1000, RESTART_JOBS, RESTART_JOBS))
    figures = {
        "plain fsync, median, ms": fsync * 1e3,
        "one durable job, median, ms": single * 1e3,
        "group commit with SQLite alone, jobs per second": bare,
        "group commit, durable jobs per second": rate,
        "cost of a volatile job to the loop, us": volatile * 1e6,
        "journal of 10,000 waiting jobs opened and loaded after a crash, ms": restart * 1e3,
    }
    result.rows += [(what, f"{figure:,.3g}") for what, figure in figures.items()]
    result.data.append(figures)
    result.bars += [
        Bar("one durable job, ms", single * 1e3, 1.3 * fsync * 1e3 + 1.0, at_least=False),
        Bar(
            "durable jobs per second",
            rate,
            1500.0,
        ),
        Bar("opened and loaded, ms", restart * 1e3, 500.0, at_least=False),
        Bar(
            "cost of a volatile job to the loop, in 1e-6 seconds",
            volatile * 1e6,
            20.0,
            at_least=False,
        ),
    ]
    return result
