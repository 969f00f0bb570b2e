"""``models.db``: a row for each model and race record, its value as JSON.

An export holds the values of models and races. Observations are [curve, units, seconds, run,
seconds since the epoch], oldest first; races [run, units, paces, seconds since the epoch].
Values are checked when they are read: a damaged file must not reach the planner.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from hetsched import __version__, errors
from hetsched.models import Knot
from hetsched.models.history import History
from hetsched.models.races import MAX_RACES, NO_RACES, Race, RaceRecord
from hetsched.models.samples import CoRunners, Count, CurveName, Sample
from hetsched.paths import private_folder
from hetsched.store import database


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


def read(connection: apsw.Connection, key: Key, kind: type[Record]) -> Record | None:
    sql = "SELECT value FROM record WHERE kind = ? AND key = ?"
    text = connection.execute(sql, (_KINDS[kind], _json(key))).get
    return None if text is None else msgspec.json.decode(text, type=kind)


def read_keys(connection: apsw.Connection, kind: type[_KeyType]) -> list[_KeyType]:
    sql = "SELECT key FROM record WHERE kind = ? ORDER BY id"
    rows = connection.execute(sql, (_KINDS[kind],))
    return [msgspec.json.decode(text, type=kind) for (text,) in rows]


def read_again(connection: apsw.Connection, key: Key, kind: type[Record]) -> Record | None:
    """As `read`, to add to the record; None if it can't be read, so that it is learnt again."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        return read(connection, key, kind)
    return None


def write(connection: apsw.Connection, key: Key, value: Stored) -> None:
    sql = "INSERT OR REPLACE INTO record(kind, key, value) VALUES (?, ?, ?)"
    connection.execute(sql, (_KINDS[type(key)], _json(key), _json(value)))


def delete_models(connection: apsw.Connection, keys: Iterable[ModelKey]) -> None:
    rows = [(_KINDS[type(each)], _json(each)) for key in keys for each in (key, key.race_key)]
    connection.executemany("DELETE FROM record WHERE kind = ? AND key = ?", rows)


def used_bytes(connection: apsw.Connection) -> int:
    """Return the bytes of the file that hold data; deleted rows leave free pages."""
    pages, free, size = (
        int(connection.pragma(name)) for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def _json(value: Key | Stored) -> str:
    return msgspec.json.encode(value).decode()


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
        keys = sorted(read_keys(connection, ModelKey))
        models = [read(connection, key, StoredModel) for key in keys]
        race_keys = sorted(read_keys(connection, RaceKey))
        races = [read(connection, key, StoredRaces) for key in race_keys]
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
    before = read(connection, record.key, type(record))
    after = record if before is None else before.merged(record)
    if after is before:
        return "unchanged"
    write(connection, after.key, after)
    return "new" if before is None else "extended"


def forget(path: Path, is_chosen: Callable[[ModelKey], bool]) -> list[ModelKey]:
    if not path.exists():
        return []
    with _connection(path, database.open_database) as connection, database.transaction(connection):
        chosen = [key for key in read_keys(connection, ModelKey) if is_chosen(key)]
        delete_models(connection, chosen)
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
