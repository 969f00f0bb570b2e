"""ZAP (ZeroMQ RFC 27): libzmq asks here before it reads a message of a new connection.

The handler runs on the daemon's loop and never waits: libzmq's own thread does, for at most the
handshake's time limit. ZAP_ENFORCE_DOMAIN makes it fail closed: a handler that is closed or slow
means a refused connection. The decision is the role of the peer's uid.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import zmq

from hetsched.transport.loop import Loop
from hetsched.transport.sockets import Peer, address_peer

log = logging.getLogger(__name__)

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
DOMAIN = b"hetsched"
VERSION = b"1.0"
_GRANTED, _DENIED = (b"200", b"OK"), (b"400", b"not permitted")
_MIN_FRAMES = 8
"""Of a request: peer's return address, delimiter, version, request id, domain, address, routing
id, mechanism; then credentials, which the NULL mechanism hasn't."""


class ZapHandler:
    """Answers libzmq's requests for one context. Bind it before the sockets that it protects.

    Parameters
    ----------
    admits : callable
        admits(peer): whether its connection may be used.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        loop: Loop,
        admits: Callable[[Peer], bool],
    ) -> None:
        self._loop = loop
        self._admits = admits
        self._socket = context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(ZAP_ENDPOINT)
        loop.add_reader(self._socket, self._receive)

    def close(self) -> None:
        """Stop answering: from now on every connection is refused."""
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _receive(self) -> None:
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
                self._socket.send_multipart(decide(frames, self._admits), zmq.NOBLOCK)
            except zmq.Again:
                return


def decide(frames: Sequence[bytes], admits: Callable[[Peer], bool]) -> list[bytes]:
    """Return the reply to one request; one that isn't understood is denied."""
    return_address = list(frames[:1])
    if len(frames) < _MIN_FRAMES or frames[2] != VERSION:
        return [*return_address, b"", VERSION, b"", *_DENIED, b"", b""]
    _, _, _, request_id, domain, address, *_ = frames
    peer = address_peer(address.decode("ascii", "replace"))
    is_admitted = domain == DOMAIN and admits(peer)
    if not is_admitted:
        log.warning("refused a connection of uid %d (pid %d)", peer.uid, peer.pid)
    status = _GRANTED if is_admitted else _DENIED
    return [*return_address, b"", VERSION, request_id, *status, str(peer.uid).encode(), b""]
