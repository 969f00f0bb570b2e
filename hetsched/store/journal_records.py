"""``journal.db``: its tables, what each record writes to them, and what is read from them.

Records are stored as MessagePack with field names: decoding ignores fields that it doesn't know,
and fills in defaults.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import apsw
import msgspec

from hetsched.errors import Cancelled
from hetsched.job import Done, Failed, JobSpec
from hetsched.store.database import DatabaseFormat
from hetsched.store.publication import PreparedOutput

Stage = Literal["queued", "running", "publishing", "done", "failed", "cancelled"]
ENDED_STAGES = ("done", "failed", "cancelled")


class NumbersReserved(msgspec.Struct, frozen=True):
    """Numbers up to this one may be given to jobs (see `job_numbers.py`)."""

    upto: int


class JobAccepted(msgspec.Struct, frozen=True):
    """A job is in the queue. `client_id`: chosen by the client; "" if it chose none."""

    number: int
    spec: JobSpec
    client_id: str
    submitted_at: float
    durable: bool
    held: bool = False


class JobStarted(msgspec.Struct, frozen=True):
    """`starts`: how often the job has been started, this time included; `failures`: how many of
    its retries are used."""

    number: int
    starts: int
    at: float = 0.0
    failures: int = 0


class JobPublishing(msgspec.Struct, frozen=True):
    """The results are on disk, and about to get their names: from now on the job isn't rerun."""

    number: int
    outputs: tuple[PreparedOutput, ...]


class JobEnded(msgspec.Struct, frozen=True):
    number: int
    state: Done | Failed
    at: float = 0.0


class JobChanged(msgspec.Struct, frozen=True):
    """A waiting job's priority or hold has been changed; None: as before."""

    number: int
    priority: int | None = None
    held: bool | None = None


class JobsForgotten(msgspec.Struct, frozen=True):
    numbers: tuple[int, ...]


class WholeJob(msgspec.Struct, frozen=True):
    """A volatile job, which is written once, when it has ended."""

    accepted: JobAccepted
    started: JobStarted | None
    ended: JobEnded


Record = (
    NumbersReserved
    | JobAccepted
    | JobStarted
    | JobPublishing
    | JobEnded
    | JobChanged
    | JobsForgotten
    | WholeJob
)

OnWritten = Callable[[BaseException | None], None]


class Write(NamedTuple):
    """Records that are written together, or not at all.

    Without `on_done` they are kept and written again until that succeeds.
    """

    records: Sequence[Record]
    on_done: OnWritten | None = None


class JournaledJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the journal holds it. `state`: None until it has ended."""

    number: int
    spec: JobSpec
    client_id: str = ""
    submitted_at: float
    durable: bool
    stage: Stage = "queued"
    priority: int = 0
    held: bool = False
    starts: int = 0
    failures: int = 0
    started_at: float | None = None
    outputs: tuple[PreparedOutput, ...] = ()
    """Those about to be named, in stage "publishing"."""
    ended_at: float | None = None
    state: Done | Failed | None = None


@dataclass(frozen=True)
class JournalContents:
    """What a daemon needs at its start: `next_number` was never given to a job, and numbers up to
    `reserved` are reserved; the jobs are in the order of their numbers. The token distinguishes
    this journal's hidden output files from others'.
    """

    next_number: int
    reserved: int
    open_jobs: tuple[JournaledJob, ...] = ()
    ended_jobs: tuple[JournaledJob, ...] = ()
    token: str = ""


@dataclass(frozen=True)
class HistoryFilter:
    """Which jobs `Journal.query` returns, newest first; None: any."""

    stages: tuple[Stage, ...] = ()
    workload: str | None = None
    label: str | None = None
    client_id: str | None = None
    numbers: tuple[int, ...] = ()
    since: float | None = None
    until: float | None = None
    before: int | None = None
    """Only jobs with smaller numbers, for the next page."""
    limit: int = 100


@dataclass(frozen=True)
class HistoryBounds:
    """Ended jobs that are kept: the newest `jobs`, for `seconds`, in `nbytes` altogether."""

    jobs: int = 10_000
    seconds: float = 30 * 86400.0
    nbytes: int = 64 << 20


log = logging.getLogger(__name__)

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
CREATE INDEX job_by_client_id ON job(client_id) WHERE client_id IS NOT NULL;
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

MAX_STATE_BYTES = 32 << 10
"""A larger final state is stored without its chunks: 2.3 million after an hour on 64 cores."""
MAX_QUERY = 1000
"""Most jobs that one query returns; the journal's thread writes nothing meanwhile."""
MAX_QUERY_BYTES = 4 << 20
"""Most bytes of jobs that it returns, unless a single job is larger."""
ROW_BYTES = 200
"""What a row takes besides its blobs. An estimate."""

