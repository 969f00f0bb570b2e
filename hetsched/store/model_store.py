"""The learnt models, kept between runs in ``models.db``, shared by the daemon and embedded runs.

A row for each model and race record, its value as JSON. If the file can't be used (disk full, made
read-only during a run, of a newer version), one warning is logged and learning continues in
memory: no job fails because of it. What couldn't be written is written once that is possible
again.

Processes that share the file add to its records under its lock and lose none of each other's
runs. Each reads again what it needs when another one has written. Values are checked when they are
read: a damaged file must not reach the planner.

An export holds the values of models and races. Observations are [curve, units, seconds, run,
seconds since the epoch], oldest first; races [run, units, paces, seconds since the epoch].
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from hetsched import __version__, errors
from hetsched.bounded_cache import BoundedCache
from hetsched.models import DeviceModel, Knot
from hetsched.models.history import History
from hetsched.models.races import MAX_RACES, NO_RACES, Race, RaceRecord
from hetsched.models.samples import CoRunners, Count, CurveName, Sample
from hetsched.paths import private_folder
from hetsched.store import database

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


class RaceKey(msgspec.Struct, frozen=True, order=True):
    """Identifies the races of one job; fields as in `ModelKey`, `device` without the name."""

    workload: str
    speed_key: str
    device: str
    storage: str


class ModelKey(msgspec.Struct, frozen=True, order=True):
    """Identifies a model. Two runs with the same key have the same speeds.

    `speed_key`: the parameters that change a unit's speed. `device`: name and identity. `storage`:
    "memory" or "file", with ", converted" if some input has another dtype or order than kernels
    expect. `co_runners`: which neighbours of the device were busy.
    """

    workload: str
    speed_key: str
    variant: str
    version: str
    device: str
    storage: str
    co_runners: CoRunners = "all"

    @property
    def race_key(self) -> RaceKey:
        _, _, identity = self.device.partition(" ")
        return RaceKey(self.workload, self.speed_key, identity, self.storage)


class StoredModel(ModelKey, frozen=True, kw_only=True, forbid_unknown_fields=True):
    runs: Count
    observations: tuple[Sample, ...]

    @classmethod
    def of(cls, key: ModelKey, history: History) -> StoredModel:
        fields = msgspec.structs.asdict(key)
        return cls(**fields, runs=history.runs, observations=tuple(history.samples()))

    @property
    def key(self) -> ModelKey:
        return _key_of(self, ModelKey)

    def merged(self, other: StoredModel) -> StoredModel:
        """Merge two models of one key; return this one if the other adds nothing.

        The number of runs is the larger of the two, since one of two histories of a machine is
        usually a continuation of the other.
        """
        ours, theirs = Counter(self.observations), Counter(other.observations)
        runs = max(self.runs, other.runs)
        if theirs <= ours and runs == self.runs:
            return self
        union = sorted((ours | theirs).elements(), key=lambda sample: (sample.at, sample.run))
        return StoredModel.of(self.key, History(runs, union))

    def history(self) -> History:
        return History(self.runs, self.observations)

    def knots(self, curve: CurveName) -> list[Knot]:
        windows = self.history().windows(curve)
        return [] if windows is None else windows.knots()


class StoredRaces(RaceKey, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The races of one job on one kind of core, oldest first. `device`: without the name."""

    races: tuple[Race, ...]

    @classmethod
    def of(cls, key: RaceKey, races: Sequence[Race]) -> StoredRaces:
        return cls(**msgspec.structs.asdict(key), races=tuple(races[-MAX_RACES:]))

    @property
    def key(self) -> RaceKey:
        return _key_of(self, RaceKey)

    def merged(self, other: StoredRaces) -> StoredRaces:
        added = [race for race in other.races if race not in self.races]
        if not added:
            return self
        return StoredRaces.of(self.key, sorted((*self.races, *added), key=lambda race: race.at))

    def record(self) -> RaceRecord:
        return functools.reduce(RaceRecord.with_race, self.races, NO_RACES)


Record = TypeVar("Record", StoredModel, StoredRaces)
_KeyType = TypeVar("_KeyType", ModelKey, RaceKey)


