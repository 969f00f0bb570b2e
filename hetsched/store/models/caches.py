"""What `ModelStore` keeps in memory beside the histories: races, and devices without a share.

Each owns copies of what is in use, and what isn't written yet; `ModelStore` reads and writes them
together with the models.
"""

from __future__ import annotations

from collections.abc import Callable

import apsw

from hetsched.bounded_cache import BoundedCache
from hetsched.models.evidence.probe_state import ProbeState
from hetsched.models.evidence.races import NO_RACES, Race, RaceRecord
from hetsched.store.models import tables
from hetsched.store.models.tables import ProbeKey, RaceKey

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
            tables.add_race(connection, key, race, at)

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
            key, lambda: self._read(lambda db: tables.read_probe_state(db, key))
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
            tables.write_probe_states(connection, self._unwritten)

    def mark_written(self) -> None:
        """Record that the transaction was committed, or that there is no file."""
        for key, state in self._unwritten.items():
            self._states.put(key, state)
        self._unwritten.clear()
