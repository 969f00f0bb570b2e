"""The learnt models, kept between runs in ``models.db``, shared by the daemon and embedded runs.

Owns a copy in memory of the part of the file that is in use. If the file can't be used (disk
full, made read-only during a run, of a newer version), one warning is logged and learning
continues in memory: no job fails because of it. Data that couldn't be written is written once the
file is usable again. A file that can't be read when it is opened is set aside.

Processes that share the file add to its records under its lock and lose none of each other's
runs. Each reads again what others wrote when the file's `data_version` has changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path

import apsw

from hetsched.bounded_cache import BoundedCache
from hetsched.models import DeviceModel
from hetsched.models.evidence.change_detector import SpeedChange
from hetsched.models.evidence.history import History
from hetsched.models.evidence.probe_state import ProbeState
from hetsched.models.evidence.races import NO_RACES, Race, RaceRecord
from hetsched.models.evidence.run_medians import run_medians
from hetsched.models.evidence.samples import CurveName, Sample
from hetsched.paths import private_folder
from hetsched.store import database, model_records
from hetsched.store.database import TolerantDatabase
from hetsched.store.model_records import (
    ModelKey,
    ProbeKey,
    RaceKey,
    StoredModel,
    StoredProbe,
    StoredRace,
    StoredRaces,
)

__all__ = ["ModelKey", "ModelStore"]

MAX_BYTES = 64 << 20
"""Bytes of the histories in memory by default."""
FILE_TO_MEMORY = 2
"""Largest size of the file, as a multiple of that."""
DELETED_FRACTION = 0.1
"""Part of the models deleted at once when the file is too large. Arbitrary."""
MAX_PENDING = 1000
"""Runs, and races, kept for writing while the file can't be written."""
MAX_RACE_KEYS = 512
"""Kept in memory, a few kilobytes each. Arbitrary."""
MAX_PROBE_KEYS = 10_000
"""Kept in memory, those of devices that have a share included. Arbitrary."""


