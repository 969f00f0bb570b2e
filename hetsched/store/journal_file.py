"""The journal's file and its only connection: opening, commits, checkpoints, failures.

After a failed commit it isn't known what is on disk: the kernel may have dropped pages that it
couldn't write, and the next fsync succeeds all the same. With such a hole in the WAL everything
behind it would be lost at a power cut, and a checkpoint would mix new pages with old ones. So the
file is closed, and before the next write the WAL is written again as it can be read now.
The failed commit itself may be in it or not; jobs that were refused because of it are deleted
by the next one.

A file that can't be read is renamed, and a new one takes its place. Job numbers go on: the highest
is on record beside the file.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from hetsched import errors
from hetsched.store import database, journal_records, output_files
from hetsched.store.journal_records import JournaledJob
from hetsched.units import NUMBER_LIMIT

log = logging.getLogger(__name__)

CHECKPOINT_PAGES = 1000
"""Pages in the WAL from which a checkpoint follows a commit: 4 MiB, SQLite's default."""
MAX_WAL_PAGES = 16 * CHECKPOINT_PAGES
"""More, because checkpoints fail, and commits are refused."""
TRIM_EVERY = 256
"""Ended jobs between two checks of the bounds."""
MAX_NUMBER = NUMBER_LIMIT // 2
"""A higher one on record is damage: nobody has had so many jobs."""
_NOT_WRITABLE = (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError, apsw.AuthError)


