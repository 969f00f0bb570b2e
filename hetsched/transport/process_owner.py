"""Which process an object belongs to: a forked child shares its sockets, and must not use them."""

from __future__ import annotations

import os

from hetsched.errors import UsageError


class ProcessOwner:
    """The process that has created this object."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of that process."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raise UsageError in a child."""
        if self.is_forked:
            raise UsageError(
                f"this client belongs to process {self._pid}, of which this one (pid"
                f" {os.getpid()}) is a fork; create another client here"
            )
