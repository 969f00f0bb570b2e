"""The races of variants in memory: those read from ``models.db``, and those not yet written."""

from __future__ import annotations

import apsw

from hetsched.bounded_cache import BoundedCache
from hetsched.models.evidence.races import NO_RACES, Race, RaceRecord
from hetsched.store.models.race_table import RaceKey, add_race

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
            add_race(connection, key, race, at)

    def clear_pending(self) -> None:
        self._pending.clear()

    def clear(self) -> None:
        """Read everything again: another process has written."""
        self._records.clear()


def _with(record: RaceRecord, race: Race) -> RaceRecord:
    return record.with_race(race) if race.paces else record.with_change(race.number)
