"""``journal.db``: its tables, what each record writes to them, and what is read from them.

Records are stored as MessagePack with field names: decoding ignores fields that it doesn't know,
and fills in defaults.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import apsw
import msgspec

from hetsched import errors
from hetsched.config import JournalConfig
from hetsched.job import Done, Failed, JobSpec, outcome
from hetsched.store import database
from hetsched.store.output_files import PreparedOutput

log = logging.getLogger(__name__)

Stage = Literal["queued", "running", "publishing", "done", "failed", "cancelled"]


class JournaledJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the journal holds it. Written whole when a durable job is accepted, or when a
    volatile one has ended. `state`: None until it has ended.
    """

    number: int
    spec: JobSpec
    client_id: str = ""
    submitted_at: float
    durable: bool
    stage: Stage = "queued"
    priority: int = 0
    held: bool = False
    starts: int = 0
    """How often the job has been started."""
    failures: int = 0
    """How many of its retries are used."""
    started_at: float | None = None
    outputs: tuple[PreparedOutput, ...] = ()
    """Those about to be named, in stage "publishing": they are complete and on disk, and the job
    isn't run again."""
    ended_at: float | None = None
    state: Done | Failed | None = None


class JobUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What has changed of a job that hasn't ended; None: as before. As in `JournaledJob`."""

    number: int
    stage: Stage | None = None
    priority: int | None = None
    held: bool | None = None
    starts: int | None = None
    failures: int | None = None
    started_at: float | None = None
    outputs: tuple[PreparedOutput, ...] | None = None
    ended_at: float | None = None
    state: Done | Failed | None = None


class JobForgotten(msgspec.Struct, frozen=True):
    number: int


class NumbersReserved(msgspec.Struct, frozen=True):
    upto: int


BLOCK = 4000
"""Numbers per reservation; at 5000 jobs/s one every 0.8 s, half of which the disk has for it."""


class NumberBlocks:
    """Gives out job numbers, which never repeat: they are reserved in blocks, in the journal and
    in a small file beside it. A crash skips the rest of a block. On the loop's thread only.

    `reserve`: called with the number up to which more are needed, once half of a block is used;
    `reserved` is set to it, by any thread, when that is on disk.
    """

    def __init__(
        self, next_number: int, reserved: int, reserve: Callable[[int], None] | None = None
    ) -> None:
        self.last = next_number - 1
        self.reserved = self._requested = reserved
        self._reserve = reserve

    def take(self) -> int:
        if self.last >= self.reserved:
            raise errors.TryAgain(
                "the journal's disk is slow: there are no new job numbers; try again"
            )
        self.last += 1
        if self._reserve is not None and self._requested - self.last <= BLOCK // 2:
            self._requested += BLOCK
            self._reserve(self._requested)
        return self.last

    def give_back(self, number: int) -> None:
        """Take back a number that nobody has seen, if it is the last one."""
        if number == self.last:
            self.last -= 1


def job_token(journal_token: str, number: int) -> str:
    """Return what marks the files of a job; "": no journal has it."""
    return journal_token and f"{journal_token}-{number}"


Record = JournaledJob | JobUpdate | JobForgotten | NumbersReserved

OnWritten = Callable[[errors.HetschedError | None], None]


class Write(NamedTuple):
    """Records that are written together; without `on_done` again and again until that succeeds."""

    records: Sequence[Record]
    on_done: OnWritten | None = None


@dataclass(frozen=True)
class JournalContents:
    """What a daemon needs at its start, jobs by number. A block of numbers from `next_number` on
    is reserved; `token` marks what this journal's jobs leave on disk.
    """

    next_number: int
    open_jobs: tuple[JournaledJob, ...] = ()
    ended_jobs: tuple[JournaledJob, ...] = ()
    token: str = ""


@dataclass(frozen=True)
class HistoryFilter:
    """Which jobs `Journal.query` returns, newest first; None: any."""

    stages: tuple[Stage, ...] = ()
    client_id: str | None = None
    since: float | None = None
    before: int | None = None
    """Only jobs with smaller numbers, for the next page."""
    limit: int = 100


_SCHEMA = """
CREATE TABLE job(
    number INTEGER PRIMARY KEY CHECK(number > 0),
    client_id TEXT,
    stage TEXT NOT NULL
        CHECK(stage IN ('queued', 'running', 'publishing', 'done', 'failed', 'cancelled')),
    durable INTEGER NOT NULL CHECK(durable IN (0, 1)),
    held INTEGER NOT NULL CHECK(held IN (0, 1)),
    priority INTEGER NOT NULL,
    starts INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    submitted_at REAL NOT NULL,
    started_at REAL,
    ended_at REAL,
    spec BLOB NOT NULL,
    outputs BLOB NOT NULL,
    state BLOB,
    CHECK((ended_at IS NULL) = (stage IN ('queued', 'running', 'publishing'))),
    CHECK((ended_at IS NULL) = (state IS NULL))) STRICT;
CREATE INDEX job_by_client_id ON job(client_id) WHERE client_id IS NOT NULL;
CREATE INDEX job_open ON job(number) WHERE ended_at IS NULL;
CREATE INDEX job_ended ON job(ended_at, number) WHERE ended_at IS NOT NULL;
CREATE TABLE journal(
    id INTEGER PRIMARY KEY CHECK(id = 1),
    reserved INTEGER NOT NULL,
    is_open INTEGER NOT NULL,
    token TEXT NOT NULL) STRICT;
INSERT INTO journal VALUES (1, 0, 0, lower(hex(randomblob(6))));
"""
"""`journal.reserved`: the last number that may have been given out; `is_open`: 1 while a daemon
runs, and after a crash."""

WAL_LIMIT = 4 << 20
"""Bytes to which the WAL is cut after a checkpoint."""

