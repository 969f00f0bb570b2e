"""A database whose failures never stop a job: one warning is logged, and jobs run without it.

Owns the connection and the warning. Does not own the data or the statements.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import apsw

from hetsched.store import database
from hetsched.store.database import NewerFile

UNUSABLE = (*database.DAMAGE, NewerFile)
"""Errors of the file that don't stop a job."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class TolerantDatabase:
    """A connection that may fail, at any time or from the start.

    Parameters
    ----------
    name : str
        The file, for warnings.
    connect : callable
        Makes the connection. Its ConfigError (not NewerFile) is raised.
    first_read : callable
        Called with the new connection; if it fails, the file counts as unusable.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], apsw.Connection],
        first_read: Callable[[apsw.Connection], None],
    ) -> None:
        self._name = name
        self._has_warned = False
        self.connection: apsw.Connection | None = None
        try:
            connection = connect()
            first_read(connection)
            self.connection = connection
        except UNUSABLE as error:
            self._warn(error)

    def read(self, action: Callable[[apsw.Connection], _T]) -> _T | None:
        """Return what `action` returns; None if the file can't be used."""
        if self.connection is None:
            return None
        try:
            return action(self.connection)
        except UNUSABLE as error:
            self._warn(error)
            return None

    def write(self, action: Callable[[apsw.Connection], object]) -> bool:
        """Run `action` in a transaction, under the file's write lock; return whether it did."""
        if self.connection is None:
            return False
        try:
            with database.transaction(self.connection):
                action(self.connection)
        except UNUSABLE as error:
            self._warn(error)
            return False
        self._has_warned = False
        return True

    def close(self) -> None:
        """Close the file; later reads and writes do nothing."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _warn(self, error: Exception) -> None:
        """Log one warning until the file works again."""
        if not self._has_warned and isinstance(error, NewerFile):
            _log.warning("%s; new measurements stay in memory", error)
        elif not self._has_warned:
            remedy = "make room, or delete the file to start afresh"
            message = "%s: %s; new measurements stay in memory; %s"
            _log.warning(message, self._name, error, remedy)
        self._has_warned = True
