"""The journal's thread while the disk is full, fails or doesn't respond."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from small_disk import mounted_disk

from hetsched.daemon.metrics import journal_metrics
from hetsched.errors import CantCreate, InternalError, IOFailure
from hetsched.job import JobSpec
from hetsched.store import journal as journal_module
from hetsched.store.journal import Journal
from hetsched.store.journal_file import JournalFile
from hetsched.store.journal_records import HistoryBounds, HistoryFilter, JobAccepted, JournaledJob
from robustness.disk.memory_disk import MemoryDisk
from robustness.disk.memory_vfs import disk_full, io_error, mounted
from tests.store.journal.journal_jobs import (
    PATIENCE,
    START,
    CallQueue,
    accepted,
    contents_of,
    done,
    open_journal,
    write_and_wait,
)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def vfs(disk: MemoryDisk) -> Iterator[str]:
    with mounted(disk) as name:
        yield name


@pytest.fixture
def calls() -> CallQueue:
    return CallQueue()


def open_in_memory(vfs: str, calls: CallQueue) -> Journal:
    return Journal.open(Path("/journal.db"), calls.call_soon_threadsafe, vfs=vfs)


def numbers_in(vfs: str) -> list[int]:
    file = JournalFile(Path("/journal.db"), HistoryBounds(), START, vfs)
    contents = file.load(100)
    file.close(None)
    return [job.number for job in (*contents.open_jobs, *contents.ended_jobs)]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [(lambda kind: disk_full(), CantCreate), (io_error, IOFailure)],
    ids=["full", "EIO"],
)
def test_a_fault_is_reported_and_later_writes_work(
    disk: MemoryDisk,
    vfs: str,
    calls: CallQueue,
    fault: Callable[[str], Exception],
    expected: type,
) -> None:
    journal = open_in_memory(vfs, calls)
    assert write_and_wait(journal, calls, [accepted(1)]) is None

    disk.fault = fault
    outcomes = [write_and_wait(journal, calls, [accepted(number)]) for number in (2, 3)]
    failure = journal.failure
    disk.fault = lambda kind: None

    assert write_and_wait(journal, calls, [accepted(4)]) is None
    assert [type(outcome) for outcome in outcomes] == [expected, expected]
    assert isinstance(failure, expected) and journal.failure is None
    assert all("/journal.db: " in str(outcome) for outcome in outcomes)
    assert journal.close(PATIENCE)
    assert numbers_in(vfs) == [1, 4]


def test_what_nobody_waits_for_is_written_when_that_is_possible_again(
    disk: MemoryDisk, vfs: str, calls: CallQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "RETRY_SECONDS", 0.001)
    journal = open_in_memory(vfs, calls)
    write_and_wait(journal, calls, [accepted(1)])
    failures = threading.Semaphore(0)

    def fault(kind: str) -> Exception:
        failures.release()
        return disk_full()

    disk.fault = fault
    journal.write([done(1)], urgent=True)
    for _ in range(3):
        assert failures.acquire(timeout=PATIENCE)
    disk.fault = lambda kind: None

    answers: list[list[JournaledJob] | None] = []
    while not answers or [job.stage for job in answers[-1] or ()] != ["done"]:
        journal.query(HistoryFilter(), lambda jobs, _: answers.append(jobs))
        count = len(answers) + 1
        calls.run_until(lambda: len(answers) >= count)  # noqa: B023
    assert journal.close(PATIENCE)


def test_a_record_that_cannot_be_encoded_spoils_no_other(vfs: str, calls: CallQueue) -> None:
    journal = open_in_memory(vfs, calls)
    outcomes: dict[int, BaseException | None] = {}
    strange = JobSpec(workload="fft", params={"x": object()})
    records = [accepted(1), JobAccepted(2, strange, "", START, True), accepted(3)]

    for record in records:
        journal.write(
            [record],
            lambda outcome, number=record.number: outcomes.update({number: outcome}),  # type: ignore[misc]
            urgent=True,
        )
    calls.run_until(lambda: len(outcomes) == 3)
    journal.close(PATIENCE)

    assert {number: type(outcome) for number, outcome in outcomes.items()} == {
        1: type(None),
        2: InternalError,
        3: type(None),
    }
    assert numbers_in(vfs) == [1, 3]


@dataclass
class HungDisk:
    """A disk whose next operation hangs until `released` is set."""

    hung: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def __call__(self, kind: str) -> None:
        self.hung.set()
        self.released.wait(PATIENCE)


def test_closing_does_not_wait_for_a_hung_disk(
    disk: MemoryDisk, vfs: str, calls: CallQueue
) -> None:
    journal = open_in_memory(vfs, calls)
    disk.fault = hang = HungDisk()
    journal.write([accepted(1)], urgent=True)
    assert hang.hung.wait(PATIENCE)

    assert not journal.close(0.01)

    hang.released.set()
    assert journal.close(PATIENCE)


def test_those_who_wait_for_a_hung_disk_are_answered_and_their_jobs_deleted(
    disk: MemoryDisk, vfs: str, calls: CallQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "RETRY_SECONDS", 0.0)
    journal = open_in_memory(vfs, calls)
    write_and_wait(journal, calls, [accepted(1)])
    disk.fault = hang = HungDisk()
    outcomes: list[BaseException | None] = []
    begin = time.monotonic()
    for number in (2, 3):
        journal.write([accepted(number)], outcomes.append, urgent=True)
        assert hang.hung.wait(PATIENCE)
    journal.write([done(1)])

    journal.expire(begin + 29.0)
    in_time = list(outcomes)
    journal.expire(time.monotonic() + 31.0)
    journal.expire(time.monotonic() + 32.0)
    hang.released.set()

    assert in_time == []
    assert [type(outcome) for outcome in outcomes] == [IOFailure, IOFailure]
    assert "hasn't responded for 30 s" in str(outcomes[0])
    assert write_and_wait(journal, calls, [accepted(4)]) is None
    assert journal.close(PATIENCE)
    assert sorted(numbers_in(vfs)) == [1, 4]


def test_a_daemon_may_stop_during_a_commit(disk: MemoryDisk, vfs: str, calls: CallQueue) -> None:
    """It then waits for all writes with one that has no records."""
    journal = open_in_memory(vfs, calls)
    disk.fault = hang = HungDisk()
    outcomes: list[BaseException | None] = []
    journal.write([accepted(1)], outcomes.append, urgent=True)
    assert hang.hung.wait(PATIENCE)

    journal.write((), outcomes.append, urgent=True)
    hang.released.set()
    calls.run_until(lambda: len(outcomes) == 2)

    assert outcomes == [None, None]
    assert journal.close(PATIENCE)


def test_while_the_disk_hangs_new_jobs_are_refused_at_once(
    disk: MemoryDisk, vfs: str, calls: CallQueue
) -> None:
    path = Path("/journal.db")
    journal = Journal.open(path, calls.call_soon_threadsafe, vfs=vfs, deadline=0.0)
    disk.fault = hang = HungDisk()
    journal.write([accepted(1)], urgent=True)
    assert hang.hung.wait(PATIENCE)
    outcomes: list[BaseException | None] = []

    journal.write([accepted(2)], outcomes.append, urgent=True)
    calls.run_until(lambda: bool(outcomes))

    assert [type(outcome) for outcome in outcomes] == [IOFailure]
    assert isinstance(journal.failure, IOFailure)
    hang.released.set()
    assert journal.close(PATIENCE)


def test_a_callback_that_raises_does_not_stop_the_others(vfs: str, calls: CallQueue) -> None:
    journal = open_in_memory(vfs, calls)
    outcomes: list[BaseException | None] = []

    def broken(outcome: BaseException | None) -> None:
        raise RuntimeError("a bug")

    journal.write([accepted(1)], broken, urgent=True)
    journal.write([accepted(2)], outcomes.append, urgent=True)
    calls.run_until(lambda: bool(outcomes))

    assert outcomes == [None]
    assert journal.close(PATIENCE)


def _fill_up(path: Path) -> int:
    """In a process with a limit on the size of files: write until that fails, then again."""
    calls = CallQueue()
    journal = open_journal(path, calls)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit = 1 << 18
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    number, outcome = 0, None
    while outcome is None:
        number += 1
        outcome = write_and_wait(journal, calls, [accepted(number)])
    assert isinstance(outcome, CantCreate), outcome
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert write_and_wait(journal, calls, [accepted(number + 1)]) is None
    journal.close(PATIENCE)
    return number


def test_a_limit_on_the_size_of_files_counts_as_a_full_disk(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            (tmp_path / "refused").write_text(str(_fill_up(tmp_path / "journal.db")))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    refused = int((tmp_path / "refused").read_text())
    numbers = [job.number for job in contents_of(tmp_path / "journal.db").open_jobs]
    assert numbers == [number for number in range(1, refused + 2) if number != refused]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "small", 2) as folder:
        yield folder


@pytest.mark.root
def test_on_a_full_disk_jobs_are_refused_and_readable_until_there_is_room(
    small_disk: Path, calls: CallQueue
) -> None:
    journal = open_journal(small_disk / "journal.db", calls)
    assert write_and_wait(journal, calls, [accepted(1)]) is None
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))

    number, outcome = 1, None
    while outcome is None:
        number += 1
        outcome = write_and_wait(journal, calls, [accepted(number)])
    answers: list[list[JournaledJob] | None] = []
    journal.query(HistoryFilter(numbers=(1, number)), lambda jobs, _: answers.append(jobs))
    calls.run_until(lambda: bool(answers))
    (small_disk / "filler").unlink()

    assert isinstance(outcome, CantCreate)
    assert [job.number for job in answers[0] or ()] == [1]
    assert write_and_wait(journal, calls, [accepted(number + 1)]) is None
    assert journal.close(PATIENCE)
    stored = [job.number for job in contents_of(small_disk / "journal.db").open_jobs]
    assert stored == [*range(1, number), number + 1]


def test_commits_and_failures_are_counted(disk: MemoryDisk, vfs: str, calls: CallQueue) -> None:
    journal = open_in_memory(vfs, calls)

    write_and_wait(journal, calls, [accepted(1)])
    disk.fault = io_error
    write_and_wait(journal, calls, [accepted(2)])
    statistics = journal.statistics

    assert (statistics.commits, statistics.failures) == (1, 1)
    assert 0 < statistics.longest <= statistics.seconds
    names = [metric.name for metric in journal_metrics(journal)]
    assert "hetsched_journal_last_commit_timestamp_seconds" in names
    disk.fault = lambda kind: None
    journal.close(PATIENCE)