_encode = msgspec.msgpack.Encoder().encode
_decode_spec = msgspec.msgpack.Decoder(JobSpec).decode
_decode_outputs = msgspec.msgpack.Decoder(tuple[PreparedOutput, ...]).decode
_decode_state = msgspec.msgpack.Decoder(Done | Failed).decode
_NONE = _encode(())

Row = tuple[Any, ...]

_INSERT = """INSERT INTO job(number, client_id, label, workload, stage, durable, held, priority,
    submitted_at, spec, outputs, nbytes, attempts, failures, started_at, ended_at, state)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(number) DO NOTHING"""
"""A record may be written again after a commit whose outcome was unknown."""
_SQL: dict[type, str] = {
    NumbersReserved: "UPDATE journal SET reserved = max(reserved, ?)",
    JobAccepted: _INSERT,
    WholeJob: _INSERT,
    JobChanged: """UPDATE job SET priority = coalesce(?2, priority), held = coalesce(?3, held)
        WHERE number = ?1 AND ended_at IS NULL""",
    JobStarted: """UPDATE job SET stage = 'running', attempts = ?2, started_at = ?3, failures = ?4
        WHERE number = ?1 AND ended_at IS NULL""",
    JobPublishing: """UPDATE job SET stage = 'publishing', outputs = ?2
        WHERE number = ?1 AND ended_at IS NULL""",
    JobEnded: """UPDATE job SET stage = ?2, state = ?3, ended_at = ?4, outputs = ?5,
        nbytes = nbytes + length(?3) WHERE number = ?1 AND ended_at IS NULL""",
    JobsForgotten: "DELETE FROM job WHERE number = ?",
}


def encode_rows(record: Record) -> list[Row]:
    """Return the bindings of `record`. Raises what msgspec raises for values it can't encode."""
    return _ROWS[type(record)](record)


def execute(connection: apsw.Connection, rows: Iterable[tuple[type, list[Row]]]) -> None:
    for kind, group in itertools.groupby(rows, key=lambda item: item[0]):
        connection.executemany(_SQL[kind], [row for _, bindings in group for row in bindings])


def encode_state(state: Done | Failed) -> bytes:
    """Encode a final state; without results, which are in memory, and bounded in size."""
    if state.results:
        state = msgspec.structs.replace(state, results={})
    raw = _encode(state)
    if len(raw) <= MAX_STATE_BYTES:
        return raw
    report = state.report
    devices = tuple(msgspec.structs.replace(device, chunks=()) for device in report.devices)
    shortened = msgspec.structs.replace(report, devices=devices)
    return _encode(msgspec.structs.replace(state, report=shortened))


def ended_stage(state: Done | Failed) -> Stage:
    if isinstance(state, Done):
        return "done"
    return "cancelled" if state.error.code == Cancelled.code else "failed"


def _job_row(
    record: JobAccepted, started: JobStarted | None = None, ended: JobEnded | None = None
) -> Row:
    spec = _encode(record.spec)
    state = None if ended is None else encode_state(ended.state)
    return (
        record.number,
        record.client_id or None,
        record.spec.label,
        record.spec.workload,
        "queued" if ended is None else ended_stage(ended.state),
        int(record.durable),
        int(record.held or record.spec.hold),
        record.spec.priority,
        record.submitted_at,
        spec,
        _NONE,
        ROW_BYTES + len(spec) + len(state or b""),
        0 if started is None else started.starts,
        0 if started is None else started.failures,
        None if started is None else started.at,
        None if ended is None else ended.at,
        state,
    )


def _changed(record: JobChanged) -> list[Row]:
    held = None if record.held is None else int(record.held)
    return [(record.number, record.priority, held)]


def _ended(record: JobEnded) -> list[Row]:
    state = encode_state(record.state)
    return [(record.number, ended_stage(record.state), state, record.at, _NONE)]


