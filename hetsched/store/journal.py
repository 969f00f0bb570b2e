"""The journal of the daemon's jobs: written by a thread, many records in each commit.

While a commit waits for the disk, the next one's records gather. The loop's thread never waits.

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
import functools
import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from hetsched import errors
from hetsched.config import JournalConfig
from hetsched.paths import private_folder
from hetsched.store import database, journal_records, output_files
from hetsched.store.journal_records import JournaledJob
from hetsched.units import NUMBER_LIMIT

log = logging.getLogger(__name__)

GATHER_SECONDS = 2.0
"""How long a write that nobody waits for may wait: a commit costs milliseconds of processor time,
and a volatile job that has ended lasts one."""
MAX_GATHERED = 256
"""Writes that wait for that; more are written at once."""
MAX_UNWRITTEN = 4096
"""More, while the disk doesn't respond or is full, and the oldest volatile jobs are dropped."""
RETRY_SECONDS = 1.0
"""How long after a failure what was kept is written again."""
LOADED_ENDED_JOBS = 1000
DEADLINE_SECONDS = 30.0

CallSoon = Callable[[Callable[[], None]], object]
OnRows = Callable[[list[JournaledJob], errors.HetschedError | None], None]
Query = tuple[journal_records.HistoryFilter, OnRows]


@dataclass
class JournalStatistics:
    """Commits since the daemon's start. Times in seconds; `last_at`: since the epoch, or None."""

    commits: int = 0
    failures: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    last_at: float | None = None


