"""``models.db``: its tables, the types of their values, and one function per statement. No policy.

Values are checked when they are read, by `msgspec`: a damaged file must not reach the planner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Annotated, NamedTuple

import apsw
import msgspec

from hetsched.models.curve_windows import MAX_SIZES
from hetsched.models.evidence.co_runners import CoRunners
from hetsched.models.evidence.observations import WINDOW
from hetsched.models.evidence.probe_state import ProbeState
from hetsched.models.evidence.races import MAX_RACES, Race, RaceRecord
from hetsched.models.evidence.samples import MAX_SECONDS, MIN_SECONDS, CurveName, Sample
from hetsched.store import database
from hetsched.store.database import DatabaseFormat
from hetsched.units import NUMBER_LIMIT

Count = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_LIMIT - 1)]
Units = Annotated[int, msgspec.Meta(ge=1, le=NUMBER_LIMIT - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=MIN_SECONDS, le=MAX_SECONDS)]
Pace = Annotated[float, msgspec.Meta(ge=MIN_SECONDS / NUMBER_LIMIT, le=MAX_SECONDS)]
Paces = dict[str, tuple[Pace | None, ...]]
Moment = Annotated[float, msgspec.Meta(ge=0, lt=1e11)]
"""Seconds since the epoch."""


_RACES = """
CREATE TABLE race(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workload TEXT NOT NULL, speed_key TEXT NOT NULL, device TEXT NOT NULL,
    storage TEXT NOT NULL, number INTEGER NOT NULL,
    units REAL NOT NULL, paces TEXT NOT NULL, at REAL NOT NULL) STRICT;
CREATE INDEX race_by_key ON race(workload, speed_key, device, storage, id);
"""
"""`device`: the identity of the cores. `paces`: JSON, variant and version -> seconds per unit of
each round. A row without paces records that the cores' speed has changed by run `number`."""


class RaceKey(msgspec.Struct, frozen=True, order=True):
    """Identifies the races of one job; fields as in `ModelKey`, `device` without the name."""

    workload: str
    speed_key: str
    device: str
    storage: str


_RACE_MATCHES = " AND ".join(f"{name} = ?" for name in RaceKey.__struct_fields__)


