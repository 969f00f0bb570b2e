"""The SQL of ``models.db``: its schema, and one function a statement. No policy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

from hetsched.errors import ConfigError
from hetsched.models.evidence.history import MOST_SIZES
from hetsched.models.evidence.observations import WINDOW
from hetsched.models.evidence.samples import CurveName, Sample

VERSION = 1
APPLICATION = 0x68737364
"""SQLite's application_id: a file that says so is ours."""
MAKE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
BUSY_MS = 10_000
"""How long to wait for others that write. Each holds the lock for milliseconds, but on a busy
machine with a slow disk SQLite's turns aren't fair, and what isn't written at the end is lost."""

_SCHEMA = f"""
CREATE TABLE model(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    workload TEXT NOT NULL, speed_key TEXT NOT NULL, variant TEXT NOT NULL,
    version TEXT NOT NULL, device TEXT NOT NULL, place TEXT NOT NULL,
    runs INTEGER NOT NULL,
    UNIQUE(workload, speed_key, variant, version, device, place)) STRICT;
CREATE TABLE observation(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    model INTEGER NOT NULL, curve TEXT NOT NULL,
    units INTEGER NOT NULL CHECK(units > 0),
    seconds REAL NOT NULL CHECK(seconds > 0 AND seconds < 1e300),
    at REAL NOT NULL) STRICT;
CREATE INDEX observation_by_size ON observation(model, curve, units, id);
CREATE TABLE forgotten(times INTEGER NOT NULL) STRICT;
INSERT INTO forgotten VALUES (0);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""


class NewerFile(ConfigError):
    """Written by a hetsched that knows more than this one."""


class Row(NamedTuple):
    """One observation as the file has it; `at`: seconds since the epoch."""

    curve: CurveName
    units: int
    seconds: float
    at: float


class ModelKey(msgspec.Struct, frozen=True, order=True):
    """What a model is of. Two runs with the same key have the same speeds.

    `speed_key`: the parameters that change a unit's speed. `device`: name and identity. `place`:
    "arena" or "file".
    """

    workload: str
    speed_key: str
    variant: str
    version: str
    device: str
    place: str


# One statement, so one moment: another process may be making the tables.
_HEADER = """SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema)
    FROM pragma_user_version, pragma_application_id"""
_KEY = ", ".join(ModelKey.__struct_fields__)
_IS_KEY = " AND ".join(f"{name} = ?" for name in ModelKey.__struct_fields__)


def connect(path: Path | None) -> apsw.Connection:
    """The database at `path` (None: in memory), made if it isn't there.

    Raises
    ------
    ConfigError
        It can't be opened for writing, or is of a newer version (NewerFile).
    apsw.Error
        It is broken, foreign, or there is no room to make it.
    """
    with _opened(":memory:" if path is None else str(path)) as connection:
        if connection.readonly("main"):
            raise apsw.ReadOnlyError("not writable")
        check(connection, path)
        # NORMAL: a power cut may cost the last observations, a crash of ours nothing.
        connection.execute("PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = NORMAL")
        with transaction(connection):
            if check(connection, path) == 0:  # another process may just have made the tables
                connection.execute(_SCHEMA)
    return connection


def existing(path: Path) -> apsw.Connection:
    """The database that is at `path`; none is made, nor is this one changed. Raises as `connect`.

    One that can't be written is opened all the same: looking is allowed.
    """
    with _opened(str(path), apsw.SQLITE_OPEN_READWRITE) as connection:
        check(connection, path)
    return connection


def copied(path: Path | None) -> apsw.Connection:
    """A copy in memory of the database at `path`; empty if there is none. Raises as `connect`."""
    if path is None or not path.exists():
        return connect(None)
    with contextlib.closing(existing(path)) as source:
        if not check(source, path):
            return connect(None)
        copy = apsw.Connection(":memory:")
        with copy.backup("main", source, "main") as backup:
            backup.step()
    return copy


@contextlib.contextmanager
def _opened(name: str, flags: int = MAKE) -> Iterator[apsw.Connection]:
    """A connection that is closed again if the body fails."""
    try:
        connection = apsw.Connection(name, flags)
        try:
            connection.set_busy_timeout(BUSY_MS)
            yield connection
        except BaseException:
            connection.close()
            raise
    except (apsw.CantOpenError, apsw.PermissionsError, apsw.ReadOnlyError) as error:
        way_out = "make it writable, or set HETSCHED_STATE_DIR to another folder"
        raise ConfigError(f"{name}: {error}; {way_out}") from None


def check(connection: apsw.Connection, path: Path | str | None) -> int:
    """The file's version; 0: there is nothing in it yet.

    Raises
    ------
    NewerFile
    apsw.NotADBError
        It is somebody else's.
    """
    version, application, tables = connection.execute(_HEADER).get
    if application not in (0, APPLICATION) or (application == 0 and tables):
        raise apsw.NotADBError("not a file of hetsched")
    if version > VERSION:
        raise NewerFile(
            f"{path}: written by a newer hetsched (version {version}, this one knows {VERSION});"
            " update hetsched, or set HETSCHED_STATE_DIR to another folder"
        )
    return int(version) if tables else 0


@contextlib.contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """All or nothing, under the file's write lock from the start."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk or a failed write has rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def data_version(connection: apsw.Connection) -> int:
    """A number that changes when another connection has written."""
    return int(connection.execute("PRAGMA data_version").get)


def last_id(connection: apsw.Connection) -> int:
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM observation").get)


def forgotten(connection: apsw.Connection) -> int:
    """How often something was forgotten."""
    return int(connection.execute("SELECT times FROM forgotten").get)


