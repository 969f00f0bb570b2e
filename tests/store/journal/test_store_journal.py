from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from hetsched.errors import ConfigError
from hetsched.job import JobSpec
from hetsched.store.journal_records import (
    BLOCK,
    HistoryFilter,
    JobForgotten,
    JobUpdate,
    JournaledJob,
    NumbersReserved,
)
from hetsched.store.output_files import PreparedOutput
from tests.store.journal.journal_jobs import (
    PATIENCE,
    START,
    CallQueue,
    accepted,
    contents_of,
    crashed_copy,
    done,
    failed,
    open_journal,
    write_and_wait,
)

OUTPUT = PreparedOutput(b"/tmp/.a\xff.part", b"/tmp/a.npy", True, 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.db"


def test_each_record_changes_its_job(path: Path) -> None:
    calls = CallQueue()
    journal = open_journal(path, calls)
    write_and_wait(journal, calls, [accepted(number) for number in range(1, 8)])
    journal.write([JobUpdate(number=2, stage="running", starts=1, started_at=9.0)])
    journal.write([JobUpdate(number=3, starts=2)])
    journal.write([JobUpdate(number=3, stage="publishing", outputs=(OUTPUT,))])
    journal.write([JobUpdate(number=4, priority=7), JobUpdate(number=4, held=True)])
    journal.write([done(5)])
    journal.write([failed(6, 130)])
    write_and_wait(journal, calls, [JobForgotten(7)])
    journal.close(PATIENCE)

    contents = contents_of(path)
    jobs = {job.number: job for job in (*contents.open_jobs, *contents.ended_jobs)}
    assert [jobs[number].stage for number in sorted(jobs)] == [
        *("queued", "running", "publishing", "queued", "done", "cancelled")
    ]
    assert (jobs[2].starts, jobs[2].started_at) == (1, 9.0)
    assert (jobs[3].starts, jobs[3].outputs) == (2, (OUTPUT,))
    assert (jobs[4].priority, jobs[4].held) == (7, True)
    assert (jobs[5].state, jobs[5].ended_at) == (done(5).state, START + 5)


def test_numbers_that_may_have_been_given_are_skipped_after_a_crash(path: Path) -> None:
    calls = CallQueue()
    journal = open_journal(path, calls)
    reserved = journal.load().next_number - 1 + BLOCK
    write_and_wait(journal, calls, [NumbersReserved(reserved + 100)])
    crashed = crashed_copy(path)
    journal.close(PATIENCE)

    assert contents_of(crashed).next_number == reserved + 101


def test_a_second_daemon_is_refused(path: Path) -> None:
    journal = open_journal(path)

    with pytest.raises(ConfigError, match="in use by another daemon"):
        open_journal(path)

    journal.close(PATIENCE)


def test_a_query_returns_a_bounded_number_of_bytes(path: Path) -> None:
    calls = CallQueue()
    journal = open_journal(path, calls)
    large = JobSpec(workload="fft", params={"x": "y" * 1_000_000})
    records = [replace(accepted(number), spec=large) for number in range(1, 10)]
    write_and_wait(journal, calls, records)
    answers: list[list[JournaledJob]] = []

    journal.query(HistoryFilter(), lambda jobs, _: answers.append(jobs))
    journal.query(HistoryFilter(before=6), lambda jobs, _: answers.append(jobs))
    calls.run_until(lambda: len(answers) == 2)
    journal.close(PATIENCE)

    assert [[job.number for job in jobs] for jobs in answers] == [*([9, 8, 7, 6], [5, 4, 3, 2])]


def test_only_the_owner_can_read_the_journal(path: Path) -> None:
    calls = CallQueue()
    journal = open_journal(path, calls)
    write_and_wait(journal, calls, [accepted(1)])

    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}

    names = ("journal.db", "journal.db-wal", "journal.db.numbers")
    assert modes == dict.fromkeys(names, 0o600)
    journal.close(PATIENCE)
