"""What is read from ``journal.db``: jobs at the daemon's start, and history."""

from __future__ import annotations

from typing import Any

import apsw

from hetsched.store.journal.encoding import (
    decode_outputs,
    decode_spec,
    decode_state,
)
from hetsched.store.journal.records import HistoryFilter, JournalContents, JournaledJob

MAX_QUERY = 1000
"""Most jobs that one query returns; the journal's thread writes nothing meanwhile."""
MAX_QUERY_BYTES = 4 << 20
"""Most bytes of jobs that it returns, unless a single job is larger."""

_COLUMNS = """number, spec, client_id, submitted_at, durable, stage, priority, held,
    attempts, started_at, outputs, ended_at, state, failures"""


def _job(row: tuple[Any, ...]) -> JournaledJob:
    return JournaledJob(
        number=row[0],
        spec=decode_spec(row[1]),
        client_id=row[2] or "",
        submitted_at=row[3],
        durable=bool(row[4]),
        stage=row[5],
        priority=row[6],
        held=bool(row[7]),
        attempts=row[8],
        started_at=row[9],
        outputs=decode_outputs(row[10]),
        ended_at=row[11],
        state=None if row[12] is None else decode_state(row[12]),
        failures=row[13],
    )


def load_contents(connection: apsw.Connection, next_number: int, ended: int) -> JournalContents:
    """Read all open jobs and the last `ended` ended ones."""
    open_jobs = connection.execute(
        f"SELECT {_COLUMNS} FROM job WHERE ended_at IS NULL ORDER BY number"
    )
    last = connection.execute(
        f"""SELECT {_COLUMNS} FROM job WHERE ended_at IS NOT NULL
        ORDER BY ended_at DESC, number DESC LIMIT ?""",
        (ended,),
    )
    reserved, token = connection.execute("SELECT reserved, token FROM journal").get
    ids = connection.execute("SELECT client_id, number FROM job WHERE client_id IS NOT NULL")
    return JournalContents(
        next_number=next_number,
        reserved=reserved,
        open_jobs=tuple(_job(row) for row in open_jobs),
        ended_jobs=tuple(sorted((_job(row) for row in last), key=lambda job: job.number)),
        client_ids=dict(ids),
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
        jobs.append(_job(row))
    return jobs
