"""What the journal keeps, and the sizes of its files, are bounded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched.errors import IOFailure
from hetsched.store import journal_records
from hetsched.store.journal_file import JournalFile
from hetsched.store.journal_records import HistoryBounds, Write
from robustness.disk.memory_disk import MemoryDisk
from robustness.disk.memory_vfs import io_error, mounted
from tests.store.journal.journal_jobs import START, accepted, done


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def vfs(disk: MemoryDisk) -> Iterator[str]:
    with mounted(disk) as name:
        yield name


def test_history_is_bounded_in_jobs_age_and_bytes(vfs: str) -> None:
    file = JournalFile(Path("/journal.db"), HistoryBounds(jobs=300), START, vfs)
    for number in range(1, 1001):
        file.commit([Write((accepted(number),)), Write((done(number),))])
        file.maintain(START)
    kept = [job.number for job in file.load(10_000).ended_jobs]
    assert len(kept) < 600 and kept[-1] == 1000
    file.close(1000)

    assert kept_with(HistoryBounds(seconds=100.0), vfs) == list(range(900, 1001))
    last = kept_with(HistoryBounds(nbytes=6000), vfs)
    assert 2 < len(last) < 6000 // journal_records.ROW_BYTES
    assert last == list(range(1001 - len(last), 1001))


def kept_with(bounds: HistoryBounds, vfs: str) -> list[int]:
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
    file = JournalFile(Path("/journal.db"), HistoryBounds(), START, vfs, checkpoint_pages=50)

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
    file = JournalFile(Path("/journal.db"), HistoryBounds(), START, vfs)
    assert len(file.load(0).open_jobs) == number
    file.close(number)
