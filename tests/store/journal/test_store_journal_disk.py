from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from memory_disk import MemoryDisk, disk_full, io_error, mounted
from msgspec.structs import replace

from hetsched.config import JournalConfig, Seconds, Size
from hetsched.errors import CantCreate, InternalError, IOFailure
from hetsched.job import JobSpec
from hetsched.store import journal as journal_module
from hetsched.store import journal_records
from hetsched.store.journal import Journal, JournalFile
from hetsched.store.journal_records import HistoryFilter, JournaledJob, Write
from tests.store.journal.journal_jobs import (
    PATIENCE,
    START,
    CallQueue,
    accepted,
    done,
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
    return Journal(Path("/journal.db"), calls.call_soon_threadsafe, vfs=vfs)


def numbers_in(vfs: str) -> list[int]:
    file = JournalFile(Path("/journal.db"), JournalConfig(), START, vfs)
    contents = file.load(10_000)
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

    answers: list[list[JournaledJob]] = []
    while not answers or [job.stage for job in answers[-1]] != ["done"]:
        journal.query(HistoryFilter(), lambda jobs, _: answers.append(jobs))
        count = len(answers) + 1
        calls.run_until(lambda: len(answers) >= count)  # noqa: B023
    assert journal.close(PATIENCE)


def test_a_record_that_cannot_be_encoded_spoils_no_other(vfs: str, calls: CallQueue) -> None:
    journal = open_in_memory(vfs, calls)
    outcomes: dict[int, BaseException | None] = {}
    strange = JobSpec(workload="fft", params={"x": object()})
    records = [accepted(1), replace(accepted(2), spec=strange), accepted(3)]

    for record in records:
        journal.write(
            [record],
            lambda outcome, number=record.number: outcomes.update({number: outcome}),  # type: ignore[misc]
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
        journal.write([accepted(number)], outcomes.append)
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


def test_history_is_bounded_in_jobs_age_and_bytes(vfs: str) -> None:
    file = JournalFile(Path("/journal.db"), JournalConfig(keep_jobs=300), START, vfs)
    for number in range(1, 1001):
        file.commit([Write((accepted(number),)), Write((done(number),))])
        file.maintain(START)
    kept = [job.number for job in file.load(10_000).ended_jobs]
    assert len(kept) < 600 and kept[-1] == 1000
    file.close(1000)

    assert kept_with(JournalConfig(keep=Seconds(100.0)), vfs) == list(range(900, 1001))
    last = kept_with(JournalConfig(limit=Size(6000)), vfs)
    assert 2 < len(last) < 6000 // journal_records.ROW_BYTES
    assert last == list(range(1001 - len(last), 1001))


def kept_with(bounds: JournalConfig, vfs: str) -> list[int]:
    file = JournalFile(Path("/journal.db"), bounds, START + 1000, vfs)
    kept = [job.number for job in file.load(10_000).ended_jobs]
    file.close(1000)
    return kept


def test_checkpoints_that_fail_are_rare_and_the_wal_stays_bounded(
    disk: MemoryDisk,
    vfs: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = JournalFile(Path("/journal.db"), JournalConfig(), START, vfs, checkpoint_pages=50)

    def fail() -> None:
        raise io_error("sync")

    # Only checkpoints sync the database's own file.
    monkeypatch.setattr(disk.files["/journal.db"], "sync", fail)
    number, outcome = 0, None
    while outcome is None:
        number += 1
        try:
            file.commit([Write((accepted(number),))])
        except IOFailure as error:
            outcome = error
        file.maintain(START)
    warnings = len(caplog.records)
    monkeypatch.undo()

    assert warnings < 15
    assert len(disk.files["/journal.db-wal"].content) < 70 << 20
    file.commit([Write((accepted(number),))])
    file.close(number)
    file = JournalFile(Path("/journal.db"), JournalConfig(), START, vfs)
    assert len(file.load(0).open_jobs) == number
    file.close(number)
