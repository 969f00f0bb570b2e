"""The requests of a connection that haven't been answered, and the way to send one at once."""

from __future__ import annotations

import threading

from hetsched.client.handlers import Handler
from hetsched.client.link import Link
from hetsched.transport.messages import Request


class OpenRequests(dict[int, tuple[Request, Handler]]):
    """Requests by number, with their handlers.

    Only the connection's thread uses it, except `send`, which adds a request on any thread: each
    request is in it when `pause` returns or will not be sent by `send`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._link: Link | None = None

    def send(
        self, link: Link, number: int, request: Request, handler: Handler, payload: bytes
    ) -> bool:
        """Send a request on this thread, if `link` is the present one and takes it now."""
        with self._lock:
            if self._link is not link:
                return False
            self[number] = (request, handler)
            if link.send_now(payload):
                return True
            del self[number]
            return False

    def resume(self, link: Link) -> list[int]:
        """Let `send` use `link` from now on; return the numbers of the requests before."""
        with self._lock:
            self._link = link
            return sorted(self)

    def pause(self) -> None:
        """Let `send` send nothing."""
        with self._lock:
            self._link = None

    def take_all(self) -> list[tuple[Request, Handler]]:
        """Remove and return all requests; `send` sends nothing from now on."""
        with self._lock:
            self._link = None
            requests = list(self.values())
            self.clear()
            return requests