def keys(connection: apsw.Connection) -> list[ModelKey]:
    return [ModelKey(*row) for row in connection.execute(f"SELECT {_KEY} FROM model")]


def read(
    connection: apsw.Connection, key: ModelKey, up_to: int
) -> tuple[int, list[Sample]] | None:
    """(runs, observations up to an id, oldest first) of `key`; None: nothing is known of it."""
    found = _find(connection, key)
    if found is None:
        return None
    model, runs = found
    sql = "SELECT curve, units, seconds FROM observation WHERE model = ? AND id <= ? ORDER BY id"
    return runs, [Sample(*row) for row in connection.execute(sql, (model, up_to))]


def added(connection: apsw.Connection, after: int) -> list[tuple[int, ModelKey, int, Sample]]:
    """(id, key, runs of the key, sample) of the observations after an id, oldest first."""
    sql = f"""SELECT observation.id, curve, units, seconds, runs, {_KEY}
        FROM observation JOIN model ON model.id = observation.model
        WHERE observation.id > ? ORDER BY observation.id"""
    rows = connection.execute(sql, (after,))
    return [(row[0], ModelKey(*row[5:]), row[4], Sample(*row[1:4])) for row in rows]


def add_run(connection: apsw.Connection, key: ModelKey, found: Sequence[Sample], at: float) -> int:
    """Add one run of `key`, and drop what is too old to count, as `History` does; its runs now."""
    sql = f"""INSERT INTO model({_KEY}, runs) VALUES (?, ?, ?, ?, ?, ?, 1)
        ON CONFLICT DO UPDATE SET runs = runs + 1 RETURNING id, runs"""
    model, runs = connection.execute(sql, msgspec.structs.astuple(key)).get
    connection.executemany(
        _INSERT, [(model, sample.curve, sample.units, sample.seconds, at) for sample in found]
    )
    _drop_old(connection, model, [(sample.curve, sample.units) for sample in found])
    return int(runs)


def _drop_old(
    connection: apsw.Connection, model: int, touched: Iterable[tuple[CurveName, int]]
) -> None:
    """Drop what is over the windows of these curves and sizes."""
    sizes = set(touched)
    for curve, units in sizes:
        connection.execute(_OLD, (model, curve, units, WINDOW))
    for curve in {curve for curve, _ in sizes}:
        connection.execute(_STALE, (model, curve, MOST_SIZES))


def replace(
    connection: apsw.Connection, key: ModelKey, found: Sequence[Sample], at: float
) -> None:
    """Put `found` in the place of all observations of `key`, and leave a mark for others."""
    known = _find(connection, key)
    if known is not None:
        connection.execute("DELETE FROM observation WHERE model = ?", known[:1])
        connection.executemany(
            _INSERT, [(known[0], one.curve, one.units, one.seconds, at) for one in found]
        )
    announce(connection)


_INSERT = "INSERT INTO observation(model, curve, units, seconds, at) VALUES (?, ?, ?, ?, ?)"


_OLD = """DELETE FROM observation WHERE model = ?1 AND curve = ?2 AND units = ?3 AND id <=
    (SELECT id FROM observation WHERE model = ?1 AND curve = ?2 AND units = ?3
     ORDER BY id DESC LIMIT 1 OFFSET ?4)"""
_STALE = """DELETE FROM observation WHERE model = ?1 AND curve = ?2 AND units IN
    (SELECT units FROM observation WHERE model = ?1 AND curve = ?2
     GROUP BY units ORDER BY max(id) DESC LIMIT -1 OFFSET ?3)"""


def everything(connection: apsw.Connection) -> list[tuple[ModelKey, int, list[Row]]]:
    """(key, runs, observations, oldest first) of every model, by key."""
    models = connection.execute(f"SELECT id, runs, {_KEY} FROM model")
    found: dict[int, tuple[ModelKey, int, list[Row]]] = {
        row[0]: (ModelKey(*row[2:]), int(row[1]), []) for row in models
    }
    sql = "SELECT model, curve, units, seconds, at FROM observation ORDER BY id"
    for model, *row in connection.execute(sql):
        found[model][2].append(Row(*row))
    return sorted(found.values(), key=lambda one: one[0])


def put(connection: apsw.Connection, key: ModelKey, runs: int, rows: Sequence[Row]) -> None:
    """Make `rows`, oldest first, all that is known of `key`; `announce` it to other processes."""
    _delete(connection, key)
    sql = f"INSERT INTO model({_KEY}, runs) VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id"
    model = connection.execute(sql, (*msgspec.structs.astuple(key), runs)).get
    connection.executemany(_INSERT, [(model, *row) for row in rows])
    _drop_old(connection, model, [(row.curve, row.units) for row in rows])


def announce(connection: apsw.Connection) -> None:
    """Leave a mark for other processes: what they have read of models may not hold any more."""
    connection.execute("UPDATE forgotten SET times = times + 1")


def forget(connection: apsw.Connection, gone: Iterable[ModelKey]) -> None:
    """Delete all that is known of some keys, and leave a mark for other processes."""
    for key in gone:
        _delete(connection, key)
    announce(connection)


def _delete(connection: apsw.Connection, key: ModelKey) -> None:
    found = _find(connection, key)
    if found is not None:
        connection.execute("DELETE FROM observation WHERE model = ?", (found[0],))
        connection.execute("DELETE FROM model WHERE id = ?", (found[0],))


def _find(connection: apsw.Connection, key: ModelKey) -> tuple[int, int] | None:
    """(id, runs) of `key`."""
    sql = f"SELECT id, runs FROM model WHERE {_IS_KEY}"
    row: tuple[int, int] | None = connection.execute(sql, msgspec.structs.astuple(key)).get
    return row
