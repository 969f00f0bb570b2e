"""SQLite files of the state folder: opening, versions, migration, transactions.

Owns no table: a `DatabaseFormat` defines a file's contents. A file of an older version is migrated
when it is opened for writing; a reader gets a migrated copy in memory instead.
A file of a newer version is refused.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import apsw
import msgspec

from hetsched.errors import ConfigError

BUSY_MS = 10_000
"""Time to wait for other writers. Each holds the lock for milliseconds, but SQLite's locking isn't
fair on a busy machine with a slow disk, and data that isn't written at exit is lost."""
CREATE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
IN_MEMORY = ":memory:"

# A single statement, so a consistent snapshot: another process may be creating the tables.
_HEADER = """SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema)
    FROM pragma_user_version, pragma_application_id"""


DAMAGE = (apsw.Error, msgspec.DecodeError, UnicodeDecodeError)
"""Errors of a file that can't be used: SQLite's, and values that we didn't write."""


class NewerFile(ConfigError):
    """Written by a newer hetsched than this one."""


@dataclass(frozen=True)
class DatabaseFormat:
    """The format of a database file.

    Attributes
    ----------
    application_id : int
        SQLite's application_id, which marks a file as ours.
    version : int
        SQLite's user_version; >= 1.
    schema : str
        SQL that creates the tables of this version.
    migrations : mapping of int to str
        Version -> SQL that turns a file of that version into the next one.
    pragmas : str
        SQL that a connection which writes runs before anything else but `first_pragmas`.
    first_pragmas : str
        SQL that it runs before the file is read.
    creation_pragmas : str
        SQL that it runs on an empty file, before `pragmas`.
    """

    application_id: int
    version: int
    schema: str
    migrations: Mapping[int, str]
    pragmas: str
    first_pragmas: str = ""
    creation_pragmas: str = ""


def open_database(
    path: Path | None, file_format: DatabaseFormat, vfs: str | None = None
) -> apsw.Connection:
    """Open the database at `path` (None: in memory) for writing; create or migrate it if needed.

    Processes that open an old file at the same time wait for the one that migrates it. `vfs`: the
    SQLite VFS to use instead of the default.

    Raises
    ------
    ConfigError
        It can't be opened for writing, or has a newer version (NewerFile).
    apsw.Error
        It is broken, not ours, or there is no room to create or migrate it.
    """
    if path is not None and vfs is None:
        _create_private(path)
    with _opened(IN_MEMORY if path is None else str(path), CREATE, vfs) as connection:
        _execute_all(connection, file_format.first_pragmas)
        if connection.readonly("main"):
            raise apsw.ReadOnlyError("not writable")
        if check_version(connection, file_format, path) == 0:
            _execute_all(connection, file_format.creation_pragmas)
        _execute_all(connection, file_format.pragmas)
        _migrate(connection, file_format, path)
    return connection


def _create_private(path: Path) -> None:
    """Create the file (0600), unless it exists: SQLite would let others read it.

    Its journals get the same mode. An existing file isn't opened: closing it would end the locks
    of other connections of this process.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with contextlib.suppress(OSError):  # SQLite reports what is wrong
        os.close(os.open(path, flags, 0o600))


def open_for_reading(path: Path, file_format: DatabaseFormat) -> apsw.Connection:
    """Open the existing database at `path` without changing it. Raises as `open_database`.

    The file may be read-only. If its version is older, the connection is to a migrated copy.
    """
    with _opened(str(path), apsw.SQLITE_OPEN_READWRITE) as connection:
        version = check_version(connection, file_format, path)
    if version == file_format.version:
        return connection
    connection.close()
    return open_copy(path, file_format)


def open_copy(path: Path | None, file_format: DatabaseFormat) -> apsw.Connection:
    """Copy the database at `path` into memory; empty if there is none.

    Raises as `open_database`.
    """
    copy = open_database(None, file_format)
    if path is None or not path.exists():
        return copy
    with _opened(str(path), apsw.SQLITE_OPEN_READWRITE) as source, contextlib.closing(source):
        if check_version(source, file_format, path):
            with copy.backup("main", source, "main") as backup:
                backup.step()
    _migrate(copy, file_format, path)
    return copy


@contextlib.contextmanager
def _opened(name: str, flags: int, vfs: str | None = None) -> Iterator[apsw.Connection]:
    """Open a connection, and close it again if the body fails."""
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


def _execute_all(connection: apsw.Connection, pragmas: str) -> None:
    """Run all statements: `execute` alone stops at the first that returns a row."""
    for _ in connection.execute(pragmas):
        pass


def check_version(
    connection: apsw.Connection, file_format: DatabaseFormat, path: Path | str | None
) -> int:
    """Return the version of the file; 0 if it is empty. `path` is used in messages only.

    Raises
    ------
    NewerFile
    apsw.NotADBError
        Another program's file.
    """
    version, application_id, tables = connection.execute(_HEADER).get
    if application_id not in (0, file_format.application_id) or (application_id == 0 and tables):
        raise apsw.NotADBError("not a file of hetsched")
    if version > file_format.version:
        raise NewerFile(
            f"{path}: written by a newer hetsched (version {version}, this one reads up to"
            f" {file_format.version}); update hetsched, or set HETSCHED_STATE_DIR to another"
            " folder"
        )
    return int(version) if tables else 0


def _migrate(connection: apsw.Connection, file_format: DatabaseFormat, path: Path | None) -> None:
    """Bring the file to the current version, in one transaction."""
    with transaction(connection):
        # Under the lock: another process may have just created or migrated it.
        version = check_version(connection, file_format, path)
        if version == 0:
            connection.execute(file_format.schema)
        for older in range(version or file_format.version, file_format.version):
            connection.execute(file_format.migrations[older])
        if version < file_format.version:
            connection.execute(f"PRAGMA application_id = {file_format.application_id}")
            connection.execute(f"PRAGMA user_version = {file_format.version}")


@contextlib.contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """Run the body in a transaction that holds the file's write lock from the start."""
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
