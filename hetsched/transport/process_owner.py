"""Which process a client belongs to: a forked child shares its sockets, and must not use them.

The child's arrays are the parent's references: dropping one there would release the parent's. The
child also closes its copy of the session's socket, whose end tells the daemon that the client has
ended.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from hetsched.errors import UsageError


class ClosesAfterFork(Protocol):
    """Something with sockets that a forked child should close."""

    def close_in_child(self) -> None: ...


_owners: weakref.WeakSet[ClosesAfterFork] = weakref.WeakSet()


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
        if os.getpid() != self._pid:
            raise UsageError(
                f"this client belongs to process {self._pid}, of which this one (pid"
                f" {os.getpid()}) is a fork; create another client here"
            )


def close_after_fork(sockets: ClosesAfterFork) -> None:
    """Call ``sockets.close_in_child()`` in every child that `os.fork` creates."""
    _owners.add(sockets)


def _close_in_child() -> None:
    for sockets in list(_owners):
        sockets.close_in_child()


os.register_at_fork(after_in_child=_close_in_child)
