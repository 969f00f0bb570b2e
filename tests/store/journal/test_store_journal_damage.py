"""A journal that can't be read is set aside and said so; numbers never begin again."""

from __future__ import annotations

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


def empty(path: Path) -> None:
    path.write_bytes(b"")


def vanished(path: Path) -> None:
    path.unlink()


def everything_vanished(path: Path) -> None:
    path.unlink()
    log_of(path).unlink()


def log_vanished(path: Path) -> None:
    log_of(path).unlink()


def garbage(path: Path) -> None:
    path.write_bytes(b"no database at all " * 1000)
    log_of(path).unlink()


def garbage_in_the_log(path: Path) -> None:
    log_of(path).write_bytes(b"no log at all " * 1000)


def zeros_in_the_log(path: Path) -> None:
    log_of(path).write_bytes(bytes(log_of(path).stat().st_size))


def dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


HARMS = [
    empty,
    vanished,
    everything_vanished,
    log_vanished,
    garbage,
    garbage_in_the_log,
    zeros_in_the_log,
    dangling_link,
]


@pytest.mark.parametrize("harm", HARMS)
def test_a_loss_is_said_and_numbers_go_on(
    crashed: Path, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    harm(crashed)

    contents = contents_of(crashed)

    assert contents.next_number > JOBS
    (line,) = (r.getMessage() for r in caplog.records if r.levelno == logging.ERROR)
    assert "numbers go on" in line or "begins with number" in line
    assert contents_of(crashed).next_number >= contents.next_number
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1


@pytest.mark.parametrize("harm", [garbage, garbage_in_the_log, dangling_link])
def test_what_cannot_be_read_is_kept_under_another_name(
    crashed: Path, harm: Callable[[Path], None]
) -> None:
    harm(crashed)
    damaged = log_of(crashed) if harm is garbage_in_the_log else crashed
    before = damaged.readlink() if damaged.is_symlink() else damaged.read_bytes()

    contents_of(crashed)

    suffix = "-wal" if harm is garbage_in_the_log else ""
    aside = Path(f"{crashed}.unreadable-1{suffix}")
    assert (aside.readlink() if aside.is_symlink() else aside.read_bytes()) == before


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
    connection = apsw.Connection(str(crashed))
    connection.execute("UPDATE job SET spec = x'c1' WHERE number = 2")
    connection.close()

    contents = contents_of(crashed)

    assert [job.number for job in contents.open_jobs] == [1, 3, 4, 5]
    assert "job 2 in the journal can't be read" in caplog.text
