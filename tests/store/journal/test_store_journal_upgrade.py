"""Files of other versions: old ones always load, newer and damaged ones are refused untouched."""

from __future__ import annotations

import dataclasses
import itertools
import random
import shutil
from pathlib import Path

import apsw
import pytest

from hetsched.errors import ConfigError
from hetsched.job import Done, Failed, FileRef
from hetsched.store.database import DatabaseFormat
from hetsched.store.journal.journal_db import FORMAT
from hetsched.store.journal.journal_file import JournalFile
from hetsched.store.journal.pending_writes import Write
from hetsched.store.journal.records import HistoryBounds, JournalContents
from robustness.disk.memory_disk import MemoryDisk, PowerLost
from robustness.disk.memory_vfs import mounted
from tests.store.journal.journal_jobs import accepted, contents_of, done

CORPUS = sorted((Path(__file__).parents[2] / "data").glob("journal-v*.db"))
FOREVER = HistoryBounds(seconds=1e12)
NEXT = dataclasses.replace(
    FORMAT,
    version=FORMAT.version + 1,
    migrations={
        **FORMAT.migrations,
        FORMAT.version: """ALTER TABLE job ADD COLUMN extra INTEGER NOT NULL DEFAULT 7;
            CREATE TABLE more(number INTEGER PRIMARY KEY) STRICT;
            INSERT INTO more SELECT number FROM job;
            UPDATE job SET label = 'migrated'""",
    },
)
"""A next version, to cut the power during its migration."""


def load(path: Path) -> JournalContents:
    file = JournalFile(path, FOREVER, 2e9)
    contents = file.load(100)
    file.close(None)
    return contents


def test_there_is_a_file_of_every_version() -> None:
    assert [path.name for path in CORPUS] == [
        f"journal-v{version}.db" for version in range(1, FORMAT.version + 1)
    ]


@pytest.mark.parametrize("old", CORPUS, ids=lambda path: path.name)
def test_a_file_of_every_version_loads(old: Path, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    shutil.copy(old, path)

    contents = load(path)

    open_jobs = {job.number: job for job in contents.open_jobs}
    ended = {job.number: job for job in contents.ended_jobs}
    assert contents.next_number == 8
    assert {number: job.stage for number, job in open_jobs.items()} == {
        1: "queued",
        2: "running",
        3: "publishing",
    }
    assert {number: job.stage for number, job in ended.items()} == {
        4: "done",
        5: "failed",
        6: "cancelled",
    }
    assert contents.client_ids == {"night-run": 1}
    job = open_jobs[1]
    assert (job.client_id, job.submitted_at, job.durable) == ("night-run", 1.7e9 + 1, True)
    assert (job.priority, job.held) == (5, True)
    assert (job.spec.workload, job.spec.params) == ("fft", {"batch": "4x64x64"})
    assert job.spec.inputs == {"x": FileRef("/data/in.npy")}
    assert [(stamp.path, stamp.size) for stamp in job.inputs] == [("/data/in.npy", 12)]
    assert (open_jobs[2].attempts, open_jobs[2].started_at) == (2, 1.7e9 + 22)
    assert open_jobs[2].failures == (0 if old.stem == "journal-v1" else 1)
    assert [output.target for output in open_jobs[3].outputs] == [b"/data/out\xff.npy"]
    assert (ended[4].ended_at, ended[4].durable) == (1.7e9 + 40, False)
    assert isinstance(ended[4].state, Done) and ended[4].state.report.seconds == 0.25
    assert isinstance(ended[5].state, Failed) and ended[5].state.error.code == 1


def test_a_newer_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    contents_of(path)
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA user_version = {FORMAT.version + 1}")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(ConfigError, match="newer hetsched") as caught:
        contents_of(path)

    assert caught.value.code == 78
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"not a database" * 100, bytes(range(256)) * 40])
def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match="damaged, or not a journal") as caught:
        contents_of(path)

    assert f"mv {path} " in str(caught.value) and "\n" not in str(caught.value)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs(x)")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(ConfigError, match="not a journal"):
        contents_of(path)

    assert path.read_bytes() == before


def test_a_damaged_page_is_noticed_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    file = JournalFile(path, FOREVER, 2e9)
    file.commit([Write((accepted(number),)) for number in range(1, 200)])
    file.close(None)
    raw = bytearray(path.read_bytes())
    raw[5 * 4096 : 6 * 4096] = b"\x55" * 4096
    path.write_bytes(raw)

    with pytest.raises(ConfigError, match="damaged"):
        contents_of(path)

    assert path.read_bytes() == bytes(raw)


def disk_with_jobs() -> MemoryDisk:
    disk = MemoryDisk()
    with mounted(disk) as vfs:
        file = JournalFile(Path("/j"), FOREVER, 2e9, vfs)
        file.commit([Write((accepted(number),)) for number in range(1, 30)])
        file.commit([Write((done(number),)) for number in range(1, 15)])
        file.close(29)
    return disk


def open_on(disk: MemoryDisk, file_format: DatabaseFormat) -> list[str]:
    """Open, load and close; return the labels of all jobs."""
    with mounted(disk) as vfs:
        file = JournalFile(Path("/j"), FOREVER, 2e9, vfs, file_format)
        contents = file.load(100)
        assert (len(contents.open_jobs), len(contents.ended_jobs)) == (15, 14)
        rows = file.connection.execute("SELECT label FROM job").fetchall()
        file.close(None)
    return [label for (label,) in rows]


def test_a_power_cut_during_a_migration_leaves_the_old_file_or_the_new_one() -> None:
    for operations in itertools.count(1):
        disk = disk_with_jobs()
        begin = disk.operations
        last = begin + operations
        disk.fault = lambda kind: PowerLost() if disk.operations > last else None  # noqa: B023
        try:
            open_on(disk, NEXT)
        except ConfigError:
            assert disk.is_off
        was_cut = disk.is_off

        labels = open_on(disk.after_cut(random.Random(operations)), NEXT)

        assert labels == ["migrated"] * 29
        if not was_cut:
            assert operations > 20
            return