def _key_of(record: Any, kind: type[_KeyType]) -> _KeyType:
    return kind(*(getattr(record, name) for name in kind.__struct_fields__))


Key = ModelKey | RaceKey
Stored = StoredModel | StoredRaces
_KINDS: dict[type, str] = {
    **dict.fromkeys((ModelKey, StoredModel), "model"),
    **dict.fromkeys((RaceKey, StoredRaces), "races"),
}

FORMAT = database.DatabaseFormat(
    application_id=0x68737364,
    version=1,
    # A changed row gets a new id: the least ids are those written least recently.
    schema="""CREATE TABLE record(
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL CHECK(kind IN ('model', 'races')),
        key TEXT NOT NULL, value TEXT NOT NULL,
        UNIQUE(kind, key)) STRICT""",
    # NORMAL: a power cut may lose the last observations; a crash of this process loses none.
    pragmas="PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = NORMAL",
)


def _read(connection: apsw.Connection, key: Key, kind: type[Record]) -> Record | None:
    sql = "SELECT value FROM record WHERE kind = ? AND key = ?"
    text = connection.execute(sql, (_KINDS[kind], _json(key))).get
    return None if text is None else msgspec.json.decode(text, type=kind)


def _read_keys(connection: apsw.Connection, kind: type[_KeyType]) -> list[_KeyType]:
    sql = "SELECT key FROM record WHERE kind = ? ORDER BY id"
    rows = connection.execute(sql, (_KINDS[kind],))
    return [msgspec.json.decode(text, type=kind) for (text,) in rows]


