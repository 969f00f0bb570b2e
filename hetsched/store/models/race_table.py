"""The table of races in ``models.db``: a row per race of variants, or change of speed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import apsw
import msgspec

from hetsched.models.evidence.races import MAX_RACES, Race, RaceRecord
from hetsched.store.models.stored_values import Count, Paces

SCHEMA = """
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


_MATCHES = " AND ".join(f"{name} = ?" for name in RaceKey.__struct_fields__)


class RaceRow(NamedTuple):
    """One race as stored; see `SCHEMA`. `at`: seconds since the epoch."""

    number: int
    units: float
    paces: Paces
    at: float


def read_races(connection: apsw.Connection, key: RaceKey) -> RaceRecord:
    """Return the races of `key`."""
    sql = f"SELECT number, units, paces FROM race WHERE {_MATCHES} ORDER BY id"
    record = RaceRecord()
    rows = connection.execute(sql, msgspec.structs.astuple(key))
    for number, units, text in msgspec.convert(list(rows), list[tuple[Count, float, str]]):
        race = Race(number, units, msgspec.json.decode(text, type=Paces))
        record = record.with_race(race) if race.paces else record.with_change(number)
    return record


def read_all_races(connection: apsw.Connection) -> dict[RaceKey, list[RaceRow]]:
    """Return all rows, oldest first, by key."""
    rows: dict[RaceKey, list[RaceRow]] = {}
    sql = f"SELECT number, units, paces, at, {', '.join(RaceKey.__struct_fields__)} FROM race"
    for number, units, text, at, *key in connection.execute(f"{sql} ORDER BY id"):
        paces = msgspec.json.decode(text, type=Paces)
        row = RaceRow(msgspec.convert(number, Count), units, paces, at)
        rows.setdefault(RaceKey(*key), []).append(row)
    return rows


def write_races(connection: apsw.Connection, key: RaceKey, rows: Iterable[RaceRow]) -> None:
    """Make `rows`, oldest first, the races of `key`."""
    delete_races(connection, [key])
    for number, units, paces, at in rows:
        add_race(connection, key, Race(number, units, paces), at)


def add_race(connection: apsw.Connection, key: RaceKey, race: Race, at: float) -> None:
    """Add a race, or without paces a change of speed; drop those too old to count."""
    values = msgspec.structs.astuple(key)
    paces = msgspec.json.encode(race.paces).decode()
    connection.execute(
        """INSERT INTO race(workload, speed_key, device, storage, number, units, paces, at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
        (*values, race.number, race.units, paces, at),
    )
    oldest = f"SELECT id FROM race WHERE {_MATCHES} ORDER BY id DESC LIMIT 1 OFFSET ?"
    sql = f"DELETE FROM race WHERE {_MATCHES} AND id <= ({oldest})"
    connection.execute(sql, (*values, *values, MAX_RACES))


def delete_races(connection: apsw.Connection, keys: Iterable[RaceKey]) -> None:
    """Delete the races of `keys`."""
    sql = f"DELETE FROM race WHERE {_MATCHES}"
    for key in set(keys):
        connection.execute(sql, msgspec.structs.astuple(key))
