"""``journal.db``: its tables, and what each record writes to them. No policy, no transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import apsw

from hetsched.errors import Cancelled
from hetsched.job import Done, Failed
from hetsched.store.database import DatabaseFormat
from hetsched.store.journal.encoding import NONE, encode, encode_state
from hetsched.store.journal.records import (
    HistoryBounds,
    JobAccepted,
    JobChanged,
    JobEnded,
    JobPublishing,
    JobsForgotten,
    JobStarted,
    NumbersReserved,
    Record,
    Stage,
    WholeJob,
)

_SCHEMA = """
CREATE TABLE job(
    number INTEGER PRIMARY KEY CHECK(number > 0),
    client_id TEXT,
    label TEXT NOT NULL,
    workload TEXT NOT NULL,
    stage TEXT NOT NULL
        CHECK(stage IN ('queued', 'running', 'publishing', 'done', 'failed', 'cancelled')),
    durable INTEGER NOT NULL CHECK(durable IN (0, 1)),
    held INTEGER NOT NULL CHECK(held IN (0, 1)),
    priority INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    submitted_at REAL NOT NULL,
    started_at REAL,
    ended_at REAL,
    spec BLOB NOT NULL,
    outputs BLOB NOT NULL,
    state BLOB,
    nbytes INTEGER NOT NULL,
    CHECK((ended_at IS NULL) = (stage IN ('queued', 'running', 'publishing'))),
    CHECK((ended_at IS NULL) = (state IS NULL))) STRICT;
CREATE UNIQUE INDEX job_by_client_id ON job(client_id) WHERE client_id IS NOT NULL;
CREATE INDEX job_open ON job(number) WHERE ended_at IS NULL;
CREATE INDEX job_ended ON job(ended_at, number, nbytes) WHERE ended_at IS NOT NULL;
CREATE TABLE journal(
    id INTEGER PRIMARY KEY CHECK(id = 1),
    reserved INTEGER NOT NULL,
    closed_at_number INTEGER,
    token TEXT NOT NULL) STRICT;
INSERT INTO journal VALUES (1, 0, 0, lower(hex(randomblob(6))));
"""
"""`journal.closed_at_number`: the last number given out, if the last daemon closed the file in
order; NULL while a daemon runs, and after a crash. `job.nbytes`: of all its columns, roughly."""

WAL_LIMIT = 4 << 20
"""Bytes to which the WAL is cut after a checkpoint."""

FORMAT = DatabaseFormat(
    application_id=0x68736A6C,
    version=1,
    schema=_SCHEMA,
    # The timeout is for a daemon that is just ending.
    # EXCLUSIVE before the first read: then the WAL needs no shared memory, which network file
    # systems lack. Checkpoints are run by `JournalFile`, not within a commit.
    first_pragmas="PRAGMA busy_timeout = 500; PRAGMA locking_mode = EXCLUSIVE",
    # Not in an existing file, where it would write.
    creation_pragmas="PRAGMA auto_vacuum = INCREMENTAL",
    pragmas=f"""PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
        PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = {WAL_LIMIT};
        PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY""",
)


_ROW_BYTES = 200
"""What a row takes besides its blobs. An estimate."""

_COLUMNS = """number, client_id, label, workload, stage, durable, held, priority, submitted_at,
    spec, outputs, nbytes, attempts, started_at, ended_at, state"""


class Kind(NamedTuple):
    """A statement for any number of rows: `before`, "(?, ?), (?, ?)", `after`.

    `rank`: the order of statements about the same job; see `row_groups.py`.
    """

    rank: int
    columns: int
    before: str
    after: str

    def sql(self, rows: int) -> str:
        row = f"({', '.join('?' * self.columns)})"
        return f"{self.before} {', '.join([row] * rows)} {self.after}"


class Statement(NamedTuple):
    """One row of a statement; its first value is the job's number."""

    kind: Kind
    row: tuple[Any, ...]


def _insert(rank: int, conflict: str) -> Kind:
    before = f"INSERT INTO job({_COLUMNS}) VALUES"
    # A record may be written again after a commit whose outcome was unknown.
    return Kind(rank, 16, before, f"ON CONFLICT(number) DO {conflict}")


def _update(rank: int, columns: str, assignments: str) -> Kind:
    """Return an update of open jobs; the first of `columns` is the number."""
    after = f""") UPDATE job SET {assignments} FROM new
        WHERE job.number = new.number AND job.ended_at IS NULL"""
    return Kind(rank, columns.count(",") + 1, f"WITH new({columns}) AS (VALUES", after)


