"""The journal's file and its only connection: opening, commits, checkpoints, failures.

Synchronous; `journal.py` calls it from a thread.

After a failed commit it isn't known what is on disk: the kernel may have dropped pages that it
couldn't write, and the next fsync succeeds all the same. With such a hole in the WAL everything
behind it would be lost at a power cut, and a checkpoint would mix new pages with old ones. So the
file is closed, and before the next write `wal_repair.py` writes the WAL again as it can be read
now. The failed commit itself may be in it or not; jobs that were refused because of it are deleted
by the next one.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import apsw

from hetsched.errors import ConfigError, HetschedError
from hetsched.store import database
from hetsched.store.database import DatabaseFormat
from hetsched.store.journal.group_commit import PreparedWrite, commit, count_ended, prepare
from hetsched.store.journal.job_numbers import BLOCK
from hetsched.store.journal.journal_db import (
    FORMAT,
    ended_size,
    trim_ended,
)
from hetsched.store.journal.journal_errors import open_error, write_error
from hetsched.store.journal.journal_queries import load_contents, query_jobs
from hetsched.store.journal.pending_writes import Write
from hetsched.store.journal.records import (
    HistoryBounds,
    HistoryFilter,
    JournalContents,
    JournaledJob,
)
from hetsched.store.journal.wal_repair import rewrite_wal

log = logging.getLogger(__name__)

CHECKPOINT_PAGES = 1000
"""Pages in the WAL from which a checkpoint follows a commit: 4 MiB, SQLite's default."""
MAX_WAL_PAGES = 16 * CHECKPOINT_PAGES
"""More, because checkpoints fail, and commits are refused."""
TRIM_EVERY = 256
"""Ended jobs between two checks of the bounds."""
VACUUM_PAGES = 1024
"""Free pages from which the file is shortened."""