def _read_again(connection: apsw.Connection, key: Key, kind: type[Record]) -> Record | None:
    """As `read`, to add to the record; None if it can't be read, so that it is learnt again."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        return _read(connection, key, kind)
    return None


def _write(connection: apsw.Connection, key: Key, value: Stored) -> None:
    sql = "INSERT OR REPLACE INTO record(kind, key, value) VALUES (?, ?, ?)"
    connection.execute(sql, (_KINDS[type(key)], _json(key), _json(value)))


def _delete_models(connection: apsw.Connection, keys: Iterable[ModelKey]) -> None:
    rows = [(_KINDS[type(each)], _json(each)) for key in keys for each in (key, key.race_key)]
    connection.executemany("DELETE FROM record WHERE kind = ? AND key = ?", rows)


def _json(value: Key | Stored) -> str:
    return msgspec.json.encode(value).decode()


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
        keys.update(self._read(lambda db: _read_keys(db, ModelKey)) or ())
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
            stored = self._read(lambda db: _read(db, key, StoredModel))
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
            stored = self._read(lambda db: _read(db, key, StoredRaces))
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
            database.check_version(self._connection, FORMAT, self._name)
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
        database.check_version(connection, FORMAT, self._name)
        histories: dict[ModelKey, History] = {}
        for key, samples, at in self._new_runs:
            if key not in histories:
                stored = _read_again(connection, key, StoredModel)
                histories[key] = stored.history() if stored else History()
            histories[key].add(samples, at)
        for key, history in histories.items():
            _write(connection, key, StoredModel.of(key, history))
        for race_key, race in self._new_races:
            before = _read_again(connection, race_key, StoredRaces)
            races = (*before.races, race) if before else (race,)
            stored_races = StoredRaces.of(race_key, races)
            _write(connection, race_key, stored_races)
        pages, free, page_bytes = (
            int(connection.pragma(name)) for name in ("page_count", "freelist_count", "page_size")
        )
        if (pages - free) * page_bytes > self._max_file_bytes:  # deleted rows leave free pages
            keys = _read_keys(connection, ModelKey)
            oldest = keys[: max(1, int(len(keys) * DELETED_FRACTION))]
            _delete_models(connection, oldest)


def _open(path: Path | None, read_only: bool) -> apsw.Connection:
    if path is None or (read_only and not path.exists()):
        return database.open_database(None, FORMAT)
    if read_only:
        return database.open_for_reading(path, FORMAT)
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
    connection = database.open_database(path, FORMAT)
    try:
        _read_keys(connection, ModelKey)
    except BaseException:
        connection.close()
        raise
    return connection


# ---- exports, and the commands that inspect or change the file: any error is raised

KIND = "hetsched.models.export"
VERSION = 1
SCHEMA = f"{KIND}/{VERSION}"


class Export(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: str = SCHEMA
    hetsched: str
    models: tuple[StoredModel, ...]
    races: tuple[StoredRaces, ...] = ()

    def races_of(self, models: Iterable[StoredModel]) -> tuple[StoredRaces, ...]:
        keys = {model.key.race_key for model in models}
        return tuple(races for races in self.races if races.key in keys)


class _ExportHeader(msgspec.Struct):
    schema: str = "none"


def encode(export: Export) -> bytes:
    return msgspec.json.encode(export) + b"\n"


def decode(raw: bytes, source: str) -> Export:
    """Read an export; `source` names it in errors."""
    try:
        schema = msgspec.json.decode(raw, type=_ExportHeader).schema
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.DataError(f"{source}: not an export of hetsched models: {error}") from None
    kind, _, number = schema.partition("/")
    if kind != KIND or not number.isdecimal():
        raise errors.DataError(
            f"{source}: not an export of hetsched models: its schema is {schema[:60]!r}"
        )
    if int(number) > VERSION:
        raise errors.ConfigError(
            f"{source}: exported by a newer hetsched (format {number[:60]}, this one reads up to"
            f" {VERSION}); update hetsched"
        )
    try:
        export = msgspec.json.decode(raw, type=Export)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.DataError(f"{source}: broken export: {error}") from None
    records: list[StoredModel | StoredRaces] = [*export.models, *export.races]
    counts = Counter[ModelKey | RaceKey](record.key for record in records)
    for key, count in counts.items():
        if count > 1:
            what = f"{key.workload} on {key.device}"
            raise errors.DataError(f"{source}: broken export: {count} records of one key, {what}")
    return export


def collect(path: Path) -> Export:
    """Return all models in the file at `path`; none if there is no file, and none is created."""
    if not path.exists():
        return Export(hetsched=__version__, models=())
    with _connection(path, database.open_for_reading) as connection:
        keys = sorted(_read_keys(connection, ModelKey))
        models = [_read(connection, key, StoredModel) for key in keys]
        race_keys = sorted(_read_keys(connection, RaceKey))
        races = [_read(connection, key, StoredRaces) for key in race_keys]
    return Export(
        hetsched=__version__,
        models=tuple(filter(None, models)),
        races=tuple(filter(None, races)),
    )


def restore(path: Path, export: Export) -> Counter[str]:
    """Add an export to the file at `path`, created if needed, completely or not at all.

    Returns how many models were "new", "extended" and "unchanged".
    """
    private_folder(path.parent, "state folder")
    with _connection(path, database.open_database) as connection, database.transaction(connection):
        for races in export.races:
            _add(connection, races)
        return Counter(_add(connection, model) for model in export.models)


def _add(connection: apsw.Connection, record: Record) -> str:
    before = _read(connection, record.key, type(record))
    after = record if before is None else before.merged(record)
    if after is before:
        return "unchanged"
    _write(connection, after.key, after)
    return "new" if before is None else "extended"


def forget(path: Path, is_chosen: Callable[[ModelKey], bool]) -> list[ModelKey]:
    if not path.exists():
        return []
    with _connection(path, database.open_database) as connection, database.transaction(connection):
        chosen = [key for key in _read_keys(connection, ModelKey) if is_chosen(key)]
        _delete_models(connection, chosen)
    return sorted(chosen)


@contextlib.contextmanager
def _connection(
    path: Path, connect: Callable[[Path, database.DatabaseFormat], apsw.Connection]
) -> Iterator[apsw.Connection]:
    try:
        with contextlib.closing(connect(path, FORMAT)) as connection:
            yield connection
    except (apsw.BusyError, apsw.LockedError):
        raise errors.TryAgain(f"{path}: another process is writing to it; try again") from None
    except (apsw.FullError, apsw.IOError) as error:
        raise errors.CantCreate(f"{path}: {error}; nothing was changed; make room") from None
    except apsw.ReadOnlyError as error:
        raise errors.ConfigError(f"{path}: {error}; make it writable") from None
    except database.DAMAGE as error:
        raise errors.ConfigError(f"{path}: {error}; move it away to start afresh") from None
