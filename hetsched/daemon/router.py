"""The daemon's ZeroMQ socket: frames in, replies out, a bounded backlog for slow clients."""

from __future__ import annotations

import functools
import logging
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

import zmq
from msgspec.structs import replace

from hetsched.errors import ConfigError
from hetsched.job import Done, Failed
from hetsched.transport.codec import encode
from hetsched.transport.loop import Loop
from hetsched.transport.messages import MAX_FRAME, Reply, State
from hetsched.transport.sockets import remove_socket

log = logging.getLogger(__name__)

MAX_BACKLOG = 1000
"""Largest number of replies queued for a client that doesn't read; later ones are dropped.
Arbitrary."""
RETRY_SECONDS = 0.02
"""Seconds until sending to a client that doesn't read is retried. Arbitrary."""
MAX_FRAMES_PER_TURN = 64
"""Frames received before other handlers on the loop run. Arbitrary."""


class Router:
    """A ROUTER socket that never blocks, with a bounded backlog.

    Parameters
    ----------
    on_frame : callable
        on_frame(identity, frame) for every message of one frame; others are dropped.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        loop: Loop,
        on_frame: Callable[[bytes, bytes], None],
    ) -> None:
        self._loop = loop
        self._on_frame = on_frame
        self._socket = context.socket(zmq.ROUTER)
        self._path: Path | None = None
        self._waiting: dict[bytes, deque[bytes]] = {}

    def bind(self, path: Path, listening: int | None = None) -> None:
        """Listen at `path` (0600), or on the descriptor `listening`, already bound to it.

        libzmq owns the descriptor from then on. Without one it replaces what is at `path`: hold
        the lock first.

        Raises
        ------
        ConfigError
            The path isn't a socket, or can't be bound.
        """
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.MAXMSGSIZE, MAX_FRAME),
            (zmq.ROUTER_MANDATORY, 1),  # else replies to a slow client are silently dropped
            (zmq.RCVHWM, 1000),
            (zmq.SNDHWM, 1000),
            (zmq.HANDSHAKE_IVL, 2000),
        ):
            self._socket.setsockopt(option, value)
        if listening is not None:
            self._socket.setsockopt(zmq.USE_FD, listening)
        else:
            remove_socket(path)
            self._path = path
        mask = os.umask(0o177)
        try:
            self._socket.bind(f"ipc://{path}")
        except zmq.ZMQError as error:
            raise ConfigError(f"control socket {path}: {error.strerror}") from None
        finally:
            os.umask(mask)
        self._loop.add_reader(self._socket, self._receive)

    def send(self, identity: bytes, reply: Reply, droppable: bool = False) -> None:
        """Send now or, unless `droppable`, as soon as the client reads, if it still exists."""
        waiting = self._waiting.get(identity)
        if waiting is None and self._try_send(identity, payload := encode_bounded(reply)):
            return
        if droppable:
            return
        if waiting is None:
            waiting = self._waiting[identity] = deque([payload])
            self._loop.call_later(RETRY_SECONDS, functools.partial(self._retry, identity))
        elif len(waiting) < MAX_BACKLOG:
            waiting.append(encode_bounded(reply))

    def backlog(self) -> int:
        """Count the replies that wait for the slowest client."""
        return max(map(len, self._waiting.values()), default=0)

    def close(self) -> None:
        """Close the socket, after a short wait for the last replies; remove it if it is ours."""
        self._loop.remove_reader(self._socket)
        self._socket.close(linger=200)
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _receive(self) -> None:
        for _ in range(MAX_FRAMES_PER_TURN):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(frames) == 2:
                self._on_frame(*frames)
            else:
                log.warning("dropped a message of %d frames", len(frames) - 1)

    def _try_send(self, identity: bytes, payload: bytes) -> bool:
        """Return whether the message needs no retry: it was sent, or its client has ended."""
        try:
            self._socket.send_multipart([identity, payload], zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
        return True

    def _retry(self, identity: bytes) -> None:
        waiting = self._waiting[identity]
        while waiting and self._try_send(identity, waiting[0]):
            waiting.popleft()
        if waiting:
            self._loop.call_later(RETRY_SECONDS, functools.partial(self._retry, identity))
        else:
            del self._waiting[identity]


def encode_bounded(reply: Reply) -> bytes:
    """Encode `reply`, without its lists of chunks if it would exceed MAX_FRAME."""
    payload = encode(reply)
    answer = reply.answer
    if len(payload) <= MAX_FRAME or not isinstance(answer, State):
        return payload
    if not isinstance(answer.state, Done | Failed):
        return payload
    report = answer.state.report
    devices = tuple(replace(device, chunks=()) for device in report.devices)
    state = replace(answer.state, report=replace(report, devices=devices))
    return encode(replace(reply, answer=State(state)))