FORMAT = database.DatabaseFormat(
    application_id=0x68736A6C,
    version=1,
    schema=_SCHEMA,
    # The timeout is for a daemon that is just ending.
    # EXCLUSIVE before the first read: then the WAL needs no shared memory, which network file
    # systems lack. Checkpoints are run by `JournalFile`, not within a commit.
    first_pragmas="PRAGMA busy_timeout = 500; PRAGMA locking_mode = EXCLUSIVE",
    pragmas=f"""PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
        PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = {WAL_LIMIT};
        PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY""",
)

MAX_STATE_BYTES = 32 << 10
"""A larger final state is stored without its chunks: 2.3 million after an hour on 64 cores."""
MAX_QUERY_BYTES = 4 << 20
"""Most bytes of jobs that one query returns, unless a single job is larger; the journal's thread
writes nothing meanwhile."""
ROW_BYTES = 200
"""What a row takes besides its blobs. An estimate."""

_encode = msgspec.msgpack.Encoder().encode
_DECODERS: dict[str, Callable[[Any], Any]] = {
    "spec": msgspec.msgpack.Decoder(JobSpec).decode,
    "outputs": msgspec.msgpack.Decoder(tuple[PreparedOutput, ...]).decode,
    "state": msgspec.msgpack.Decoder(Done | Failed).decode,
    "durable": bool,
    "held": bool,
}
_FIELDS = JournaledJob.__struct_fields__
_COLUMNS = ", ".join(_FIELDS)
_SQL: dict[type, str] = {
    # A record may be written again after a commit whose outcome was unknown.
    JournaledJob: f"""INSERT INTO job({_COLUMNS})
        VALUES ({", ".join(f":{name}" for name in _FIELDS)}) ON CONFLICT(number) DO NOTHING""",
    JobUpdate: f"""UPDATE job SET
        {", ".join(f"{n} = coalesce(:{n}, {n})" for n in JobUpdate.__struct_fields__[1:])}
        WHERE number = :number AND ended_at IS NULL""",
    JobForgotten: "DELETE FROM job WHERE number = :number",
    NumbersReserved: "UPDATE journal SET reserved = max(reserved, :upto)",
}


def statement(record: Record) -> tuple[str, dict[str, Any]]:
    row = msgspec.structs.asdict(record)
    if isinstance(record, JournaledJob):
        row["spec"] = _encode(record.spec)
        row["client_id"] = record.client_id or None
    if isinstance(record, JournaledJob | JobUpdate):
        if record.outputs is not None:
            row["outputs"] = _encode(record.outputs)
        if record.state is not None:
            row["stage"], row["state"] = ended_stage(record.state), encode_state(record.state)
    return _SQL[type(record)], row


def encode_state(state: Done | Failed) -> bytes:
    """Encode a final state; without results, which are in memory, and bounded in size."""
    raw = _encode(msgspec.structs.replace(state, results={}))
    if len(raw) <= MAX_STATE_BYTES:
        return raw
    devices = [msgspec.structs.replace(each, chunks=()) for each in state.report.devices]
    shortened = msgspec.structs.replace(state.report, devices=tuple(devices))
    return _encode(msgspec.structs.replace(state, results={}, report=shortened))


def ended_stage(state: Done | Failed) -> Stage:
    return outcome(state.error if isinstance(state, Failed) else None)


# ---- reading


def _jobs(rows: Iterable[Sequence[Any]]) -> Iterator[JournaledJob]:
    """Yield the jobs; one that can't be read stays in the file, and costs no other."""
    for row in rows:
        try:
            yield JournaledJob(
                **{
                    name: _DECODERS[name](value) if name in _DECODERS else value
                    for name, value in zip(_FIELDS, row, strict=True)
                    if value is not None
                }
            )
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
    return JournalContents(
        next_number,
        tuple(_jobs(open_jobs)),
        tuple(sorted(_jobs(last), key=lambda job: job.number)),
        connection.execute("SELECT token FROM journal").get,
    )


def query_jobs(connection: apsw.Connection, wanted: HistoryFilter) -> list[JournaledJob]:
    """Return the jobs that match, newest first; for more, ask for those `before` the last."""
    conditions: list[tuple[str, Any]] = [
        ("client_id = ?", wanted.client_id),
        ("submitted_at >= ?", wanted.since),
        ("number < ?", wanted.before),
    ]
    used = [(sql, value) for sql, value in conditions if value is not None]
    terms, bindings = [sql for sql, _ in used], [value for _, value in used]
    if wanted.stages:
        terms.append(f"stage IN ({', '.join('?' * len(wanted.stages))})")
        bindings += wanted.stages
    where = f"WHERE {' AND '.join(terms)}" if terms else ""
    sql = f"SELECT {_COLUMNS} FROM job {where} ORDER BY number DESC LIMIT ?"
    jobs: list[JournaledJob] = []
    nbytes = 0
    for row in connection.execute(sql, (*bindings, wanted.limit)):
        nbytes += sum(len(value) for value in row if isinstance(value, bytes))
        if jobs and nbytes > MAX_QUERY_BYTES:
            break
        jobs += _jobs([row])
    return jobs


def trim_ended(connection: apsw.Connection, kept: JournalConfig, now: float) -> None:
    sql = f"""DELETE FROM job WHERE number IN (SELECT number FROM
        (SELECT number, ended_at, row_number() OVER newest AS position,
            sum({ROW_BYTES} + length(spec) + length(state)) OVER newest AS total
         FROM job WHERE ended_at IS NOT NULL
         WINDOW newest AS (ORDER BY ended_at DESC, number DESC))
        WHERE position > ? OR total > ? OR ended_at < ?)"""
    connection.execute(sql, (kept.keep_jobs, kept.limit, now - kept.keep))
