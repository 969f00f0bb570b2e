from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from hetsched.errors import ConfigError
from tests.store.journal.journal_jobs import (
    PATIENCE,
    CallQueue,
    accepted,
    contents_of,
    crashed_copy,
    open_journal,
    write_and_wait,
)

JOBS = 5


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A journal with held jobs, as a kill leaves it: all of them are in its log."""
    calls = CallQueue()
    journal = open_journal(tmp_path / "state" / "journal.db", calls)
    numbers = [journal.numbers.take() for _ in range(JOBS)]
    write_and_wait(journal, calls, [accepted(number) for number in numbers])
    path = crashed_copy(tmp_path / "state" / "journal.db")
    journal.close(PATIENCE)
    return path


def log_of(path: Path) -> Path:
    return path.with_name("journal.db-wal")


def execute(path: Path, sql: str) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute(sql)


def without_log(harm: Callable[[Path], object]) -> Callable[[Path], None]:
    def both(path: Path) -> None:
        harm(path)
        log_of(path).unlink(missing_ok=True)

    return both


def linked_nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


GARBAGE = b"no database at all " * 1000
HARMS: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "vanished": Path.unlink,
    "everything vanished": without_log(Path.unlink),
    "log vanished": without_log(lambda path: None),
    "garbage": without_log(lambda path: path.write_bytes(GARBAGE)),
    "garbage in the log": lambda path: log_of(path).write_bytes(GARBAGE),
    "zeros in the log": lambda path: log_of(path).write_bytes(bytes(log_of(path).stat().st_size)),
    "dangling link": linked_nowhere,
    "another record": lambda path: path.with_suffix(".db.numbers").write_text(f"{2**63 - 1}\n"),
    "no last number": lambda path: execute(path, "DELETE FROM journal"),
    "an impossible number": lambda path: execute(
        path, f"UPDATE journal SET reserved = {2**63 - 1}"
    ),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_loss_is_said_and_numbers_go_on(
    crashed: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    HARMS[harm](crashed)

    contents = contents_of(crashed)

    assert contents.next_number > JOBS
    (line,) = (r.getMessage() for r in caplog.records if r.levelno == logging.ERROR)
    words = ("numbers go on", "begins with number", "journal.db.numbers: can't be read")
    assert any(each in line for each in words)
    assert contents_of(crashed).next_number >= contents.next_number
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1


def test_a_crash_alone_loses_and_says_nothing(
    crashed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    contents = contents_of(crashed)

    assert [job.number for job in contents.open_jobs] == list(range(1, JOBS + 1))
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("sql", ["PRAGMA user_version = 9", "PRAGMA application_id = 7"])
def test_a_refused_journal_is_not_changed(crashed: Path, sql: str) -> None:
    connection = apsw.Connection(str(crashed))
    connection.execute(sql)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close()
    before = {path.name: path.read_bytes() for path in crashed.parent.iterdir()}

    with pytest.raises(ConfigError, match=r"newer hetsched|another program") as caught:
        open_journal(crashed)

    assert caught.value.code == 78
    assert {path.name: path.read_bytes() for path in crashed.parent.iterdir()} == before


def test_one_job_that_cannot_be_read_costs_no_other(
    crashed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    execute(crashed, "UPDATE job SET spec = x'c1' WHERE number = 2")

    contents = contents_of(crashed)

    assert [job.number for job in contents.open_jobs] == [1, 3, 4, 5]
    assert "job 2 in the journal can't be read" in caplog.text