_ROWS: dict[type, Callable[[Any], list[Row]]] = {
    NumbersReserved: lambda record: [(record.upto,)],
    JobAccepted: lambda record: [_job_row(record)],
    WholeJob: lambda record: [_job_row(record.accepted, record.started, record.ended)],
    JobChanged: _changed,
    JobStarted: lambda record: [(record.number, record.starts, record.at, record.failures)],
    JobPublishing: lambda record: [(record.number, _encode(record.outputs))],
    JobEnded: _ended,
    JobsForgotten: lambda record: [(number,) for number in record.numbers],
}


# ---- reading

_COLUMNS = """number, spec, client_id, submitted_at, durable, stage, priority, held, attempts,
    failures, started_at, outputs, ended_at, state"""


def _job(row: Sequence[Any]) -> JournaledJob:
    return JournaledJob(
        number=row[0],
        spec=_decode_spec(row[1]),
        client_id=row[2] or "",
        submitted_at=row[3],
        durable=bool(row[4]),
        stage=row[5],
        priority=row[6],
        held=bool(row[7]),
        starts=row[8],
        failures=row[9],
        started_at=row[10],
        outputs=_decode_outputs(row[11]),
        ended_at=row[12],
        state=None if row[13] is None else _decode_state(row[13]),
    )


def _jobs(rows: Iterable[Sequence[Any]]) -> Iterator[JournaledJob]:
    """Yield the jobs; one that can't be read stays in the file, and costs no other."""
    for row in rows:
        try:
            yield _job(row)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.error("job %s in the journal can't be read: %s", row[0], error)


def load_contents(connection: apsw.Connection, next_number: int, ended: int) -> JournalContents:
    open_jobs = connection.execute(
        f"SELECT {_COLUMNS} FROM job WHERE ended_at IS NULL ORDER BY number"
    )
    last = connection.execute(
        f"""SELECT {_COLUMNS} FROM job WHERE ended_at IS NOT NULL
        ORDER BY ended_at DESC, number DESC LIMIT ?""",
        (ended,),
    )
    reserved, token = connection.execute("SELECT reserved, token FROM journal").get
    return JournalContents(
        next_number=next_number,
        reserved=reserved,
        open_jobs=tuple(_jobs(open_jobs)),
        ended_jobs=tuple(sorted(_jobs(last), key=lambda job: job.number)),
        token=token,
    )


def query_jobs(connection: apsw.Connection, wanted: HistoryFilter) -> list[JournaledJob]:
    """Return the jobs that match, newest first; for more, ask for those `before` the last."""
    conditions: list[tuple[str, Any]] = [
        ("workload = ?", wanted.workload),
        ("label = ?", wanted.label),
        ("client_id = ?", wanted.client_id),
        ("submitted_at >= ?", wanted.since),
        ("submitted_at < ?", wanted.until),
        ("number < ?", wanted.before),
    ]
    used = [(sql, value) for sql, value in conditions if value is not None]
    terms, bindings = [sql for sql, _ in used], [value for _, value in used]
    for column, values in (("stage", wanted.stages), ("number", wanted.numbers)):
        if values:
            terms.append(f"{column} IN ({', '.join('?' * len(values))})")
            bindings += values
    where = f"WHERE {' AND '.join(terms)}" if terms else ""
    sql = f"SELECT {_COLUMNS} FROM job {where} ORDER BY number DESC LIMIT ?"
    jobs: list[JournaledJob] = []
    nbytes = 0
    for row in connection.execute(sql, (*bindings, min(wanted.limit, MAX_QUERY))):
        nbytes += sum(len(value) for value in row if isinstance(value, bytes))
        if jobs and nbytes > MAX_QUERY_BYTES:
            break
        jobs += _jobs([row])
    return jobs


def ended_size(connection: apsw.Connection) -> tuple[int, int]:
    sql = "SELECT count(*), coalesce(sum(nbytes), 0) FROM job WHERE ended_at IS NOT NULL"
    count, nbytes = connection.execute(sql).get
    return count, nbytes


def trim_ended(connection: apsw.Connection, bounds: HistoryBounds, now: float) -> None:
    sql = """DELETE FROM job WHERE number IN (SELECT number FROM
        (SELECT number, ended_at, row_number() OVER newest AS position,
            sum(nbytes) OVER newest AS total
         FROM job WHERE ended_at IS NOT NULL
         WINDOW newest AS (ORDER BY ended_at DESC, number DESC))
        WHERE position > ? OR total > ? OR ended_at < ?)"""
    connection.execute(sql, (bounds.jobs, bounds.nbytes, now - bounds.seconds))