_ACCEPT = _insert(0, "NOTHING")
_ACCEPT_WHOLE = _insert(
    1,
    """UPDATE SET stage = excluded.stage, nbytes = excluded.nbytes, attempts = excluded.attempts,
        started_at = excluded.started_at, ended_at = excluded.ended_at, state = excluded.state""",
)
_CHANGE = _update(
    2,
    "number, priority, held",
    "priority = coalesce(new.priority, job.priority), held = coalesce(new.held, job.held)",
)
_START = _update(
    3,
    "number, attempt, at, failures",
    """stage = 'running', attempts = new.attempt, started_at = new.at,
        failures = new.failures""",
)
_PUBLISH = _update(4, "number, outputs", "stage = 'publishing', outputs = new.outputs")
_END = _update(
    5,
    "number, stage, state, at, outputs",
    """stage = new.stage, state = new.state, ended_at = new.at, outputs = new.outputs,
        nbytes = nbytes + length(new.state)""",
)
_FORGET = Kind(6, 1, "DELETE FROM job WHERE number IN (VALUES", ")")
_RESERVE = Kind(
    7,
    1,
    "UPDATE journal SET reserved = max(reserved, (SELECT max(column1) FROM (VALUES",
    ")))",
)


def statements(record: Record) -> list[Statement]:
    """Return what `record` writes. Raises what msgspec raises for values that it can't encode."""
    return _WRITE[type(record)](record)


def _insert_bindings(
    record: JobAccepted, stage: Stage, started: JobStarted | None, ended: JobEnded | None
) -> tuple[Any, ...]:
    spec = encode(record.spec)
    state = None if ended is None else encode_state(ended.state)
    return (
        record.number,
        record.client_id or None,
        record.spec.label,
        record.spec.workload,
        stage,
        int(record.durable),
        int(record.held or record.spec.hold),
        record.spec.priority,
        record.submitted_at,
        spec,
        NONE,
        _ROW_BYTES + len(spec) + len(state or b""),
        0 if started is None else started.attempt,
        None if started is None else started.at,
        None if ended is None else ended.at,
        state,
    )


def _accept(record: JobAccepted) -> list[Statement]:
    return [Statement(_ACCEPT, _insert_bindings(record, "queued", None, None))]


def _accept_whole(record: WholeJob) -> list[Statement]:
    stage = ended_stage(record.ended.state)
    bindings = _insert_bindings(record.accepted, stage, record.started, record.ended)
    return [Statement(_ACCEPT_WHOLE, bindings)]


def _start(record: JobStarted) -> list[Statement]:
    return [Statement(_START, (record.number, record.attempt, record.at, record.failures))]


def _end(record: JobEnded) -> list[Statement]:
    stage, state = ended_stage(record.state), encode_state(record.state)
    return [Statement(_END, (record.number, stage, state, record.at, NONE))]


def _change(record: JobChanged) -> list[Statement]:
    held = None if record.held is None else int(record.held)
    return [Statement(_CHANGE, (record.number, record.priority, held))]


def ended_stage(state: Done | Failed) -> Stage:
    """Return the stage that a final state stands for."""
    if isinstance(state, Done):
        return "done"
    return "cancelled" if state.error.code == Cancelled.code else "failed"


_WRITE: dict[type, Callable[[Any], list[Statement]]] = {
    NumbersReserved: lambda record: [Statement(_RESERVE, (record.upto,))],
    JobAccepted: _accept,
    JobStarted: _start,
    JobPublishing: lambda record: [Statement(_PUBLISH, (record.number, encode(record.outputs)))],
    JobEnded: _end,
    JobChanged: _change,
    JobsForgotten: lambda record: [Statement(_FORGET, (number,)) for number in record.numbers],
    WholeJob: _accept_whole,
}


def number_of_client_id(connection: apsw.Connection, client_id: str) -> int | None:
    """Return the job with a client-chosen id."""
    sql = "SELECT number FROM job WHERE client_id = ?"
    row = connection.execute(sql, (client_id,)).fetchone()
    return None if row is None else int(row[0])


def ended_size(connection: apsw.Connection) -> tuple[int, int]:
    """Return how many ended jobs there are, and their bytes."""
    sql = "SELECT count(*), coalesce(sum(nbytes), 0) FROM job WHERE ended_at IS NOT NULL"
    count, nbytes = connection.execute(sql).get
    return count, nbytes


def trim_ended(connection: apsw.Connection, bounds: HistoryBounds, now: float) -> None:
    """Delete the ended jobs beyond the bounds, oldest first."""
    sql = """DELETE FROM job WHERE number IN (SELECT number FROM
        (SELECT number, ended_at, row_number() OVER newest AS position,
            sum(nbytes) OVER newest AS total
         FROM job WHERE ended_at IS NOT NULL
         WINDOW newest AS (ORDER BY ended_at DESC, number DESC))
        WHERE position > ? OR total > ? OR ended_at < ?)"""
    connection.execute(sql, (bounds.jobs, bounds.nbytes, now - bounds.seconds))
