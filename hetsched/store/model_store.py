"""The learnt models, kept between runs in ``models.db``, shared by the daemon and embedded runs.

If the file can't be used (disk full, made read-only during a run, of a newer version), one warning
is logged and learning continues in memory: no job fails because of it. What couldn't be written is
written once that is possible again.

Processes that share the file add to its records under its lock and lose none of each other's
runs. Each reads again what it needs when another one has written.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import apsw

from hetsched.bounded_cache import BoundedCache
from hetsched.models import DeviceModel
from hetsched.models.history import History
from hetsched.models.races import NO_RACES, Race, RaceRecord
from hetsched.models.samples import Sample
from hetsched.paths import private_folder
from hetsched.store import database, model_records
from hetsched.store.model_records import ModelKey, RaceKey

T = TypeVar("T")

log = logging.getLogger(__name__)

MAX_BYTES = 64 << 20
"""Bytes of the histories in memory by default."""
FILE_TO_MEMORY = 2
"""Largest size of the file, as a multiple of that."""
DELETED_FRACTION = 0.1
"""Part of the models deleted at once when the file is too large. Arbitrary."""
MAX_PENDING = 1000
"""Runs and races kept for writing while the file can't be written."""
MAX_RACE_KEYS = 512
"""Kept in memory, a few kilobytes each. Arbitrary."""