class JournalFile:
    """An open ``journal.db``. Not safe for use by two threads at once."""

    def __init__(
        self,
        path: Path,
        bounds: HistoryBounds,
        now: float,
        vfs: str | None = None,
        file_format: DatabaseFormat = FORMAT,
        checkpoint_pages: int = CHECKPOINT_PAGES,
    ) -> None:
        """Open or create the file. Raises ConfigError; the file is left as it is then.

        `vfs`, `file_format` and `checkpoint_pages` are for tests.
        """
        self._path, self._bounds, self._vfs = path, bounds, vfs
        self._format, self._checkpoint_pages = file_format, checkpoint_pages
        self._connection: apsw.Connection | None = None
        self._must_repair = True
        self._wal_pages = 0
        self._checkpoint_due = checkpoint_pages
        """Pages in the WAL from which the next checkpoint is run."""
        self._ended = 0
        try:
            self._next_number = self._begin(self._writable(), now)
        except (apsw.Error, ConfigError) as error:
            self._drop_connection()
            raise open_error(path, error) from None

    @property
    def connection(self) -> apsw.Connection:
        """The present connection."""
        assert self._connection is not None
        return self._connection

    def load(self, ended: int) -> JournalContents:
        """Read all open jobs and the last `ended` ended ones. Raises ConfigError."""
        try:
            return load_contents(self._readable(), self._next_number, ended)
        except (apsw.Error, ValueError) as error:  # msgspec's errors are ValueErrors
            raise open_error(self._path, apsw.CorruptError(str(error))) from None

    def query(self, wanted: HistoryFilter) -> list[JournaledJob]:
        """Return the jobs that match, newest first. Raises CantCreate, IOFailure."""
        try:
            return query_jobs(self._readable(), wanted)
        except (apsw.Error, ConfigError) as error:
            self._drop_connection()
            raise write_error(self._path, error, self._errno()) from None

    def commit(self, writes: Sequence[Write]) -> list[HetschedError | None]:
        """Write everything in one transaction, and wait until it is on disk.

        Returns
        -------
        list
            For each write None, or why it is at fault itself; then nothing of it was written.

        Raises
        ------
        CantCreate, IOFailure, InternalError
            Nothing can be written at present.
        """
        prepared = [prepare(write, self._path) for write in writes]
        try:
            outcomes = self._commit(prepared)
        except Exception as error:
            failure = write_error(self._path, error, self._errno())
            self._drop_connection()
            raise failure from None
        self._ended += count_ended(writes)
        return outcomes

    def maintain(self, now: float) -> None:
        """Checkpoint, trim and shorten if it is time to; after the outcomes were reported."""
        if self._connection is None or self._must_repair:
            return
        try:
            if self._ended >= TRIM_EVERY:
                self._trim(self._connection, now)
            if self._wal_pages >= self._checkpoint_due:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                self._wal_pages = 0
                self._checkpoint_due = self._checkpoint_pages
        except apsw.Error as error:
            self._checkpoint_due = 2 * self._wal_pages  # not after each commit on a full disk
            log.warning("%s", write_error(self._path, error, self._errno()))
            self._drop_connection()

    def close(self, last_number: int | None) -> None:
        """Close the file; `last_number`: the last one given to a job, if that is certain."""
        connection = self._connection
        if connection is None or self._must_repair:
            self._drop_connection()
            return
        try:
            if last_number is not None:
                connection.execute("UPDATE journal SET closed_at_number = ?", (last_number,))
            connection.close()
            self._connection = None
        except apsw.Error as error:
            log.warning("%s", write_error(self._path, error, self._errno()))
            self._drop_connection()

    # ---- opening

    def _connect(self) -> apsw.Connection:
        is_new = self._vfs is None and not self._path.exists()
        if is_new:
            _create_private(self._path)
        connection = database.open_database(self._path, self._format, self._vfs)
        try:
            _check_mode(connection)
            connection.set_busy_timeout(0)  # nobody else uses it
            connection.set_wal_hook(self._on_wal)
            if is_new:
                _sync_folders(self._path)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _begin(self, connection: apsw.Connection, now: float) -> int:
        """Check the file, reserve numbers; return the first number that was never given."""
        reserved, closed_at = connection.execute(
            "SELECT reserved, closed_at_number FROM journal"
        ).get
        if closed_at is None:
            self._check(connection)
        newest = connection.execute("SELECT coalesce(max(number), 0) FROM job").get
        last = max(newest, reserved if closed_at is None else closed_at)
        with database.transaction(connection):
            sql = "UPDATE journal SET reserved = ?, closed_at_number = NULL"
            connection.execute(sql, (last + BLOCK,))
            trim_ended(connection, self._bounds, now)
        return int(last) + 1

    def _check(self, connection: apsw.Connection) -> None:
        """Check a file that wasn't closed in order."""
        log.info("%s: the last daemon didn't close it; checking it", self._path)
        result = connection.execute("PRAGMA quick_check(1)").get
        if result != "ok":
            raise apsw.CorruptError(str(result).replace("\n", "; "))

    def _readable(self) -> apsw.Connection:
        """Return the connection; after a failure a new one, which may only read."""
        return self._connection or self._connect()

    def _writable(self) -> apsw.Connection:
        """Return a connection that may write; after a failure or a crash, with a whole WAL."""
        if self._must_repair:
            self._drop_connection()
            self._connect()  # takes the lock
            if rewrite_wal(self._path, self._vfs):
                self._drop_connection()
            self._must_repair = False
        return self._readable()

    def _drop_connection(self) -> None:
        """Close a connection that failed, and write nothing more."""
        connection, self._connection = self._connection, None
        self._must_repair = True
        if connection is not None:
            with contextlib.suppress(apsw.Error):
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.close(True)

    # ---- writing

    def _commit(self, prepared: Sequence[PreparedWrite]) -> list[HetschedError | None]:
        try:
            connection = self._writable()
        except ConfigError as error:
            raise apsw.CantOpenError(str(error)) from None
        if self._wal_pages >= MAX_WAL_PAGES:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._wal_pages = 0
        return commit(connection, prepared, self._path)

    def _trim(self, connection: apsw.Connection, now: float) -> None:
        self._ended = 0
        count, nbytes = ended_size(connection)
        if count > self._bounds.jobs or nbytes > self._bounds.nbytes:
            with database.transaction(connection):
                trim_ended(connection, self._bounds, now)
        free = connection.execute("PRAGMA freelist_count").get
        if free >= VACUUM_PAGES:
            connection.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()

    def _on_wal(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _errno(self) -> int:
        """Return the error number of the system call that failed last; 0 if not known."""
        with contextlib.suppress(apsw.ConnectionClosedError):
            return 0 if self._connection is None else int(self._connection.system_errno)
        return 0


def _check_mode(connection: apsw.Connection) -> None:
    """Raise if the connection isn't in WAL mode: the pragma fails without an error."""
    mode = connection.execute("PRAGMA journal_mode").get
    if mode != "wal":
        raise apsw.IOError(f"journal mode is {mode}, not wal")


def _create_private(path: Path) -> None:
    """Create an empty file that only its owner can read; SQLite gives the WAL the same mode."""
    with contextlib.suppress(OSError):  # SQLite reports it
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _sync_folders(path: Path) -> None:
    """Wait until the entry of a new file, and of a new folder around it, are on disk."""
    for folder in (path.parent, path.parent.parent):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(OSError):  # some file systems can't sync a folder
                os.fsync(fd)
        finally:
            os.close(fd)