class ModelStore:
    """The models of this machine. Used by one thread at a time, any thread.

    `path`: None: in memory only. `copy`: copy the file into memory and don't change it.
    `max_bytes`: of the histories in memory; the file may have twice that. Those used least
    recently are dropped from memory, those observed least recently from the file.
    """

    def __init__(
        self, path: Path | None, *, copy: bool = False, max_bytes: int = MAX_BYTES
    ) -> None:
        self._name = str(path)
        self._histories: BoundedCache[ModelKey, History] = BoundedCache()
        self._max_bytes = max_bytes
        self._max_file_bytes = FILE_TO_MEMORY * max_bytes
        self._races: BoundedCache[RaceKey, RaceRecord] = BoundedCache(max_entries=MAX_RACE_KEYS)
        self._probes: BoundedCache[ProbeKey, ProbeState | None] = BoundedCache(
            max_entries=MAX_PROBE_KEYS
        )
        # What isn't in the file yet.
        self._new_runs: deque[tuple[ModelKey, list[Sample], float]] = deque(maxlen=MAX_PENDING)
        self._new_races: deque[tuple[RaceKey, Race, float]] = deque(maxlen=MAX_PENDING)
        self._new_probes: dict[ProbeKey, ProbeState | None] = {}
        if path is not None and not copy:
            private_folder(path.parent, "state folder")

        def opened() -> apsw.Connection:
            self._data_version = self._last_id = 0  # of a new file, perhaps
            connect = database.open_copy if copy else database.open_database
            return connect(path, model_records.FORMAT)

        self._file = TolerantDatabase(None if copy else path, self._name, opened, self._catch_up)

    # ---- models

    def load(self, key: ModelKey, link: bool | None = None) -> DeviceModel | None:
        """Return the model of `key`, or None. A returned model never changes.

        `link`: whether the device has a link, so that its chunks' phases are Affine; by default,
        whether copies were observed.
        """
        return self.load_many([key], link)[0]

    def load_many(
        self, keys: Iterable[ModelKey], link: bool | None = None
    ) -> list[DeviceModel | None]:
        """As `load`, for all `keys`, checking the file once."""
        self._refresh()
        models = [self._history(key).model(link) for key in keys]
        self._trim()
        return models

    def runs(self, key: ModelKey) -> int:
        return self._history(key).runs

    def keys(self) -> list[ModelKey]:
        keys = {key for key, history in self._histories.items() if history.runs}
        keys.update(self._file.read(lambda db: model_records.read_keys(db, ModelKey)) or ())
        return sorted(keys)

    def observe(self, key: ModelKey, samples: Sequence[Sample], at: float) -> None:
        """Learn from one run; `at`: seconds since the epoch. Never fails because of the file."""
        self.observe_many([(key, samples)], at)

    def observe_many(
        self, runs: Iterable[tuple[ModelKey, Sequence[Sample]]], at: float, *, flush: bool = True
    ) -> dict[ModelKey, SpeedChange]:
        """As `observe`, for all devices of a run, in one transaction. Without `flush` the data is
        written at the next `flush` or `close`. Returns the changes of speed that this run
        confirmed.
        """
        observed = {key: self._add(key, samples, at) for key, samples in runs}
        changes: dict[ModelKey, SpeedChange] = {}
        for key, history in observed.items():
            if history.changes:
                self._propagate(key, history.changes, observed)
            if history.change is not None:
                changes[key] = history.change
        if flush:
            self.flush()
        for key in observed:
            history = self._history(key)
            history.model()  # fitted now, so that the next plan needn't wait for it
            self._histories.put(key, history, history.nbytes)
        self._trim()
        return changes

    def _add(self, key: ModelKey, samples: Sequence[Sample], at: float) -> History:
        """Add one device's part of a run to its history, and to what is to be written."""
        history = self._history(key)
        samples = history.as_warm(history.without_calls(samples))
        medians = history.with_ratios(run_medians(samples))
        history.add(medians)
        history.runs += 1
        self._new_runs.append((key, history.stored(medians), at))
        return history

    def _propagate(
        self,
        changed: ModelKey,
        changes: Mapping[CurveName, float],
        observed: Container[ModelKey],
    ) -> None:
        device = changed.workload, changed.device, changed.storage
        for key in self.keys():
            if (key.workload, key.device, key.storage) == device and key not in observed:
                self._history(key).apply_changes(changes)

    def _history(self, key: ModelKey) -> History:
        history = self._histories.get(key)
        if history is None:
            stored = self._file.read(lambda db: model_records.read(db, key, StoredModel))
            history = stored.history() if stored else History()
            self._histories.put(key, history, history.nbytes)
        return history

    def _trim(self) -> None:
        pinned = {key for key, _, _ in self._new_runs}
        self._histories.trim(
            self._max_bytes, lambda key, history: key in pinned or history.rewritten
        )

    # ---- races, and devices without a share

    def races(self, key: RaceKey) -> RaceRecord:
        record = self._races.get(key)
        if record is None:
            stored = self._file.read(lambda db: model_records.read(db, key, StoredRaces))
            record = stored.record() if stored else NO_RACES
            for other, race, _ in self._new_races:
                record = model_records.with_race(record, race) if other == key else record
            self._races.put(key, record)
        return record

    def add_race(self, key: RaceKey, race: Race, at: float) -> None:
        """Add a race; without paces, a change of speed. Written at the next `flush`."""
        self._races.put(key, model_records.with_race(self.races(key), race))
        self._new_races.append((key, race, at))

    def probe_state(self, key: ProbeKey) -> ProbeState | None:
        """Return the state of a device without a share; None if it has one."""
        if key in self._new_probes:
            return self._new_probes[key]

        def read() -> ProbeState | None:
            stored = self._file.read(lambda db: model_records.read(db, key, StoredProbe))
            return stored.state if stored else None

        return self._probes.get_or_compute(key, read)

    def set_probe_state(self, key: ProbeKey, state: ProbeState | None) -> None:
        """Record the state of `key`. Written at the next `flush`."""
        if state != self.probe_state(key):
            self._new_probes[key] = state

    # ---- the file

    def flush(self) -> None:
        if self._file.connection is not None and not self._write_news():
            return
        self._new_runs.clear()
        self._new_races.clear()
        for key, state in self._new_probes.items():
            self._probes.put(key, state)
        self._new_probes.clear()

    def close(self) -> None:
        """Write pending runs and close the file. Models stay in memory."""
        self.flush()
        self._file.close()

    def _refresh(self) -> None:
        if self._file.read(database.data_version) != self._data_version:
            self._file.read(self._catch_up)

    def _catch_up(self, connection: apsw.Connection) -> None:
        """Drop what other processes have written since the last call, to be read again."""
        database.check_version(connection, model_records.FORMAT, self._name)
        # Read first, so that concurrent writes are detected next time.
        data_version = database.data_version(connection)
        if data_version != self._data_version:
            self._data_version = data_version
            self._probes.clear()
        self._last_id, changed = model_records.read_changes(connection, self._last_id)
        if None in changed:
            self._histories.clear()
            self._races.clear()
        for key in changed:
            if isinstance(key, RaceKey):
                self._races.pop(key)
            elif isinstance(key, ModelKey) and key in self._histories:
                self._read_again(connection, key)

    def _read_again(self, connection: apsw.Connection, key: ModelKey) -> None:
        """Read a model that another process has changed; add the runs that only we know of."""
        stored = model_records.read_again(connection, key, StoredModel)
        history = stored.history() if stored else History()
        for other, samples, _ in self._new_runs:
            if other == key:
                history.add(samples)
                history.runs += 1
        self._histories.put(key, history, history.nbytes)

    def _write_news(self) -> bool:
        """Write in a transaction; return whether there was something, and it was committed."""
        if not (self._new_runs or self._new_races or self._new_probes):
            return False
        before = self._last_id
        rewritten: list[History] = []
        if not self._file.write(lambda db: self._write_all(db, rewritten)):
            self._last_id = before  # the next write gives the same ids
            return False
        # Only now: a failed transaction leaves the file as it was.
        for history in rewritten:
            history.rewritten = False
        return True

    def _write_all(self, connection: apsw.Connection, rewritten: list[History]) -> None:
        """Append to `rewritten` the histories whose stored observations were replaced."""
        # Under the lock no other process writes: later records are our own.
        self._catch_up(connection)
        self._write_models(connection, rewritten)
        for key, race, at in self._new_races:
            before = model_records.read_again(connection, key, StoredRaces)
            added = StoredRace(race.number, race.units, dict(race.paces), at)
            races = (*before.races, added) if before else (added,)
            model_records.write(connection, StoredRaces.of(key, races))
        model_records.write_probes(connection, self._new_probes)
        if model_records.used_bytes(connection) > self._max_file_bytes:
            keys = model_records.read_keys(connection, ModelKey)
            oldest = keys[: max(1, int(len(keys) * DELETED_FRACTION))]
            model_records.delete_models(connection, oldest)
        self._last_id = model_records.last_id(connection)

    def _write_models(self, connection: apsw.Connection, rewritten: list[History]) -> None:
        models: dict[ModelKey, StoredModel] = {}
        for key, samples, at in self._new_runs:
            if key not in models:
                stored = model_records.read_again(connection, key, StoredModel)
                models[key] = stored or StoredModel.of(key, 0, ())
            models[key] = models[key].with_run(samples, at)
        for key, history in self._histories.items():
            if key in models:
                history.runs = models[key].runs
            if history.rewritten and models:
                # A change of speed scaled or dropped older observations.
                at = self._new_runs[-1][2]
                seen = model_records.observations_of(history.samples(), at)
                models[key] = StoredModel.of(key, history.runs, seen)
                rewritten.append(history)
        for model in models.values():
            model_records.write(connection, model)
