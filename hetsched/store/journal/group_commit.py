"""Many writes in one transaction, of which one that is at fault spoils no other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import apsw

from hetsched.errors import HetschedError
from hetsched.store import database
from hetsched.store.journal.journal_db import Statement, number_of_client_id, statements
from hetsched.store.journal.journal_errors import DISK_ERRORS, write_error
from hetsched.store.journal.pending_writes import Write
from hetsched.store.journal.records import (
    ClientIdTaken,
    JobAccepted,
    JobEnded,
    JobsForgotten,
    WholeJob,
)
from hetsched.store.journal.row_groups import grouped

PreparedWrite = list[Statement] | HetschedError
"""What a write does, or why its values can't be encoded."""


def prepare(write: Write, path: Path) -> PreparedWrite:
    """Encode the records of a write; `path` is used in messages only."""
    try:
        return [statement for record in write.records for statement in statements(record)]
    except Exception as error:  # a value that can't be encoded
        return write_error(path, error)


def commit(
    connection: apsw.Connection, prepared: Sequence[PreparedWrite], path: Path
) -> list[HetschedError | None]:
    """Commit all writes in one transaction; return for each None, or why it is at fault.

    Raises
    ------
    apsw.Error
        Of the disk: it isn't known what of the transaction is in the file.
    """
    try:
        with database.transaction(connection):
            _execute(connection, _all_statements(prepared))
        return [write if isinstance(write, HetschedError) else None for write in prepared]
    except DISK_ERRORS:
        raise
    except apsw.Error:  # some statement is at fault: find out whose
        with database.transaction(connection):
            return [_execute_alone(connection, write, path) for write in prepared]


def forget_refused(writes: Sequence[Write]) -> list[Write]:
    """Return what deletes the jobs that were refused because these writes failed.

    Some of them may be in the file all the same.
    """
    numbers = [
        record.number
        for write in writes
        if write.on_done is not None
        for record in write.records
        if isinstance(record, JobAccepted)
    ]
    return [Write((JobsForgotten(tuple(numbers)),))] if numbers else []


def count_ended(writes: Iterable[Write]) -> int:
    """Count the jobs that these writes end."""
    return sum(
        isinstance(record, JobEnded | WholeJob) for write in writes for record in write.records
    )


def _execute_alone(
    connection: apsw.Connection, write: PreparedWrite, path: Path
) -> HetschedError | None:
    if isinstance(write, HetschedError):
        return write
    try:
        with connection:  # a savepoint
            _execute(connection, write)
    except DISK_ERRORS:
        raise
    except apsw.Error as error:
        return _statement_error(connection, write, error) or write_error(path, error)
    return None


def _all_statements(prepared: Sequence[PreparedWrite]) -> Iterator[Statement]:
    for write in prepared:
        if not isinstance(write, HetschedError):
            yield from write


def _execute(connection: apsw.Connection, write: Iterable[Statement]) -> None:
    for sql, bindings in grouped(write):
        connection.execute(sql, bindings)


def _statement_error(
    connection: apsw.Connection, write: Sequence[Statement], error: apsw.Error
) -> HetschedError | None:
    """Return ClientIdTaken if that is why a write failed."""
    if not isinstance(error, apsw.ConstraintError) or "client_id" not in str(error):
        return None
    for statement in write:
        client_id = statement.row[1] if len(statement.row) > 1 else None
        if isinstance(client_id, str):
            number = number_of_client_id(connection, client_id)
            if number is not None:
                return ClientIdTaken(client_id, number)
    return None
