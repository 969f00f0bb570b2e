"""``models.db``: a row for each model, race record and probe state, its value as JSON.

A value is what an export holds, too. It is checked when it is read: a damaged file must not reach
the planner.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeVar

import apsw
import msgspec

from hetsched.models import Knot
from hetsched.models.curve_windows import MAX_SIZES
from hetsched.models.evidence.co_runners import CoRunners
from hetsched.models.evidence.confidence import knot_of
from hetsched.models.evidence.history import History
from hetsched.models.evidence.observations import WINDOW
from hetsched.models.evidence.probe_state import ProbeState
from hetsched.models.evidence.races import MAX_RACES, NO_RACES, Race, RaceRecord
from hetsched.models.evidence.samples import MAX_SECONDS, MIN_SECONDS, CurveName, Sample
from hetsched.store.database import DatabaseFormat
from hetsched.units import NUMBER_LIMIT

Count = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_LIMIT - 1)]
Units = Annotated[int, msgspec.Meta(ge=1, le=NUMBER_LIMIT - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=MIN_SECONDS, le=MAX_SECONDS)]
Pace = Annotated[float, msgspec.Meta(ge=MIN_SECONDS / NUMBER_LIMIT, le=MAX_SECONDS)]
Moment = Annotated[float, msgspec.Meta(ge=0, lt=1e11)]
"""Seconds since the epoch."""


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


class ProbeKey(msgspec.Struct, frozen=True, order=True):
    """Identifies a device without a share in one kind of job; as in `ModelKey`. `load`: units."""

    workload: str
    speed_key: str
    device: str
    storage: str
    load: int


class Observation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    curve: CurveName
    units: Units
    seconds: Seconds
    at: Moment
    contended: bool = False
    chunks: Units = 1


class StoredModel(ModelKey, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model: its key and its observations, oldest first."""

    runs: Count
    observations: tuple[Observation, ...]

    @classmethod
    def of(cls, key: ModelKey, runs: int, observations: Sequence[Observation]) -> StoredModel:
        """Keep what a `History` keeps: of each curve the last sizes, of each size a window."""
        kept: list[Observation] = []
        repeats: Counter[tuple[CurveName, int]] = Counter()
        sizes: dict[CurveName, set[int]] = {}
        for seen in reversed(observations):
            known = sizes.setdefault(seen.curve, set())
            if len(known) < MAX_SIZES:
                known.add(seen.units)
            repeats[seen.curve, seen.units] += 1
            if seen.units in known and repeats[seen.curve, seen.units] <= WINDOW:
                kept.append(seen)
        fields = msgspec.structs.asdict(key)
        return cls(**fields, runs=runs, observations=tuple(reversed(kept)))

    @property
    def key(self) -> ModelKey:
        return _key_of(self, ModelKey)

    def with_run(self, samples: Iterable[Sample], at: float) -> StoredModel:
        added = observations_of(samples, at)
        return StoredModel.of(self.key, self.runs + 1, (*self.observations, *added))

    def merged(self, other: StoredModel) -> StoredModel:
        """Merge two models of one key, by time; return this one if the other adds nothing.

        Observations in both count once. The number of runs is the larger of the two, since one of
        two histories of a machine is usually a continuation of the other.
        """
        ours, theirs = Counter(self.observations), Counter(other.observations)
        runs = max(self.runs, other.runs)
        if theirs <= ours and runs == self.runs:
            return self
        union = sorted((ours | theirs).elements(), key=lambda observation: observation.at)
        return StoredModel.of(self.key, runs, union)

    def history(self) -> History:
        samples = [
            Sample(seen.curve, seen.units, seen.seconds, seen.contended, seen.chunks)
            for seen in self.observations
        ]
        return History(self.runs, samples)

    def knots(self, curve: CurveName) -> list[Knot]:
        """Return the evidence for one curve, by units."""
        repeats: dict[int, list[Observation]] = {}
        for observation in self.observations:
            if observation.curve == curve:
                repeats.setdefault(observation.units, []).append(observation)
        return [
            knot_of(float(units), [seen.seconds for seen in runs], [seen.chunks for seen in runs])
            for units, runs in sorted(repeats.items())
        ]


def observations_of(samples: Iterable[Sample], at: float) -> list[Observation]:
    return [Observation(s.curve, s.units, s.seconds, at, s.contended, s.chunks) for s in samples]


