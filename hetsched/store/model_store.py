"""What was learnt, kept between runs: ``models.db``, shared by daemon and embedded runs.

Owns a copy in memory of what is needed of the file. A file that can't be used (disk full, made
read-only in mid-run, broken, of a newer version) costs one warning, and learning goes on in
memory: no job ever fails for it. What couldn't be written is written later, should the file work
again.

SQLite with a rollback journal, one row an observation: processes that share the file add rows
under its lock and lose none of each other's. Each reads what others added when the file's
`data_version` says that there is something.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import apsw

from hetsched.models import DeviceModel
from hetsched.models.evidence.drift import Change
from hetsched.models.evidence.history import History, latest, runs_of
from hetsched.models.evidence.samples import CurveName, Sample
from hetsched.paths import private_folder
from hetsched.store import models_db
from hetsched.store.models_db import ModelKey, NewerFile

__all__ = ["ModelKey", "ModelStore"]

MOST_PENDING = 1000
"""Runs that wait for a file that can't be written; beyond it the oldest stay in memory only."""

UNUSABLE = (apsw.Error, NewerFile)
"""What a file may do to us without stopping a job."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class ModelStore:
    """The models of this machine. Used by one thread at a time, any.

    Parameters
    ----------
    path : Path or None
        None: in memory only.
    copy : bool
        What the file knows is copied into memory; the file stays as it is.

    Raises
    ------
    ConfigError
        The folder or file can't be written; can't be read, where it is copied.
    """

    def __init__(self, path: Path | None, *, copy: bool = False) -> None:
        self._name = str(path)
        self._histories: dict[ModelKey, History] = {}
        self._pending: deque[tuple[ModelKey, list[Sample], float]] = deque(maxlen=MOST_PENDING)
        self._warned = False
        self._db: apsw.Connection | None = None
        self._seen = self._last = self._forgotten = 0
        if path is not None and not copy:
            private_folder(path.parent, "state folder")
        try:
            self._db = models_db.copied(path) if copy else models_db.connect(path)
            self._catch_up(self._db)
        except UNUSABLE as error:
            self._warn(error)
            self._db = None

    def load(self, key: ModelKey, link: bool | None = None) -> DeviceModel | None:
        """What is known of `key`, or None. The model never changes once it is handed out.

        Parameters
        ----------
        link : bool, optional
            Whether the device has a link, so that its chunks' phases are Affine. By default,
            whether copies were observed.
        """
        return self.load_many([key], link)[0]

    def load_many(
        self, keys: Iterable[ModelKey], link: bool | None = None
    ) -> list[DeviceModel | None]:
        """As `load`, for all `keys` with one look at the file."""
        self._refresh()
        return [self._history(key).model(link) for key in keys]

    def runs(self, key: ModelKey) -> int:
        """How many runs of `key` were observed, ever."""
        return self._history(key).runs

    def observe(self, key: ModelKey, found: Sequence[Sample], at: float) -> None:
        """Learn from one run; `at`: seconds since the epoch. Never fails for the file's sake."""
        self.observe_many([(key, found)], at)

    def observe_many(
        self, runs: Iterable[tuple[ModelKey, Sequence[Sample]]], at: float, *, flush: bool = True
    ) -> dict[ModelKey, Change]:
        """As `observe`, for all devices of a run: one transaction, so one wait for the disk.

        Without `flush` the file gets it later: at the next `flush` or `close`.

        Returns
        -------
        dict of ModelKey to Change
            Whose speed has changed, as is believed since this run.
        """
        touched: dict[ModelKey, History] = {}
        for key, found in runs:
            history = self._history(key)
            kept = latest(found)
            history.add(kept)
            history.runs += 1
            self._pending.append((key, kept if history.counts(kept) else [], at))
            touched[key] = history
        for key, history in touched.items():
            if history.changes:
                self._follow(key, history.changes, touched)
        if flush:
            self.flush()
        for history in touched.values():
            history.model()  # fitted now, so that the next plan needn't wait for it
        return {key: one.change for key, one in touched.items() if one.change is not None}

    def _follow(
        self, changed: ModelKey, changes: Mapping[CurveName, float], but: Container[ModelKey]
    ) -> None:
        """What one variant shows of a device's speed holds for the others, and for other sizes."""
        device = changed.workload, changed.device, changed.place
        for key in self.keys():
            if (key.workload, key.device, key.place) == device and key not in but:
                self._history(key).follow(changes)

    def keys(self) -> list[ModelKey]:
        """All keys of which something is known, sorted."""
        found = {key for key, history in self._histories.items() if history.runs}
        found.update(self._reading(models_db.keys) or ())
        return sorted(found)

    def forget(
        self, *, workload: str | None = None, variant: str | None = None, device: str = ""
    ) -> int:
        """Forget all keys that match what is given (`device` by its start); how many they were."""
        gone = {
            key
            for key in self.keys()
            if workload in (None, key.workload)
            and variant in (None, key.variant)
            and key.device.startswith(device)
        }
        for key in gone:
            self._histories.pop(key, None)
        waiting = [one for one in self._pending if one[0] not in gone]
        self._pending = deque(waiting, MOST_PENDING)
        self._writing(lambda db: models_db.forget(db, gone))
        return len(gone)

    def close(self) -> None:
        """Write what still waits, and let go of the file. What was learnt stays in memory."""
        self.flush()
        if self._db is not None:
            self._db.close()
            self._db = None

    def _history(self, key: ModelKey) -> History:
        if key not in self._histories:
            # Rows after the last one seen come by the next `_catch_up`.
            read = self._reading(lambda db: models_db.read(db, key, self._last))
            self._histories[key] = History(*read) if read else History()
        return self._histories[key]

    def _refresh(self) -> None:
        if self._reading(models_db.data_version) != self._seen:
            self._reading(self._catch_up)

    def _catch_up(self, db: apsw.Connection) -> None:
        """Take over what other processes have written since last time."""
        models_db.check(db, self._name)
        # Asked first, so that what is written meanwhile is seen next time.
        self._seen = models_db.data_version(db)
        times = models_db.forgotten(db)
        if times != self._forgotten:
            self._forgotten = times
            self._histories.clear()
            self._last = models_db.last_id(db)
        others: dict[ModelKey, list[Sample]] = {}
        for number, key, runs, sample in models_db.added(db, self._last):
            self._last = number
            history = self._histories.get(key)
            if history is not None:
                others.setdefault(key, []).append(sample)
                history.runs = max(history.runs, runs)
        for key, found in others.items():
            for run in runs_of(found):
                self._histories[key].add(run)

    def flush(self) -> None:
        """Write what the file doesn't have yet."""
        written: list[History] = []
        if self._db is None:
            self._pending.clear()
        elif self._pending and self._writing(lambda db: self._write_pending(db, written)):
            self._pending.clear()
            # Only now: a transaction that fails leaves the file as it was.
            for history in written:
                history.rewritten = False
            self._forgotten += len(written)  # as `replace` announces them

    def _write_pending(self, db: apsw.Connection, written: list[History]) -> None:
        """`written`: gets the histories that were written anew."""
        for key, kept, at in self._pending:
            runs = models_db.add_run(db, key, kept, at)
            if key in self._histories:
                self._histories[key].runs = runs
        for key, history in self._histories.items():
            if history.rewritten:
                # After a change of speed older observations were scaled or have gone.
                models_db.replace(db, key, history.samples(), self._pending[-1][2])
                written.append(history)

    def _reading(self, action: Callable[[apsw.Connection], _T]) -> _T | None:
        if self._db is None:
            return None
        try:
            return action(self._db)
        except UNUSABLE as error:
            self._warn(error)
            return None

    def _writing(self, action: Callable[[apsw.Connection], object]) -> bool:
        """Whether `action` went through, in a transaction of its own."""
        if self._db is None:
            return False
        try:
            with models_db.transaction(self._db):
                # Under the lock nobody else adds rows: those after these are our own.
                self._catch_up(self._db)
                action(self._db)
                last = models_db.last_id(self._db)
        except UNUSABLE as error:
            self._warn(error)
            return False
        self._last = max(self._last, last)
        self._warned = False
        return True

    def _warn(self, error: apsw.Error | NewerFile) -> None:
        """Say once that the file doesn't work, until it does again."""
        if not self._warned and isinstance(error, NewerFile):
            _log.warning("%s; what is learnt stays in memory", error)
        elif not self._warned:
            way_out = "make room or delete the file to start afresh"
            _log.warning("%s: %s; what is learnt stays in memory; %s", self._name, error, way_out)
        self._warned = True
