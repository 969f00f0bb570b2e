"""SQLite files of the state folder: opening, versions, transactions, and what can't be read.

A `DatabaseFormat` defines a file's contents. A file of a newer version or another
program is refused and left as it is. A damaged one is renamed (`set_aside`), never deleted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw
import msgspec

from hetsched.errors import ConfigError

BUSY_MS = 10_000
"""Time to wait for other writers. Each holds the lock for milliseconds, but SQLite's locking isn't
fair on a busy machine with a slow disk, and data that isn't written at exit is lost."""
SUFFIXES = ("", "-wal", "-shm", "-journal")
"""Of a database's files."""

# A single statement, so a consistent snapshot: another process may be creating the tables.
_HEADER = """SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema)
    FROM pragma_user_version, pragma_application_id"""

DAMAGE = (apsw.Error, msgspec.DecodeError, UnicodeDecodeError)
"""Errors of a file that can't be used: SQLite's, and values that we didn't write."""
UNREADABLE = (
    apsw.NotADBError,
    apsw.CorruptError,
    apsw.SchemaChangeError,
    apsw.SQLError,
    msgspec.DecodeError,
    UnicodeDecodeError,
)
"""Those of its contents, which no second try mends."""


class RefusedFile(ConfigError):
    """Written by a newer hetsched than this one, or by another program: it is left as it is."""


@dataclass(frozen=True)
class DatabaseFormat:
    """What a database file holds. `application_id` and `version` are SQLite's; `schema` creates
    the tables. A connection that writes runs `first_pragmas` before it reads, then `pragmas`.
    """

    application_id: int
    version: int
    schema: str
    pragmas: str
    first_pragmas: str = ""


def open_database(
    path: Path | None, file_format: DatabaseFormat, vfs: str | None = None
) -> apsw.Connection:
    if path is not None and vfs is None:
        # SQLite would let others read it, and gives its journals the same mode. An existing file
        # isn't opened: closing it would end the locks of other connections of this process.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with contextlib.suppress(OSError):  # SQLite reports what is wrong
            os.close(os.open(path, flags, 0o600))
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    with _opened(":memory:" if path is None else str(path), flags, vfs) as connection:
        connection.execute(file_format.first_pragmas).fetchall()  # all statements
        if connection.readonly("main"):
            raise apsw.ReadOnlyError("not writable")
        check_version(connection, file_format, path)
        connection.execute(file_format.pragmas).fetchall()
        with transaction(connection):
            # Under the lock: another process may have just created them.
            if check_version(connection, file_format, path) == 0:
                connection.execute(file_format.schema)
                connection.execute(f"PRAGMA application_id = {file_format.application_id}")
                connection.execute(f"PRAGMA user_version = {file_format.version}")
    return connection


def open_for_reading(path: Path, file_format: DatabaseFormat) -> apsw.Connection:
    with _opened(str(path), apsw.SQLITE_OPEN_READWRITE) as connection:
        check_version(connection, file_format, path)
    return connection


@contextlib.contextmanager
def _opened(name: str, flags: int, vfs: str | None = None) -> Iterator[apsw.Connection]:
    try:
        connection = apsw.Connection(name, flags, vfs)
        try:
            connection.set_busy_timeout(BUSY_MS)
            yield connection
        except BaseException:
            # Nothing that may have failed halfway is copied from a WAL into the database.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.close()
            raise
    except (apsw.CantOpenError, apsw.PermissionsError, apsw.ReadOnlyError) as error:
        remedy = "make it writable, or set HETSCHED_STATE_DIR to another folder"
        raise ConfigError(f"{name}: {error}; {remedy}") from None


def check_version(
    connection: apsw.Connection, file_format: DatabaseFormat, path: Path | str | None
) -> int:
    """Return the version of the file; 0 if it is empty. `path` is used in messages only.

    Raises RefusedFile.
    """
    version, application_id, tables = connection.execute(_HEADER).get
    if application_id not in (0, file_format.application_id) or (application_id == 0 and tables):
        raise RefusedFile(
            f"{path}: a database of another program; move it away, or set HETSCHED_STATE_DIR to"
            " another folder"
        )
    if version > file_format.version:
        raise RefusedFile(
            f"{path}: written by a newer hetsched (version {version}, this one reads up to"
            f" {file_format.version}); update hetsched, or set HETSCHED_STATE_DIR to another"
            " folder"
        )
    return int(version) if tables else 0


@contextlib.contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk or a failed write has already rolled back.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def data_version(connection: apsw.Connection) -> int:
    """Return a number that changes when another connection has written."""
    return int(connection.execute("PRAGMA data_version").get)


def set_aside(path: Path) -> Path | None:
    """Rename what is at `path`, and its logs; return the new name, None if there is nothing."""
    number = 1
    while any(os.path.lexists(f"{path}.unreadable-{number}{suffix}") for suffix in SUFFIXES):
        number += 1
    aside = Path(f"{path}.unreadable-{number}")
    moved = None
    # The logs first: a database without its log is read as it was before, and mustn't be.
    for suffix in reversed(SUFFIXES):
        source = Path(f"{path}{suffix}")
        if os.path.lexists(source):
            source.rename(f"{aside}{suffix}")
            moved = aside
    return moved