class ModelStore:
    """The models of this machine; one thread at a time. `path`: None: in memory only.

    `max_bytes`: of the histories in memory; the file may have twice that. Those used least
    recently are dropped from memory, those observed least recently from the file.
    """

    def __init__(
        self, path: Path | None, *, read_only: bool = False, max_bytes: int = MAX_BYTES
    ) -> None:
        self._name = str(path)
        self._max_file_bytes = FILE_TO_MEMORY * max_bytes
        self._histories: BoundedCache[ModelKey, History] = BoundedCache(max_bytes=max_bytes)
        self._races: BoundedCache[RaceKey, RaceRecord] = BoundedCache(max_entries=MAX_RACE_KEYS)
        # What isn't in the file yet.
        self._new_runs: deque[tuple[ModelKey, Sequence[Sample], float]] = deque(maxlen=MAX_PENDING)
        self._new_races: deque[tuple[RaceKey, Race]] = deque(maxlen=MAX_PENDING)
        self._has_warned = False
        try:
            self._connection = _open(path, read_only)
        except (*database.DAMAGE, database.RefusedFile, OSError) as error:
            self._warn(error)
            self._connection = _open(None, read_only)
        self._data_version = database.data_version(self._connection)

    # ---- models

    def load_many(
        self, keys: Iterable[ModelKey], link: bool | None = None
    ) -> list[DeviceModel | None]:
        """A model never changes. `link`: whether the device has a link, so that its chunks' phases
        are Affine; by default, whether copies were observed.
        """
        self._refresh()
        return [self._history(key).model(link) for key in keys]

    def runs(self, key: ModelKey) -> int:
        return self._history(key).runs

    def shares(self, key: ModelKey) -> list[Sample]:
        return list(self._history(key).windows("total") or ())

    def keys(self) -> list[ModelKey]:
        keys = {key for key, history in self._histories.items() if history.runs}
        keys.update(self._read(lambda db: model_records.read_keys(db, ModelKey)) or ())
        return sorted(keys)

    def observe_many(self, runs: Iterable[tuple[ModelKey, Sequence[Sample]]], at: float) -> None:
        """Learn from all devices of a run; `at`: seconds since the epoch. Written by `flush`."""
        for key, samples in runs:
            history = self._history(key)
            history.add(samples, at)
            history.model()  # fitted now, so that the next plan needn't wait for it
            self._new_runs.append((key, samples, at))
            self._histories.put(key, history, history.nbytes)

    def _history(self, key: ModelKey) -> History:
        history = self._histories.get(key)
        if history is None:
            stored = self._read(lambda db: model_records.read(db, key, model_records.StoredModel))
            history = stored.history() if stored else History()
            for other, samples, at in self._new_runs:
                if other == key:
                    history.add(samples, at)
            self._histories.put(key, history, history.nbytes)
        return history

    # ---- races

    def races(self, key: RaceKey) -> RaceRecord:
        record = self._races.get(key)
        if record is None:
            stored = self._read(lambda db: model_records.read(db, key, model_records.StoredRaces))
            record = stored.record() if stored else NO_RACES
            for other, race in self._new_races:
                record = record.with_race(race) if other == key else record
            self._races.put(key, record)
        return record

    def add_race(self, key: RaceKey, race: Race) -> None:
        self._races.put(key, self.races(key).with_race(race))
        self._new_races.append((key, race))

    # ---- the file

    def flush(self) -> None:
        if not (self._new_runs or self._new_races):
            return
        try:
            with database.transaction(self._connection):
                self._write_all(self._connection)
        except (*database.DAMAGE, database.RefusedFile) as error:
            self._warn(error)
            return
        self._has_warned = False
        # Only now: a failed transaction leaves the file as it was.
        self._new_runs.clear()
        self._new_races.clear()

    def close(self) -> None:
        self.flush()
        self._connection.close()

    def _refresh(self) -> None:
        """Drop what was read if another process has written since, to be read again."""
        data_version = self._read(database.data_version)
        if data_version is not None and data_version != self._data_version:
            self._data_version = data_version
            self._histories.clear()
            self._races.clear()

    def _read(self, action: Callable[[apsw.Connection], T]) -> T | None:
        try:
            database.check_version(self._connection, model_records.FORMAT, self._name)
            return action(self._connection)
        except (*database.DAMAGE, database.RefusedFile) as error:
            self._warn(error)
            return None

    def _warn(self, error: Exception) -> None:
        """Log the first error since the file was last written."""
        if not self._has_warned and isinstance(error, database.RefusedFile):
            log.warning("%s; new measurements stay in memory", error)
        elif not self._has_warned:
            remedy = "make room, or delete the file to start afresh"
            message = "%s: %s; new measurements stay in memory; %s"
            log.warning(message, self._name, error, remedy)
        self._has_warned = True

    def _write_all(self, connection: apsw.Connection) -> None:
        database.check_version(connection, model_records.FORMAT, self._name)
        histories: dict[ModelKey, History] = {}
        for key, samples, at in self._new_runs:
            if key not in histories:
                stored = model_records.read_again(connection, key, model_records.StoredModel)
                histories[key] = stored.history() if stored else History()
            histories[key].add(samples, at)
        for key, history in histories.items():
            model_records.write(connection, key, model_records.StoredModel.of(key, history))
        for race_key, race in self._new_races:
            before = model_records.read_again(connection, race_key, model_records.StoredRaces)
            races = (*before.races, race) if before else (race,)
            stored_races = model_records.StoredRaces.of(race_key, races)
            model_records.write(connection, race_key, stored_races)
        if model_records.used_bytes(connection) > self._max_file_bytes:
            keys = model_records.read_keys(connection, ModelKey)
            oldest = keys[: max(1, int(len(keys) * DELETED_FRACTION))]
            model_records.delete_models(connection, oldest)


def _open(path: Path | None, read_only: bool) -> apsw.Connection:
    if path is None or (read_only and not path.exists()):
        return database.open_database(None, model_records.FORMAT)
    if read_only:
        return database.open_for_reading(path, model_records.FORMAT)
    private_folder(path.parent, "state folder")
    tried = path.stat().st_ino if path.exists() else 0
    try:
        return _open_whole(path)
    except database.UNREADABLE as error:
        # Another process may have replaced it by a new one meanwhile.
        if path.stat().st_ino == tried:
            aside = database.set_aside(path)
            log.warning("%s: can't be read (%s); it is now %s", path, error, aside)
        return _open_whole(path)


def _open_whole(path: Path) -> apsw.Connection:
    connection = database.open_database(path, model_records.FORMAT)
    try:
        model_records.read_keys(connection, ModelKey)
    except BaseException:
        connection.close()
        raise
    return connection
