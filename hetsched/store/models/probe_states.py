"""The probe states in ``models.db``: devices without a share, by kind of job.

Owns a copy in memory of the states in use, and those still to be written. `ModelStore` reads and
writes them together with the models.
"""

from __future__ import annotations

from collections.abc import Callable

import apsw

from hetsched.models.evidence.probe_state import ProbeState
from hetsched.store.models import models_db
from hetsched.store.models.models_db import ProbeKey

ReadFile = Callable[[Callable[[apsw.Connection], ProbeState | None]], ProbeState | None]
"""``read(action)``: what `action` returns, or None if the file can't be used."""
MAX_IN_MEMORY = 10_000
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
        self._states: dict[ProbeKey, ProbeState | None] = {}
        self._unwritten: dict[ProbeKey, ProbeState | None] = {}

    @property
    def has_unwritten(self) -> bool:
        return bool(self._unwritten)

    def get(self, key: ProbeKey) -> ProbeState | None:
        """Return the state of `key`; None if it has a share."""
        if key in self._unwritten:
            return self._unwritten[key]
        if key not in self._states:
            if len(self._states) >= MAX_IN_MEMORY:
                self._states.clear()
            self._states[key] = self._read(lambda db: models_db.read_probe_state(db, key))
        return self._states[key]

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
            models_db.write_probe_states(connection, self._unwritten)

    def mark_written(self) -> None:
        """Record that the transaction was committed, or that there is no file."""
        self._states.update(self._unwritten)
        self._unwritten.clear()
