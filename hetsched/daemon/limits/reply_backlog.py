"""Replies that wait for clients that don't read: bounded in bytes, per client and in all. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

MESSAGE_OVERHEAD = 128
"""Bytes added to each reply for the objects that hold it: tiny replies count too. Rounded up."""


@dataclass
class _Queue:
    payloads: deque[bytes] = field(default_factory=deque)
    nbytes: int = 0


class ReplyBacklog:
    """The unsent replies of each client, oldest first.

    Parameters
    ----------
    client_limit, total_limit : int, bytes
    """

    def __init__(self, client_limit: int, total_limit: int) -> None:
        self._client_limit = client_limit
        self._total_limit = total_limit
        self._queues: dict[bytes, _Queue] = {}
        self.nbytes = 0

    def __contains__(self, identity: bytes) -> bool:
        return identity in self._queues

    def __len__(self) -> int:
        """Return the number of replies that wait."""
        return sum(len(queue.payloads) for queue in self._queues.values())

    def clients(self) -> list[bytes]:
        """Return the clients that replies wait for."""
        return list(self._queues)

    def longest(self) -> int:
        """Return the number of replies that wait for the slowest client."""
        return max((len(queue.payloads) for queue in self._queues.values()), default=0)

    def add(self, identity: bytes, payload: bytes) -> list[bytes]:
        """Append a reply; return the clients that exceed a limit, which `forget` should drop.

        Over the total limit these are the clients with the most bytes.
        """
        queue = self._queues.setdefault(identity, _Queue())
        size = len(payload) + MESSAGE_OVERHEAD
        queue.payloads.append(payload)
        queue.nbytes += size
        self.nbytes += size
        if queue.nbytes > self._client_limit:
            return [identity]
        return self._largest(self.nbytes - self._total_limit)

    def first(self, identity: bytes) -> bytes | None:
        """Return the oldest reply of a client."""
        queue = self._queues.get(identity)
        return queue.payloads[0] if queue else None

    def drop_first(self, identity: bytes) -> None:
        """Remove the oldest reply of a client, and the client after its last one."""
        queue = self._queues[identity]
        size = len(queue.payloads.popleft()) + MESSAGE_OVERHEAD
        queue.nbytes -= size
        self.nbytes -= size
        if not queue.payloads:
            del self._queues[identity]

    def forget(self, identity: bytes) -> int:
        """Drop all replies of a client; return their number."""
        queue = self._queues.pop(identity, None)
        if queue is None:
            return 0
        self.nbytes -= queue.nbytes
        return len(queue.payloads)

    def _largest(self, excess: int) -> list[bytes]:
        """Return the clients with the most bytes that together free `excess`."""
        chosen = []
        for identity in sorted(self._queues, key=lambda i: -self._queues[i].nbytes):
            if excess <= 0:
                break
            chosen.append(identity)
            excess -= self._queues[identity].nbytes
        return chosen
