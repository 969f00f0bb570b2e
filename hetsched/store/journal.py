"""The journal of the daemon's jobs: written by a thread, many records in each commit.

While a commit waits for the disk, the next one's records gather. The loop's thread never waits.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hetsched import errors
from hetsched.paths import private_folder
from hetsched.store import journal_records
from hetsched.store.journal_file import JournalFile, forget_refused
from hetsched.store.journal_records import JournaledJob

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
        bounds: journal_records.HistoryBounds | None = None,
        vfs: str | None = None,
        deadline: float = DEADLINE_SECONDS,
    ) -> None:
        """`deadline`: see `expire`. Raises ConfigError."""
        if vfs is None:
            private_folder(path.parent, "state folder")
        self._file = JournalFile(path, bounds or journal_records.HistoryBounds(), time.time(), vfs)
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
