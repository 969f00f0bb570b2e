"""The learnt models, kept between runs in ``models.db``, shared by the daemon and embedded runs.

Owns a copy in memory of the part of the file that is in use. If the file can't be used (disk
full, made read-only during a run, of a newer version), one warning is logged and learning
continues in memory: no job fails because of it. Data that couldn't be written is written once the
file is usable again. A file that can't be read when it is opened is set aside.

SQLite with a rollback journal, one row per observation: processes that share the file add rows
under its lock and lose none of each other's. Each reads what others added when the file's
`data_version` has changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path

import apsw

from hetsched.bounded_cache import BoundedCache
from hetsched.models import DeviceModel
from hetsched.models.evidence.change_detector import SpeedChange
from hetsched.models.evidence.history import History
from hetsched.models.evidence.probe_state import ProbeState
from hetsched.models.evidence.races import NO_RACES, Race, RaceRecord
from hetsched.models.evidence.run_medians import run_medians, split_runs
from hetsched.models.evidence.samples import CurveName, Sample
from hetsched.paths import private_folder
from hetsched.store import database, model_tables
from hetsched.store.database import TolerantDatabase
from hetsched.store.model_tables import ModelKey, ProbeKey, RaceKey

MAX_KEYS = 512
"""Keys kept in memory, a few kilobytes each. Arbitrary."""
MAX_PENDING = 1000
"""Races kept for writing while the file can't be written."""


class RaceLog:
    """The races by key."""

    def __init__(self) -> None:
        self._records: BoundedCache[RaceKey, RaceRecord] = BoundedCache(max_entries=MAX_KEYS)
        self._pending: list[tuple[RaceKey, Race, float]] = []

    def get(self, key: RaceKey) -> RaceRecord | None:
        """Return the races of `key`; None if they must be read."""
        return self._records.get(key)

    def put(self, key: RaceKey, record: RaceRecord) -> RaceRecord:
        """Keep what was read from the file, with what isn't written yet; return both."""
        for other, race, _ in self._pending:
            record = _with(record, race) if other == key else record
        self._records.put(key, record)
        return record

    @property
    def has_pending(self) -> bool:
        """Whether races aren't written yet."""
        return bool(self._pending)

    def add(self, key: RaceKey, race: Race, at: float) -> None:
        """Add a race, to be written; `at`: seconds since the epoch.

        Without paces it records a change of speed.
        """
        self._records.put(key, _with(self._records.peek(key) or NO_RACES, race))
        self._pending = [*self._pending, (key, race, at)][-MAX_PENDING:]

    def write(self, connection: apsw.Connection) -> None:
        """Write what is pending; call `clear_pending` once that is committed."""
        for key, race, at in self._pending:
            model_tables.add_race(connection, key, race, at)

    def clear_pending(self) -> None:
        self._pending.clear()

    def clear(self) -> None:
        """Read everything again: another process has written."""
        self._records.clear()


def _with(record: RaceRecord, race: Race) -> RaceRecord:
    return record.with_race(race) if race.paces else record.with_change(race.number)


ReadFile = Callable[[Callable[[apsw.Connection], ProbeState | None]], ProbeState | None]
"""``read(action)``: what `action` returns, or None if the file can't be used."""
MAX_PROBE_STATES = 10_000
"""States kept in memory, those of devices that have a share included. Arbitrary."""


class ProbeStates:
    """States by key; a device with a share has none.

    Parameters
    ----------
    read : callable
        Reads the file.
    """

    def __init__(self, read: ReadFile) -> None:
        self._read = read
        self._states: BoundedCache[ProbeKey, ProbeState | None] = BoundedCache(
            max_entries=MAX_PROBE_STATES
        )
        self._unwritten: dict[ProbeKey, ProbeState | None] = {}

    @property
    def has_unwritten(self) -> bool:
        return bool(self._unwritten)

    def get(self, key: ProbeKey) -> ProbeState | None:
        """Return the state of `key`; None if it has a share."""
        if key in self._unwritten:
            return self._unwritten[key]
        return self._states.get_or_compute(
            key, lambda: self._read(lambda db: model_tables.read_probe_state(db, key))
        )

    def put(self, key: ProbeKey, state: ProbeState | None) -> None:
        """Record the state of `key`; the next `write` writes it."""
        if state != self.get(key):
            self._unwritten[key] = state

    def forget_read(self) -> None:
        """Read again what other processes may have changed."""
        self._states.clear()

    def write(self, connection: apsw.Connection) -> None:
        """Write what has changed. Part of a transaction; `mark_written` follows it."""
        if self._unwritten:
            model_tables.write_probe_states(connection, self._unwritten)

    def mark_written(self) -> None:
        """Record that the transaction was committed, or that there is no file."""
        for key, state in self._unwritten.items():
            self._states.put(key, state)
        self._unwritten.clear()