class JournalFile:
    """An open ``journal.db``. Not safe for use by two threads at once."""

    def __init__(
        self,
        path: Path,
        bounds: journal_records.HistoryBounds,
        now: float,
        vfs: str | None = None,
        file_format: database.DatabaseFormat = journal_records.FORMAT,
        checkpoint_pages: int = CHECKPOINT_PAGES,
    ) -> None:
        """Raises ConfigError; the file is left as it is then. The last three are for tests: with a
        `vfs` there is no second record of numbers.
        """
        self._path, self._bounds, self._vfs = path, bounds, vfs
        self._record_path = path.with_name(f"{path.name}.numbers")
        self._format, self._checkpoint_pages = file_format, checkpoint_pages
        self._connection: apsw.Connection | None = None
        self._must_repair = True
        self._wal_pages = 0
        self._checkpoint_due = checkpoint_pages
        """Pages in the WAL from which the next checkpoint is run."""
        self._ended = 0
        try:
            last = self._open(now)
        except (apsw.Error, errors.ConfigError, OSError) as error:
            self._drop_connection()
            raise open_error(path, error) from None
        self.next_number, self.reserved = last + 1, last + journal_records.BLOCK

    def load(self, ended: int) -> journal_records.JournalContents:
        try:
            return journal_records.load_contents(self._readable(), self.next_number, ended)
        except apsw.Error as error:
            raise open_error(self._path, error) from None

    def query(self, wanted: journal_records.HistoryFilter) -> list[journal_records.JournaledJob]:
        try:
            return journal_records.query_jobs(self._readable(), wanted)
        except Exception as error:
            raise self._failed(error) from None

    def commit(self, writes: Sequence[journal_records.Write]) -> list[errors.HetschedError | None]:
        """Write everything in one transaction, and wait until it is on disk; return for each
        write None, or why it can't be encoded: then nothing of it was written.
        """
        statements: list[tuple[str, dict[str, Any]]] = []
        outcomes: list[errors.HetschedError | None] = []
        for write in writes:
            try:
                statements += [journal_records.statement(record) for record in write.records]
                outcomes.append(None)
            except Exception as error:
                log.error("%s: a record is not written: %s", self._path, error)
                outcomes.append(write_error(self._path, error))
        try:
            connection = self._writable()
            if self._wal_pages >= MAX_WAL_PAGES:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                self._wal_pages = 0
            with database.transaction(connection):
                for sql, values in statements:
                    connection.execute(sql, values)
        except Exception as error:
            raise self._failed(error) from None
        for record in (record for write in writes for record in write.records):
            if isinstance(record, journal_records.NumbersReserved):
                self._record(record.upto)
                self.reserved = record.upto
            else:
                self._ended += getattr(record, "state", None) is not None
        return outcomes

    def maintain(self, now: float) -> None:
        """Checkpoint and trim if it is time to; after the outcomes were reported."""
        connection = self._connection
        if connection is None or self._must_repair:
            return
        try:
            if self._ended >= TRIM_EVERY:
                self._ended = 0
                with database.transaction(connection):
                    journal_records.trim_ended(connection, self._bounds, now)
            if self._wal_pages >= self._checkpoint_due:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                self._wal_pages = 0
                self._checkpoint_due = self._checkpoint_pages
        except apsw.Error as error:
            self._checkpoint_due = 2 * self._wal_pages  # not after each commit on a full disk
            log.warning("%s", self._failed(error))

    def close(self, last_number: int | None) -> None:
        """Close the file; `last_number`: the last one given to a job, if that is certain."""
        connection = self._connection
        if connection is None or self._must_repair:
            self._drop_connection()
            return
        try:
            if last_number is not None:
                # The record first: it must never be ahead of the journal.
                self._record(last_number)
                connection.execute("UPDATE journal SET reserved = ?, is_open = 0", (last_number,))
            connection.close()
            self._connection = None
        except apsw.Error as error:
            log.warning("%s", write_error(self._path, error))
            self._drop_connection()

    # ---- opening

    def _open(self, now: float) -> int:
        """Reserve numbers; return the last that may have been given."""
        recorded = self._read_record()
        try:
            if self._path.is_symlink() and not self._path.exists():
                raise apsw.NotADBError(f"a link to {self._path.readlink()}, which doesn't exist")
            last = self._check(recorded)
            self._begin(last, now)
        except database.UNREADABLE as error:
            self._drop_connection()
            aside = database.set_aside(self._path)
            if aside is None:
                raise
            last = recorded
            log.error(
                "%s: can't be read (%s); it is now %s, and a new journal begins with number %d:"
                " the jobs that waited are not in it",
                *(self._path, error, aside, last + 1),
            )
            self._begin(last, now)
        self._record(last + journal_records.BLOCK)
        return last

    def _check(self, recorded: int) -> int:
        """Return the last number that may have been given; `recorded`: by the second record."""
        connection = self._writable()
        row = connection.execute("SELECT reserved, is_open FROM journal").get
        if row is None or row[0] > MAX_NUMBER:
            raise apsw.CorruptError(f"its number of the last job is {row and row[0]}")
        last, is_open = row
        if is_open:
            log.info("%s: the last daemon didn't close it; checking it", self._path)
            result = connection.execute("PRAGMA quick_check(1)").get
            if result != "ok":
                raise apsw.CorruptError(str(result).replace("\n", "; "))
        if recorded > last:
            what = "is an older one" if last else "was missing or empty"
            log.error(
                "%s: %s, and the jobs up to %d aren't in it; numbers go on from there",
                *(self._path, what, recorded),
            )
        return int(max(last, recorded))

    def _begin(self, last: int, now: float) -> None:
        connection = self._writable()
        with database.transaction(connection):
            reserved = last + journal_records.BLOCK
            connection.execute("UPDATE journal SET reserved = ?, is_open = 1", (reserved,))
            journal_records.trim_ended(connection, self._bounds, now)

    def _read_record(self) -> int:
        try:
            text = self._record_path.read_bytes()
            if not re.fullmatch(rb"\d{1,19}\n", text) or int(text) > MAX_NUMBER:
                raise ValueError(f"not a number of a job: {text[:32]!r}")
            return int(text)
        except FileNotFoundError:
            return 0
        except (ValueError, OSError) as error:
            aside = database.set_aside(self._record_path)
            log.error("%s: can't be read (%s); now %s", self._record_path, error, aside)
            return 0

    def _record(self, number: int) -> None:
        """Wait until the record is on disk. Without it the journal has the number, too."""
        if self._vfs is not None:
            return
        try:
            output_files.replace_file(str(self._record_path), f"{number}\n".encode())
        except errors.HetschedError as error:
            log.warning("%s: can't be written (%s)", self._record_path, error)

    def _connect(self) -> apsw.Connection:
        is_new = self._vfs is None and not self._path.exists()
        connection = database.open_database(self._path, self._format, self._vfs)
        try:
            mode = connection.execute("PRAGMA journal_mode").get
            if mode != "wal":  # the pragma fails without an error
                raise apsw.IOError(f"journal mode is {mode}, not wal")
            connection.set_busy_timeout(0)  # nobody else uses it
            connection.set_wal_hook(self._on_wal)
            if is_new:  # a new state folder's entry; SQLite syncs those in the folder
                folder = str(self._path.parent)
                with (
                    contextlib.suppress(OSError, errors.HetschedError),
                    output_files.open_folder(folder) as parent,
                ):
                    output_files.fsync(folder, parent)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

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

    def _failed(self, error: Exception) -> errors.HetschedError:
        code = self._connection.system_errno if self._connection is not None else 0
        self._drop_connection()
        # SQLite has an error of its own for ENOSPC only.
        is_full = isinstance(error, apsw.IOError) and code in errors.NO_SPACE
        return write_error(self._path, apsw.FullError(os.strerror(code)) if is_full else error)

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        self._must_repair = True
        if connection is not None:
            with contextlib.suppress(apsw.Error):
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.close(True)

    def _on_wal(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK


def forget_refused(writes: Sequence[journal_records.Write]) -> list[journal_records.Write]:
    """Return what deletes the jobs that were refused because these writes failed: some of them
    may be in the file all the same.
    """
    waited_for = [write.records for write in writes if write.on_done is not None]
    jobs = [each for records in waited_for for each in records if isinstance(each, JournaledJob)]
    forgotten = [journal_records.JobForgotten(job.number) for job in jobs]
    return [journal_records.Write(forgotten)] if forgotten else []


def write_error(path: Path, error: Exception) -> errors.HetschedError:
    if isinstance(error, errors.ConfigError):
        return errors.CantCreate(str(error))
    if isinstance(error, apsw.FullError):
        return errors.CantCreate(
            f"{path}: no room to record the job; make room, then submit it again"
        )
    if isinstance(error, _NOT_WRITABLE):
        return errors.CantCreate(f"{path}: can't be written ({error}); make it writable again")
    if isinstance(error, apsw.Error):
        return errors.IOFailure(f"{path}: the job can't be recorded ({error}); check the disk")
    return errors.InternalError(f"{path}: {type(error).__name__}: {error}")


def open_error(path: Path, error: Exception) -> errors.ConfigError:
    if isinstance(error, errors.ConfigError):
        return error
    if isinstance(error, apsw.BusyError):
        return errors.ConfigError(
            f"{path}: in use by another daemon; stop it, or set HETSCHED_STATE_DIR to another"
            " folder"
        )
    state = "damaged" if isinstance(error, database.UNREADABLE) else "can't be opened"
    return errors.ConfigError(f"{path}: {state} ({error}); check its disk")


def rewrite_wal(path: Path, vfs: str | None) -> bool:
    """Write the WAL again, and sync it; return whether there was something. Raises apsw.Error.

    The caller holds the lock of the database, and opens it again before it writes.
    """
    flags = [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE, 0]
    try:
        wal = apsw.VFSFile(vfs or apsw.vfs_names()[0], f"{path}-wal", flags)
    except apsw.CantOpenError:
        return False  # there is none, or SQLite reports why it can't be opened
    with contextlib.ExitStack() as stack:
        stack.callback(wal.xClose)
        size, step = wal.xFileSize(), 1 << 16  # SQLite's VFS writes at most 128 KiB at once
        for offset in range(0, size, step):
            wal.xWrite(wal.xRead(min(step, size - offset), offset), offset)
        if size:
            wal.xSync(apsw.SQLITE_SYNC_FULL)
    return size > 0
