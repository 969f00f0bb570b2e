"""The journal's pure parts: what waits for the next commit, job numbers, rows in groups."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.config import JournalConfig, parse
from hetsched.errors import ConfigError
from hetsched.job import DeviceReport, Done, JobReport
from hetsched.store import database
from hetsched.store.journal.encoding import MAX_STATE_BYTES, decode_state, encode_state
from hetsched.store.journal.job_numbers import BLOCK, JobNumbers
from hetsched.store.journal.journal import history_bounds
from hetsched.store.journal.journal_db import FORMAT, statements
from hetsched.store.journal.pending_writes import (
    ACCEPTANCE_SECONDS,
    GATHER_SECONDS,
    HISTORY_SECONDS,
    MAX_UNWRITTEN_WHOLE_JOBS,
    MAX_WHOLE_JOBS,
    PendingWrites,
    Write,
)
from hetsched.store.journal.records import (
    HistoryBounds,
    JobAccepted,
    JobChanged,
    JobPublishing,
    JobsForgotten,
    JobStarted,
    NumbersReserved,
    Record,
    WholeJob,
)
from hetsched.store.journal.row_groups import grouped
from tests.store.journal.journal_jobs import accepted, done


def add(pending: PendingWrites, record: Record, now: float) -> None:
    pending.add(Write((record,)), False, now)


def test_nothing_is_due_without_writes() -> None:
    assert PendingWrites().due() == math.inf


def test_an_urgent_write_is_due_at_once_and_another_soon() -> None:
    pending = PendingWrites()

    pending.add(Write((accepted(1),)), False, 10.0)
    gathered = pending.due()
    pending.add(Write((accepted(2),)), True, 10.01)

    assert (gathered, pending.due()) == (10.0 + GATHER_SECONDS, 10.01)
    assert [write.records[0].number for write in pending.take()] == [1, 2]  # type: ignore[union-attr]
    assert pending.due() == math.inf


def test_a_volatile_job_that_ends_in_time_needs_no_commit_of_its_own() -> None:
    pending = PendingWrites()

    add(pending, accepted(1, durable=False), 10.0)
    waiting = pending.due()
    add(pending, JobStarted(1, 1), 10.001)
    add(pending, done(1), 10.002)

    assert (waiting, pending.due()) == (10.0 + ACCEPTANCE_SECONDS, 10.002 + HISTORY_SECONDS)
    (write,) = pending.take()
    (whole,) = write.records
    assert isinstance(whole, WholeJob) and whole.started == JobStarted(1, 1)


def test_a_volatile_job_that_goes_on_is_written_soon() -> None:
    pending = PendingWrites()

    add(pending, accepted(1, durable=False), 10.0)
    add(pending, accepted(2, durable=False), 10.01)
    add(pending, done(1), 10.02)
    add(pending, JobStarted(2, 1), 10.03)

    assert pending.due() == 10.01 + ACCEPTANCE_SECONDS
    assert [len(write.records) for write in pending.take()] == [1, 2]


def test_a_commit_leaves_volatile_jobs_that_may_end_before_their_own() -> None:
    pending = PendingWrites()
    add(pending, done(1), 10.0)  # whose acceptance is on disk
    add(pending, accepted(2, durable=False), 10.01)

    (write,) = pending.take(10.05)
    add(pending, done(2), 10.06)

    assert write.records == (done(1),)
    assert pending.due() == 10.06 + HISTORY_SECONDS
    assert isinstance(pending.take()[0].records[0], WholeJob)


def test_a_commit_takes_volatile_jobs_that_are_due_or_that_others_may_depend_on() -> None:
    pending = PendingWrites()

    add(pending, accepted(1, durable=False), 10.0)
    add(pending, accepted(2, durable=False), 10.1)
    due = pending.take(10.0 + ACCEPTANCE_SECONDS)
    add(pending, accepted(3), 10.2)
    awaited = pending.take(10.2)

    assert [write.records[0].number for write in due] == [1]  # type: ignore[union-attr]
    assert [write.records[0].number for write in awaited] == [2, 3]  # type: ignore[union-attr]


def test_a_write_that_only_waits_for_others_waits_for_volatile_jobs_too() -> None:
    pending = PendingWrites()
    add(pending, accepted(1, durable=False), 10.0)
    pending.add(Write((), lambda error: None), urgent=True, now=10.01)

    assert [len(write.records) for write in pending.take(10.01)] == [1, 0]


def test_a_change_of_a_volatile_job_is_written_after_its_acceptance() -> None:
    pending = PendingWrites()
    add(pending, accepted(1, durable=False), 10.0)
    add(pending, JobChanged(1, held=True), 10.01)

    assert [type(write.records[0]) for write in pending.take(10.06)] == [JobAccepted, JobChanged]


def test_a_thread_that_waits_for_a_commit_is_not_woken_for_each_volatile_job() -> None:
    pending = PendingWrites()
    add(pending, accepted(1, durable=False), 10.0)
    add(pending, done(1), 10.01)
    wakes_at = pending.due()

    add(pending, accepted(2, durable=False), wakes_at - 1.5 * ACCEPTANCE_SECONDS)
    assert pending.due() < wakes_at <= pending.latest_due()
    add(pending, JobStarted(7, 1), wakes_at - 1.0)
    assert pending.due() == pending.latest_due() < wakes_at


def test_many_volatile_jobs_that_have_ended_are_written_at_once() -> None:
    pending = PendingWrites()

    for number in range(1, MAX_WHOLE_JOBS + 1):
        add(pending, accepted(number, durable=False), 10.0)
        add(pending, done(number), 10.0)

    assert pending.due() == 10.0


def test_history_waits_in_bounded_memory_while_nothing_can_be_written() -> None:
    pending = PendingWrites()
    written = 0

    for number in range(1, 3 * MAX_UNWRITTEN_WHOLE_JOBS):
        add(pending, accepted(number, durable=False), 10.0)
        add(pending, done(number), 10.0)
        if number % 100 == 0:
            taken = pending.take()
            written = max(written, len(taken))
            pending.add_failed(taken, 11.0)

    assert written <= MAX_UNWRITTEN_WHOLE_JOBS + 100
    assert pending.dropped > 0


def test_failed_writes_come_first_at_the_next_attempt() -> None:
    pending = PendingWrites()
    pending.add(Write((accepted(2),)), True, 10.0)

    pending.add_failed([Write((done(1),))], 11.0)

    assert [write.records[0].number for write in pending.take()] == [1, 2]  # type: ignore[union-attr]


def test_numbers_are_given_up_to_the_last_reserved_one() -> None:
    numbers = JobNumbers(5, 6)

    assert [numbers.take(), numbers.take()] == [5, 6]
    assert numbers.is_used_up
    assert numbers.last == 6


def test_a_block_is_reserved_once_half_of_the_present_one_is_used() -> None:
    numbers = JobNumbers(1, BLOCK)
    assert numbers.reservation() is None
    for _ in range(BLOCK // 2 + 1):
        numbers.take()

    record = numbers.reservation()

    assert record == NumbersReserved(2 * BLOCK)
    assert numbers.reservation() is None  # until it is known what became of it
    numbers.on_reserved(record, OSError())
    assert numbers.reservation() == record
    numbers.on_reserved(record, None)
    assert numbers.reservation() is None


def test_a_large_final_state_is_stored_without_its_chunks() -> None:
    device = DeviceReport(
        device="cpu0", kind="cpu", variant="v", share=1, seconds=1.0, chunks=(1,) * 100_000
    )
    report = JobReport(job=1, state="done", workload="fft", load=1, devices=(device,))

    raw = encode_state(Done(1, report))

    assert len(raw) < MAX_STATE_BYTES
    assert decode_state(raw).report.devices[0].chunks == ()


RECORDS = st.one_of(
    st.builds(accepted, st.integers(1, 4)),
    st.builds(JobStarted, st.integers(1, 4), st.integers(1, 3), st.just(1.0)),
    st.builds(JobChanged, st.integers(1, 4), st.integers(-20, 19), st.booleans()),
    st.builds(JobChanged, st.integers(1, 4), st.none(), st.booleans()),
    st.builds(JobPublishing, st.integers(1, 4), st.just(())),
    st.builds(done, st.integers(1, 4)),
    st.builds(lambda number: JobsForgotten((number,)), st.integers(1, 4)),
    st.builds(lambda n: WholeJob(accepted(n), None, done(n)), st.integers(1, 4)),
    st.builds(NumbersReserved, st.integers(1, 4)),
)


def table(records: list[Record], in_groups: bool) -> list[object]:
    connection = database.open_database(None, FORMAT)
    every = [statement for record in records for statement in statements(record)]
    for group in [every] if in_groups else [[statement] for statement in every]:
        for sql, bindings in grouped(group):
            connection.execute(sql, bindings)
    rows = connection.execute("SELECT * FROM job ORDER BY number").fetchall()
    rows += connection.execute("SELECT reserved FROM journal").fetchall()
    connection.close()
    return rows


@given(st.lists(RECORDS, max_size=12))
def test_rows_in_groups_have_the_same_effect_as_in_order(records: list[Record]) -> None:
    assert table(records, in_groups=True) == table(records, in_groups=False)


def test_many_rows_need_few_statements() -> None:
    records = [accepted(number) for number in range(1, 258)]

    executed = list(grouped([row for record in records for row in statements(record)]))

    assert len(executed) == 5


def test_the_configuration_bounds_history() -> None:
    bounds = history_bounds(JournalConfig(keep="2h", keep_jobs=7, limit="1MiB"))

    assert bounds == HistoryBounds(jobs=7, seconds=7200.0, nbytes=1 << 20)
    assert history_bounds(JournalConfig()) == HistoryBounds()


@pytest.mark.parametrize("line", ['keep = "soon"', "keep_jobs = -1", 'limit = "much"'])
def test_a_wrong_bound_is_an_error_that_names_its_key(line: str) -> None:
    with pytest.raises(ConfigError, match=f"journal.{line.split(maxsplit=1)[0]}") as caught:
        parse(f"[journal]\n{line}", "test.toml")

    assert caught.value.code == 78