class Journal:
    """`load` it, then write, on the loop's thread, where callbacks are called, too."""

    def __init__(
        self,
        path: Path,
        call_soon_threadsafe: CallSoon,
        kept: JournalConfig | None = None,
        vfs: str | None = None,
        deadline: float = DEADLINE_SECONDS,
    ) -> None:
        """`deadline`: see `expire`. Raises ConfigError."""
        if vfs is None:
            private_folder(path.parent, "state folder")
        self._file = JournalFile(path, kept or JournalConfig(), time.time(), vfs)
        self._call_soon = call_soon_threadsafe
        self._path = path
        self._deadline = deadline
        self._lock = threading.Condition(threading.Lock())
        self._writes: list[journal_records.Write] = []
        self._due = math.inf
        self._queries: list[Query] = []
        self._committing: list[journal_records.Write] = []
        self._busy_since = math.inf
        """When the present commit began."""
        self._has_expired = False
        """Those who wait for the present commit have been answered."""
        self._is_closing = False
        self._failure: errors.HetschedError | None = None
        self.statistics = JournalStatistics()
        self.numbers = journal_records.NumberBlocks(
            self._file.next_number,
            self._file.reserved,
            lambda upto: self.write((journal_records.NumbersReserved(upto),), urgent=True),
        )
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    def load(self, ended: int = LOADED_ENDED_JOBS) -> journal_records.JournalContents:
        """Read the jobs of earlier daemons; before the first write. Raises ConfigError."""
        assert not self._thread.is_alive()
        return self._file.load(ended)

    def write(
        self,
        records: Sequence[journal_records.Record],
        on_done: journal_records.OnWritten | None = None,
        urgent: bool = False,
    ) -> None:
        """Write `records`, all or none of them.

        `on_done` is called with None once they are on disk, or with the error: CantCreate (no
        room, or not writable), IOFailure. Without it they are kept after an error, and may wait
        for 2 s unless `urgent`.
        """
        write = journal_records.Write(records, on_done)
        now = time.monotonic()
        refusal: errors.HetschedError | None = None
        if self._is_closing:
            refusal = errors.TryAgain("the daemon is stopping")
        elif on_done is not None:
            refusal = self._stall(now)
        if refusal is not None:  # later, as every outcome, so that the caller isn't interrupted
            self._call_soon(functools.partial(self._report, [(write, refusal)]))
            return
        with self._lock:
            self._writes.append(write)
            if len(self._writes) > MAX_UNWRITTEN:
                volatile = (each for each in self._writes if each.on_done is None)
                jobs = (w for w in volatile if isinstance(w.records[0], JournaledJob))
                if (oldest := next(jobs, None)) is not None:
                    self._writes.remove(oldest)
            is_due = urgent or on_done is not None or len(self._writes) >= MAX_GATHERED
            due = now if is_due else now + GATHER_SECONDS
            if due < self._due:
                self._due = due
                self._lock.notify()
        self._start()

    def query(self, wanted: journal_records.HistoryFilter, on_done: OnRows) -> None:
        """Read jobs, what was written before included: ``on_done(jobs, error)``."""
        with self._lock:
            self._queries.append((wanted, on_done))
            self._lock.notify()
        self._start()

    def expire(self, now: float) -> None:
        """Answer those who wait for a disk that hasn't responded for the deadline: IOFailure. New
        jobs among them are deleted if the commit succeeds after all. `now`: monotonic seconds.
        """
        with self._lock:
            stall = self._stall(now)
            if stall is None:
                return
            expired = [write for write in self._writes if write.on_done is not None]
            self._writes = [write for write in self._writes if write.on_done is None]
            if not self._has_expired:
                self._has_expired = True
                expired = self._committing + expired
        self._report([(write, stall) for write in expired])

    @property
    def failure(self) -> errors.HetschedError | None:
        return self._stall(time.monotonic()) or self._failure

    def close(self, deadline: float) -> bool:
        with self._lock:
            self._is_closing = True
            self._lock.notify()
        self._start()
        self._thread.join(deadline)
        if self._thread.is_alive():
            log.warning(
                "%s: the disk hasn't responded for %g s; stopping without it", self._path, deadline
            )
            return False
        return True

    def _stall(self, now: float) -> errors.HetschedError | None:
        if now - self._busy_since < self._deadline:
            return None
        return errors.IOFailure(
            f"{self._path}: the disk hasn't responded for {self._deadline:g} s; check it, then"
            " submit the job again"
        )

    # ---- the thread

    def _start(self) -> None:
        if self._thread.ident is None:
            self._thread.start()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._is_closing
            try:
                writes, queries, is_last = self._next_work()
                if writes:
                    self._commit(writes)
                for wanted, on_done in queries:
                    rows, failure = [], None
                    try:
                        rows = self._file.query(wanted)
                    except errors.HetschedError as error:
                        failure = error
                    self._call_soon(functools.partial(on_done, rows, failure))
                self._file.maintain(time.time())
            except Exception:  # a bug; the thread must go on
                log.exception("unexpected error in the journal's thread")
                time.sleep(RETRY_SECONDS)
        if self._writes:
            log.warning("%s: %d last records weren't written", self._path, len(self._writes))
        is_certain = self._failure is None and not self._writes
        self._file.close(self.numbers.last if is_certain else None)

    def _next_work(self) -> tuple[list[journal_records.Write], list[Query], bool]:
        with self._lock:
            while not self._queries and not self._is_closing:
                seconds = self._due - time.monotonic()
                if seconds <= 0:
                    break
                self._lock.wait(None if math.isinf(seconds) else seconds)
            queries, self._queries = self._queries, []
            self._committing, self._writes = self._writes, []
            self._due = math.inf
            if self._committing:
                self._busy_since, self._has_expired = time.monotonic(), False
            return self._committing, queries, self._is_closing

    def _commit(self, writes: list[journal_records.Write]) -> None:
        outcomes: Sequence[errors.HetschedError | None]
        retry: list[journal_records.Write] = []
        failure = None
        try:
            outcomes = self._file.commit(writes)
        except errors.HetschedError as error:
            failure = error
            outcomes = [failure] * len(writes)
            retry = [write for write in writes if write.on_done is None]
            self.statistics.failures += 1
            if self._failure is None:
                log.error("%s", failure)
        else:
            seconds = time.monotonic() - self._busy_since
            self.statistics.commits += 1
            self.statistics.seconds += seconds
            self.statistics.longest = max(self.statistics.longest, seconds)
            self.statistics.last_at = time.time()
            if self._failure is not None:
                log.warning("%s: can be written again", self._path)
        self._failure = failure
        with self._lock:
            self._busy_since = math.inf
            has_expired = self._has_expired
            if failure is not None or has_expired:
                retry += forget_refused(writes)
            self._writes[:0] = retry
            if retry:
                self._due = min(self._due, time.monotonic() + RETRY_SECONDS)
        self.numbers.reserved = self._file.reserved
        if not has_expired:
            results = list(zip(writes, outcomes, strict=True))
            self._call_soon(functools.partial(self._report, results))

    def _report(
        self, results: Sequence[tuple[journal_records.Write, errors.HetschedError | None]]
    ) -> None:
        for write, outcome in results:
            if write.on_done is None:
                continue
            try:
                write.on_done(outcome)
            except Exception:
                log.exception("unexpected error in a callback of the journal")


# ---- the file, and its only connection

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
        kept: JournalConfig,
        now: float,
        vfs: str | None = None,
        file_format: database.DatabaseFormat = journal_records.FORMAT,
        checkpoint_pages: int = CHECKPOINT_PAGES,
    ) -> None:
        """Raises ConfigError; the file is left as it is then. The last three are for tests: with a
        `vfs` there is no second record of numbers.
        """
        self._path, self._kept, self._vfs = path, kept, vfs
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
                    journal_records.trim_ended(connection, self._kept, now)
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
            journal_records.trim_ended(connection, self._kept, now)

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