class StoredRace(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One race, or without paces a change of speed, as stored and exported; as `Race`."""

    number: Count
    units: Annotated[float, msgspec.Meta(ge=0, lt=NUMBER_LIMIT)]
    paces: Paces
    at: Moment


def read_races(connection: apsw.Connection, key: RaceKey) -> RaceRecord:
    """Return the races of `key`."""
    sql = f"SELECT number, units, paces FROM race WHERE {_RACE_MATCHES} ORDER BY id"
    record = RaceRecord()
    rows = connection.execute(sql, msgspec.structs.astuple(key))
    for number, units, text in msgspec.convert(list(rows), list[tuple[Count, float, str]]):
        race = Race(number, units, msgspec.json.decode(text, type=Paces))
        record = record.with_race(race) if race.paces else record.with_change(number)
    return record


def read_all_races(connection: apsw.Connection) -> dict[RaceKey, list[StoredRace]]:
    """Return all races, oldest first, by key."""
    races: dict[RaceKey, list[StoredRace]] = {}
    sql = f"SELECT number, units, paces, at, {', '.join(RaceKey.__struct_fields__)} FROM race"
    for number, units, text, at, *key in connection.execute(f"{sql} ORDER BY id"):
        row = (number, units, msgspec.json.decode(text), at)
        races.setdefault(RaceKey(*key), []).append(msgspec.convert(row, StoredRace))
    return races


def write_races(connection: apsw.Connection, key: RaceKey, races: Iterable[StoredRace]) -> None:
    """Make `races`, oldest first, those of `key`."""
    delete_races(connection, [key])
    for race in races:
        add_race(connection, key, Race(race.number, race.units, race.paces), race.at)


def add_race(connection: apsw.Connection, key: RaceKey, race: Race, at: float) -> None:
    """Add a race, or without paces a change of speed; drop those too old to count."""
    values = msgspec.structs.astuple(key)
    paces = msgspec.json.encode(race.paces).decode()
    connection.execute(
        """INSERT INTO race(workload, speed_key, device, storage, number, units, paces, at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
        (*values, race.number, race.units, paces, at),
    )
    oldest = f"SELECT id FROM race WHERE {_RACE_MATCHES} ORDER BY id DESC LIMIT 1 OFFSET ?"
    sql = f"DELETE FROM race WHERE {_RACE_MATCHES} AND id <= ({oldest})"
    connection.execute(sql, (*values, *values, MAX_RACES))


def delete_races(connection: apsw.Connection, keys: Iterable[RaceKey]) -> None:
    """Delete the races of `keys`."""
    sql = f"DELETE FROM race WHERE {_RACE_MATCHES}"
    for key in set(keys):
        connection.execute(sql, msgspec.structs.astuple(key))


_SCHEMA = """
CREATE TABLE model(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workload TEXT NOT NULL, speed_key TEXT NOT NULL, variant TEXT NOT NULL,
    version TEXT NOT NULL, device TEXT NOT NULL, storage TEXT NOT NULL,
    co_runners TEXT NOT NULL, runs INTEGER NOT NULL,
    UNIQUE(workload, speed_key, variant, version, device, storage, co_runners)) STRICT;
CREATE TABLE observation(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    model INTEGER NOT NULL, curve TEXT NOT NULL,
    units INTEGER NOT NULL CHECK(units > 0),
    seconds REAL NOT NULL CHECK(seconds > 0 AND seconds < 1e300),
    at REAL NOT NULL, contended INTEGER NOT NULL DEFAULT 0,
    chunks INTEGER NOT NULL DEFAULT 1 CHECK(chunks > 0)) STRICT;
CREATE INDEX observation_by_size ON observation(model, curve, units, id);
CREATE TABLE forgotten(times INTEGER NOT NULL) STRICT;
INSERT INTO forgotten VALUES (0);
CREATE TABLE probe(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workload TEXT NOT NULL, speed_key TEXT NOT NULL, device TEXT NOT NULL,
    storage TEXT NOT NULL, load INTEGER NOT NULL,
    idle_runs INTEGER NOT NULL CHECK(idle_runs >= 0),
    probes INTEGER NOT NULL CHECK(probes >= 0),
    repeats INTEGER NOT NULL CHECK(repeats >= 0),
    ratio REAL NOT NULL CHECK(ratio > 0 AND ratio < 1e300),
    UNIQUE(workload, speed_key, device, storage, load)) STRICT;
"""
FORMAT = DatabaseFormat(
    application_id=0x68737364,
    version=1,
    schema=_SCHEMA + _RACES,
    # NORMAL: a power cut may lose the last observations; a crash of this process loses none.
    pragmas="PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = NORMAL",
)


class Observation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One observation as stored and exported."""

    curve: CurveName
    units: Units
    seconds: Seconds
    at: Moment
    contended: bool = False
    chunks: Units = 1


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
        """The key of the races that the variant took part in."""
        _, _, identity = self.device.partition(" ")
        return RaceKey(self.workload, self.speed_key, identity, self.storage)


class ProbeKey(NamedTuple):
    """Identifies a device without a share in one kind of job; as in `ModelKey`. `load`: units."""

    workload: str
    speed_key: str
    device: str
    storage: str
    load: int


_KeyRow = tuple[str, str, str, str, str, str, CoRunners]
_SampleRow = tuple[CurveName, Units, Seconds, int, Units]
_ProbeStateRow = tuple[Count, Count, Count, Seconds]
MAX_PROBE_STATES = 1000
"""Devices without a share kept; the one that ran least recently goes first. Arbitrary."""
_PROBE_KEY = ", ".join(ProbeKey._fields)
_PROBE_KEY_MATCHES = " AND ".join(f"{name} = ?" for name in ProbeKey._fields)
_PROBE_STATE = ", ".join(field.name for field in fields(ProbeState))
_KEY = ", ".join(ModelKey.__struct_fields__)
_SAMPLE = ", ".join(field.name for field in fields(Sample))
_KEY_MATCHES = " AND ".join(f"{name} = ?" for name in ModelKey.__struct_fields__)
_INSERT = """INSERT INTO observation(model, curve, units, seconds, at, contended, chunks)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_DELETE_BEYOND_WINDOW = """DELETE FROM observation
    WHERE model = ?1 AND curve = ?2 AND units = ?3 AND id <=
    (SELECT id FROM observation WHERE model = ?1 AND curve = ?2 AND units = ?3
     ORDER BY id DESC LIMIT 1 OFFSET ?4)"""
_DELETE_OLDEST_SIZES = """DELETE FROM observation WHERE model = ?1 AND curve = ?2 AND units IN
    (SELECT units FROM observation WHERE model = ?1 AND curve = ?2
     GROUP BY units ORDER BY max(id) DESC LIMIT -1 OFFSET ?3)"""


def open_models(path: Path | None) -> apsw.Connection:
    """Open ``models.db`` for writing, as `database.open_database`."""
    return database.open_database(path, FORMAT)


def open_models_for_reading(path: Path) -> apsw.Connection:
    """Open ``models.db`` for reading, as `database.open_for_reading`."""
    return database.open_for_reading(path, FORMAT)


def copy_models(path: Path | None) -> apsw.Connection:
    """Copy ``models.db`` into memory, as `database.open_copy`."""
    return database.open_copy(path, FORMAT)


def last_observation_id(connection: apsw.Connection) -> int:
    """Return the id of the latest observation; 0 if there is none."""
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM observation").get)


def rewrite_count(connection: apsw.Connection) -> int:
    """Return how often models were deleted or replaced since the file was created."""
    return int(connection.execute("SELECT times FROM forgotten").get)


def count_rewrite(connection: apsw.Connection) -> None:
    """Record for other processes that models they have read may have been deleted or replaced."""
    connection.execute("UPDATE forgotten SET times = times + 1")


def read_keys(connection: apsw.Connection) -> list[ModelKey]:
    """Return the keys of all models."""
    rows = list(connection.execute(f"SELECT {_KEY} FROM model"))
    return [ModelKey(*row) for row in msgspec.convert(rows, list[_KeyRow])]


def read_model(
    connection: apsw.Connection, key: ModelKey, up_to: int
) -> tuple[int, list[Sample]] | None:
    """Return (runs, observations with ids up to `up_to`, oldest first) of `key`, or None."""
    header = _model_header(connection, key)
    if header is None:
        return None
    model_id, runs = header
    sql = f"SELECT {_SAMPLE} FROM observation WHERE model = ? AND id <= ? ORDER BY id"
    rows = list(connection.execute(sql, (model_id, up_to)))
    return runs, [_sample(*row) for row in msgspec.convert(rows, list[_SampleRow])]


def read_added(connection: apsw.Connection, after: int) -> list[tuple[int, ModelKey, int, Sample]]:
    """Return (id, key, runs of the key, sample) of observations after an id, oldest first."""
    sql = f"""SELECT observation.id, runs, {_SAMPLE}, {_KEY}
        FROM observation JOIN model ON model.id = observation.model
        WHERE observation.id > ? ORDER BY observation.id"""
    rows = list(connection.execute(sql, (after,)))
    runs = msgspec.convert([row[1] for row in rows], list[Count])
    samples = msgspec.convert([row[2:7] for row in rows], list[_SampleRow])
    keys = msgspec.convert([row[7:] for row in rows], list[_KeyRow])
    return [
        (row[0], ModelKey(*key), count, _sample(*sample))
        for row, key, count, sample in zip(rows, keys, runs, samples, strict=True)
    ]


def read_all(
    connection: apsw.Connection,
) -> list[tuple[ModelKey, int, list[Observation]]]:
    """Return (key, runs, observations, oldest first) of every model, by key."""
    headers = list(connection.execute(f"SELECT id, runs, {_KEY} FROM model"))
    keys = msgspec.convert([row[2:] for row in headers], list[_KeyRow])
    runs = msgspec.convert([row[1] for row in headers], list[Count])
    models: dict[int, tuple[ModelKey, int, list[Observation]]] = {
        row[0]: (ModelKey(*key), count, [])
        for row, key, count in zip(headers, keys, runs, strict=True)
    }
    sql = """SELECT model, curve, units, seconds, at, contended, chunks FROM observation
        WHERE model IN (SELECT id FROM model) ORDER BY id"""
    for model_id, *row in connection.execute(sql):
        # Not strict: SQLite has no booleans.
        models[model_id][2].append(msgspec.convert(row, Observation, strict=False))
    return sorted(models.values(), key=lambda model: model[0])


def add_runs(
    connection: apsw.Connection, runs: Iterable[tuple[ModelKey, Sequence[Sample], float]]
) -> dict[ModelKey, int]:
    """Add runs of (key, samples, time), oldest first; return the number of runs of each key.

    Drops observations too old to count, once for each key: that takes longer than adding some.
    """
    sql = f"""INSERT INTO model({_KEY}, runs) VALUES (?, ?, ?, ?, ?, ?, ?, 1)
        ON CONFLICT DO UPDATE SET runs = runs + 1 RETURNING id, runs"""
    counts: dict[ModelKey, int] = {}
    changed: dict[int, set[tuple[CurveName, int]]] = {}
    for key, samples, at in runs:
        model_id, counts[key] = connection.execute(sql, msgspec.structs.astuple(key)).get
        _insert(connection, model_id, samples, at)
        sizes = changed.setdefault(model_id, set())
        sizes.update((sample.curve, sample.units) for sample in samples)
    for model_id, sizes in changed.items():
        _drop_old(connection, model_id, sizes)
    return counts


def replace_observations(
    connection: apsw.Connection, key: ModelKey, samples: Sequence[Sample], at: float
) -> None:
    """Replace all observations of `key` by `samples`."""
    header = _model_header(connection, key)
    if header is not None:
        model_id, _ = header
        connection.execute("DELETE FROM observation WHERE model = ?", (model_id,))
        _insert(connection, model_id, samples, at)
    count_rewrite(connection)


def write_model(
    connection: apsw.Connection, key: ModelKey, runs: int, observations: Sequence[Observation]
) -> None:
    """Make these, oldest first, the model of `key`. The caller calls `count_rewrite`."""
    _delete_model(connection, key)
    sql = f"INSERT INTO model({_KEY}, runs) VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id"
    model_id = connection.execute(sql, (*msgspec.structs.astuple(key), runs)).get
    rows = [(model_id, *msgspec.structs.astuple(seen)) for seen in observations]
    connection.executemany(_INSERT, rows)
    _drop_old(connection, model_id, [(seen.curve, seen.units) for seen in observations])


def delete_models(connection: apsw.Connection, keys: Iterable[ModelKey]) -> None:
    """Delete the models of `keys`."""
    for key in keys:
        _delete_model(connection, key)
        delete_races(connection, [key.race_key])
    count_rewrite(connection)


def used_bytes(connection: apsw.Connection) -> int:
    """Return the bytes of the file that hold data; deleted rows leave free pages."""
    pages, free, size = (
        int(connection.pragma(name)) for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def delete_oldest(connection: apsw.Connection, fraction: float) -> None:
    """Delete this part of the models, at least one: those observed least recently."""
    sql = f"""SELECT {_KEY} FROM model ORDER BY
        (SELECT coalesce(max(observation.id), 0) FROM observation WHERE model = model.id)"""
    keys = [ModelKey(*row) for row in connection.execute(sql)]
    delete_models(connection, keys[: max(1, int(len(keys) * fraction))])


def read_probe_state(connection: apsw.Connection, key: ProbeKey) -> ProbeState | None:
    """Return the state of `key`, or None."""
    sql = f"SELECT {_PROBE_STATE} FROM probe WHERE {_PROBE_KEY_MATCHES}"
    row = connection.execute(sql, key).get
    return None if row is None else ProbeState(*msgspec.convert(row, _ProbeStateRow))


def write_probe_states(
    connection: apsw.Connection, states: Mapping[ProbeKey, ProbeState | None]
) -> None:
    """Replace the states of these keys; None deletes one."""
    connection.executemany(f"DELETE FROM probe WHERE {_PROBE_KEY_MATCHES}", list(states))
    connection.executemany(
        f"INSERT INTO probe({_PROBE_KEY}, {_PROBE_STATE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(*key, *astuple(state)) for key, state in states.items() if state is not None],
    )
    connection.execute(
        """DELETE FROM probe WHERE id NOT IN
        (SELECT id FROM probe ORDER BY id DESC LIMIT ?)""",
        (MAX_PROBE_STATES,),
    )


def _insert(
    connection: apsw.Connection, model_id: int, samples: Iterable[Sample], at: float
) -> None:
    rows = [(model_id, s.curve, s.units, s.seconds, at, s.contended, s.chunks) for s in samples]
    connection.executemany(_INSERT, rows)


def _sample(curve: CurveName, units: int, seconds: float, contended: int, chunks: int) -> Sample:
    return Sample(curve, units, seconds, bool(contended), chunks)


def _drop_old(
    connection: apsw.Connection, model_id: int, changed: Iterable[tuple[CurveName, int]]
) -> None:
    """Drop observations that a `History` no longer keeps, of these curves and sizes."""
    sizes = set(changed)
    for curve, units in sizes:
        connection.execute(_DELETE_BEYOND_WINDOW, (model_id, curve, units, WINDOW))
    for curve in {curve for curve, _ in sizes}:
        connection.execute(_DELETE_OLDEST_SIZES, (model_id, curve, MAX_SIZES))


def _delete_model(connection: apsw.Connection, key: ModelKey) -> None:
    header = _model_header(connection, key)
    if header is not None:
        model_id, _ = header
        connection.execute("DELETE FROM observation WHERE model = ?", (model_id,))
        connection.execute("DELETE FROM model WHERE id = ?", (model_id,))
    sql = """DELETE FROM probe
        WHERE workload = ? AND speed_key = ? AND device = ? AND storage = ?"""
    connection.execute(sql, (key.workload, key.speed_key, key.device, key.storage))


def _model_header(connection: apsw.Connection, key: ModelKey) -> tuple[int, int] | None:
    """Return (id, runs) of `key`."""
    sql = f"SELECT id, runs FROM model WHERE {_KEY_MATCHES}"
    row = connection.execute(sql, msgspec.structs.astuple(key)).get
    return None if row is None else msgspec.convert(row, tuple[int, Count])