class StoredRace(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One race; without paces it records that the cores' speed has changed by run `number`."""

    number: Count
    units: Annotated[float, msgspec.Meta(ge=0, lt=NUMBER_LIMIT)]
    paces: dict[str, tuple[Pace | None, ...]]
    at: Moment


class StoredRaces(RaceKey, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The races of one job on one kind of core, oldest first. `device`: without the name."""

    races: tuple[StoredRace, ...]

    @classmethod
    def of(cls, key: RaceKey, races: Sequence[StoredRace]) -> StoredRaces:
        return cls(**msgspec.structs.asdict(key), races=tuple(races[-MAX_RACES:]))

    @property
    def key(self) -> RaceKey:
        return _key_of(self, RaceKey)

    def merged(self, other: StoredRaces) -> StoredRaces:
        """Merge the races of one key, by time; return this one if the other adds nothing."""
        added = [race for race in other.races if race not in self.races]
        if not added:
            return self
        return StoredRaces.of(self.key, sorted((*self.races, *added), key=lambda race: race.at))

    def record(self) -> RaceRecord:
        record = NO_RACES
        for race in self.races:
            record = with_race(record, Race(race.number, race.units, race.paces))
        return record


def with_race(record: RaceRecord, race: Race) -> RaceRecord:
    return record.with_race(race) if race.paces else record.with_change(race.number)


Record = TypeVar("Record", StoredModel, StoredRaces)
_KeyType = TypeVar("_KeyType", ModelKey, RaceKey, ProbeKey)


def _key_of(record: Any, kind: type[_KeyType]) -> _KeyType:
    return kind(*(getattr(record, name) for name in kind.__struct_fields__))


Key = ModelKey | RaceKey | ProbeKey
Stored = StoredModel | StoredRaces | ProbeState
_StoredType = TypeVar("_StoredType", StoredModel, StoredRaces, ProbeState)
_KINDS: dict[type, str] = {
    **dict.fromkeys((ModelKey, StoredModel), "model"),
    **dict.fromkeys((RaceKey, StoredRaces), "races"),
    **dict.fromkeys((ProbeKey, ProbeState), "probe"),
}

FORMAT = DatabaseFormat(
    application_id=0x68737364,
    version=1,
    # A changed row gets a new id: the least ids are those written least recently.
    schema="""CREATE TABLE record(
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL CHECK(kind IN ('model', 'races', 'probe')),
        key TEXT NOT NULL, value TEXT NOT NULL,
        UNIQUE(kind, key)) STRICT""",
    # NORMAL: a power cut may lose the last observations; a crash of this process loses none.
    pragmas="PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = NORMAL",
)


def read(connection: apsw.Connection, key: Key, kind: type[_StoredType]) -> _StoredType | None:
    sql = "SELECT value FROM record WHERE kind = ? AND key = ?"
    text = connection.execute(sql, (_KINDS[kind], _json(key))).get
    return None if text is None else msgspec.json.decode(text, type=kind)


def read_keys(connection: apsw.Connection, kind: type[_KeyType]) -> list[_KeyType]:
    """Return all keys of one kind, those written least recently first."""
    sql = "SELECT key FROM record WHERE kind = ? ORDER BY id"
    rows = connection.execute(sql, (_KINDS[kind],))
    return [msgspec.json.decode(text, type=kind) for (text,) in rows]


def read_all(connection: apsw.Connection, kind: type[Record]) -> list[Record]:
    rows = connection.execute("SELECT value FROM record WHERE kind = ?", (_KINDS[kind],))
    records = [msgspec.json.decode(text, type=kind) for (text,) in rows]
    return sorted(records, key=lambda record: record.key)


def read_again(
    connection: apsw.Connection, key: Key, kind: type[_StoredType]
) -> _StoredType | None:
    """As `read`, to add to the record; None if it can't be read, so that it is learnt again."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        return read(connection, key, kind)
    return None


def write(connection: apsw.Connection, key: Key, value: Stored) -> None:
    sql = "INSERT OR REPLACE INTO record(kind, key, value) VALUES (?, ?, ?)"
    connection.execute(sql, (_KINDS[type(key)], _json(key), _json(value)))


def delete_models(connection: apsw.Connection, keys: Iterable[ModelKey]) -> None:
    """Delete these models, and their races and probe states."""
    probes = read_keys(connection, ProbeKey)
    for key in keys:
        job = key.workload, key.speed_key, key.device, key.storage
        same = [p for p in probes if (p.workload, p.speed_key, p.device, p.storage) == job]
        delete(connection, [key, key.race_key, *same])


def delete(connection: apsw.Connection, keys: Iterable[Key]) -> None:
    sql = "DELETE FROM record WHERE kind = ? AND key = ?"
    connection.executemany(sql, [(_KINDS[type(key)], _json(key)) for key in keys])


def used_bytes(connection: apsw.Connection) -> int:
    """Return the bytes of the file that hold data; deleted rows leave free pages."""
    pages, free, size = (
        int(connection.pragma(name)) for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def _json(value: Key | Stored) -> str:
    return msgspec.json.encode(value).decode()