__all__ = ["ModelKey", "ModelStore"]

MAX_BYTES = 64 << 20
"""Bytes of the histories in memory by default."""
FILE_TO_MEMORY = 2
"""Largest size of the file, as a multiple of that."""
DELETED_FRACTION = 0.1
"""Part of the models deleted at once when the file is too large. Arbitrary."""
MAX_PENDING_RUNS = 1000
"""Runs kept for writing while the file can't be written; older ones stay in memory only."""


class ModelStore:
    """The models of this machine. Used by one thread at a time, any thread.

    Parameters
    ----------
    path : Path or None
        None: in memory only.
    copy : bool
        Copy the file into memory and don't change it.
    max_bytes : int, bytes
        Of the histories in memory; the file may have twice that. Those used least recently are
        dropped from memory, those observed least recently from the file.

    Attributes
    ----------
    probe_states : ProbeStates
        Of devices without a share.
    """

    def __init__(
        self, path: Path | None, *, copy: bool = False, max_bytes: int = MAX_BYTES
    ) -> None:
        self._name = str(path)
        self._histories: BoundedCache[ModelKey, History] = BoundedCache()
        self._max_bytes = max_bytes
        self._max_file_bytes = FILE_TO_MEMORY * max_bytes
        self._pending: deque[tuple[ModelKey, list[Sample], float]] = deque(maxlen=MAX_PENDING_RUNS)
        self._race_log = RaceLog()
        if path is not None and not copy:
            private_folder(path.parent, "state folder")
        self.probe_states = ProbeStates(self._read_probe_state)
        connect = model_tables.copy_models if copy else model_tables.open_models

        def opened() -> apsw.Connection:
            self._data_version = self._last_id = self._rewrites = 0  # of a new file, perhaps
            return connect(path)

        self._file = TolerantDatabase(None if copy else path, self._name, opened, self._catch_up)

    def load(self, key: ModelKey, link: bool | None = None) -> DeviceModel | None:
        """Return the model of `key`, or None. A returned model never changes.

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
        """As `load`, for all `keys`, checking the file once."""
        self._refresh()
        models = [self._history(key).model(link) for key in keys]
        self._trim()
        return models

    def runs(self, key: ModelKey) -> int:
        """Return how many runs of `key` were ever observed."""
        return self._history(key).runs

    def races(self, key: RaceKey) -> RaceRecord:
        """Return the races of variants of `key`."""
        record = self._race_log.get(key)
        if record is None:
            stored = self._file.read(lambda db: model_tables.read_races(db, key))
            record = self._race_log.put(key, stored or NO_RACES)
        return record

    def add_race(self, key: RaceKey, race: Race, at: float) -> None:
        """Add a race; without paces, a change of speed. Written at the next `flush`."""
        self.races(key)
        self._race_log.add(key, race, at)

    def observe(self, key: ModelKey, samples: Sequence[Sample], at: float) -> None:
        """Learn from one run; `at`: seconds since the epoch. Never fails because of the file."""
        self.observe_many([(key, samples)], at)

    def observe_many(
        self, runs: Iterable[tuple[ModelKey, Sequence[Sample]]], at: float, *, flush: bool = True
    ) -> dict[ModelKey, SpeedChange]:
        """As `observe`, for all devices of a run, in one transaction: a single wait for the disk.

        Without `flush` the data is written at the next `flush` or `close`.

        Returns
        -------
        dict of ModelKey to Change
            The keys for which this run confirmed a change of speed.
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
        for key, history in observed.items():
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
        self._pending.append((key, history.stored(medians), at))
        return history

    def _propagate(
        self,
        changed: ModelKey,
        changes: Mapping[CurveName, float],
        observed: Container[ModelKey],
    ) -> None:
        """Apply a device's change of speed to its other variants and sizes."""
        device = changed.workload, changed.device, changed.storage
        for key in self.keys():
            if (key.workload, key.device, key.storage) == device and key not in observed:
                self._history(key).apply_changes(changes)

    def keys(self) -> list[ModelKey]:
        """Return the keys of all models, sorted."""
        keys = {key for key, history in self._histories.items() if history.runs}
        keys.update(self._file.read(model_tables.read_keys) or ())
        return sorted(keys)

    def flush(self) -> None:
        """Write pending runs."""
        rewritten: list[History] = []
        has_news = (
            bool(self._pending) or self.probe_states.has_unwritten or self._race_log.has_pending
        )
        is_in_memory = self._file.connection is None
        if is_in_memory or (
            has_news and self._write(lambda db: self._write_pending(db, rewritten))
        ):
            self._pending.clear()
            self.probe_states.mark_written()
            self._race_log.clear_pending()
            # Only now: a failed transaction leaves the file as it was.
            for history in rewritten:
                history.rewritten = False
            self._rewrites += len(rewritten)  # `replace_observations` counted each

    def close(self) -> None:
        """Write pending runs and close the file. Models stay in memory."""
        self.flush()
        self._file.close()

    def _history(self, key: ModelKey) -> History:
        history = self._histories.get(key)
        if history is None:
            # Later rows arrive with the next `_catch_up`.
            stored = self._file.read(lambda db: model_tables.read_model(db, key, self._last_id))
            history = History(*stored) if stored else History()
            self._histories.put(key, history, history.nbytes)
        return history

    def _read_probe_state(
        self, action: Callable[[apsw.Connection], ProbeState | None]
    ) -> ProbeState | None:
        return self._file.read(action)

    def _trim(self) -> None:
        """Drop histories beyond the limit, except those whose last runs aren't written yet."""
        pinned = {key for key, _, _ in self._pending}
        self._histories.trim(
            self._max_bytes, lambda key, history: key in pinned or history.rewritten
        )

    def _refresh(self) -> None:
        if self._file.read(database.data_version) != self._data_version:
            self._file.read(self._catch_up)

    def _catch_up(self, connection: apsw.Connection) -> None:
        """Read what other processes have written since the last call."""
        database.check_version(connection, model_tables.FORMAT, self._name)
        # Read first, so that concurrent writes are detected next time.
        data_version = database.data_version(connection)
        if data_version != self._data_version:
            self._data_version = data_version
            self.probe_states.forget_read()
            self._race_log.clear()
        rewrites = model_tables.rewrite_count(connection)
        if rewrites != self._rewrites:
            self._rewrites = rewrites
            self._histories.clear()
            self._last_id = model_tables.last_observation_id(connection)
        added: dict[ModelKey, list[Sample]] = {}
        for row_id, key, runs, sample in model_tables.read_added(connection, self._last_id):
            self._last_id = row_id
            history = self._histories.get(key)
            if history is not None:
                added.setdefault(key, []).append(sample)
                history.runs = max(history.runs, runs)
        for key, samples in added.items():
            for run in split_runs(samples):
                self._history(key).add(run)

    def _write(self, action: Callable[[apsw.Connection], object]) -> bool:
        """Run `action` in a transaction; return whether it was committed."""
        last_id = 0

        def write(connection: apsw.Connection) -> None:
            nonlocal last_id
            # Under the lock no other process adds rows: later ones are our own.
            self._catch_up(connection)
            action(connection)
            last_id = model_tables.last_observation_id(connection)

        written = self._file.write(write)
        if written:
            self._last_id = max(self._last_id, last_id)
        return written

    def _write_pending(self, connection: apsw.Connection, rewritten: list[History]) -> None:
        """Append to `rewritten` the histories whose stored observations were replaced."""
        self.probe_states.write(connection)
        self._race_log.write(connection)
        for key, runs in model_tables.add_runs(connection, self._pending).items():
            history = self._histories.get(key)
            if history is not None:
                history.runs = runs
        for key, history in self._histories.items():
            if history.rewritten and self._pending:
                # A change of speed scaled or dropped older observations.
                at = self._pending[-1][2]
                model_tables.replace_observations(connection, key, history.samples(), at)
                rewritten.append(history)
        if model_tables.used_bytes(connection) > self._max_file_bytes:
            model_tables.delete_oldest(connection, DELETED_FRACTION)
