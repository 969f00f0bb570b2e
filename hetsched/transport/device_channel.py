"""The channel between the engine and the loop of one device: messages with descriptors.

A message larger than a socket's buffer can never be sent. So a large one is in a memfd that is
passed with a short message: MARKER, which no msgpack message begins with, and the memfd as its
last descriptor.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from hetsched.errors import ProtocolError
from hetsched.transport import sockets
from hetsched.transport.messages import Decoder, encode

MAX_INLINE = 64 << 10
"""Bytes of a message without a memfd: fits into any socket buffer, at least 208 KiB by default."""
MAX_LARGE = 1 << 30
"""Bytes of a message in a memfd. Only a bug exceeds it: 64 commands of 1 MiB have 64 MiB."""
MARKER = b"\xc1"
"""Never used in msgpack."""


class ChannelClosed(Exception):
    """The peer has ended."""


class Channel(Protocol):
    """One end. Descriptors that are sent stay the sender's; received ones are the receiver's."""

    def send(self, message: Any, fds: Sequence[int] = ()) -> None:
        """Send, and block while the peer doesn't read. Raises ChannelClosed, OSError."""

    def poll(self, seconds: float | None) -> bool:
        """Wait for a message, or the peer's end; None: for any time."""

    def receive(self) -> tuple[Any, list[int]]:
        """Wait for the next message. Raises ChannelClosed, ProtocolError."""


class SocketChannel:
    """A channel to another process, over a SOCK_SEQPACKET socket; decodes `message_type`."""

    def __init__(self, sock: socket.socket, message_type: Any) -> None:
        self._sock = sock
        self._decode: Decoder[Any] = Decoder(message_type, MAX_LARGE)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def send(self, message: Any, fds: Sequence[int] = ()) -> None:
        payload, own = packed(message)
        try:
            sockets.send_message(self._sock, payload, [*fds, *own])
        except OSError as error:
            raise ChannelClosed from error
        finally:
            if own:
                sockets.close_all(own)

    def poll(self, seconds: float | None) -> bool:
        return bool(self._poll.poll(None if seconds is None else seconds * 1e3))

    def receive(self) -> tuple[Any, list[int]]:
        """As `Channel.receive`; BlockingIOError where a non-blocking socket has no message."""
        try:
            payload, fds = sockets.receive_message(self._sock, MAX_INLINE)
        except BlockingIOError:
            raise
        except OSError as error:
            raise ChannelClosed from error
        if payload == MARKER:
            payload = _unpack(fds)
        if not payload:
            sockets.close_all(fds)
            raise ChannelClosed
        try:
            return self._decode(payload), fds
        except ProtocolError:
            sockets.close_all(fds)
            raise


class ThreadChannel:
    """A channel to another thread; messages aren't encoded. Make two ends with `thread_pair`."""

    def __init__(self, inbox: SimpleQueue[Any], outbox: SimpleQueue[Any]) -> None:
        self._inbox, self._outbox = inbox, outbox
        self._next: list[tuple[Any, list[int]]] = []

    def send(self, message: Any, fds: Sequence[int] = ()) -> None:
        self._outbox.put((message, [os.dup(fd) for fd in fds]))

    def poll(self, seconds: float | None) -> bool:
        if not self._next:
            try:
                self._next.append(self._inbox.get(timeout=seconds))
            except Empty:
                return False
        return True

    def receive(self) -> tuple[Any, list[int]]:
        self.poll(None)
        message, fds = self._next.pop()
        if message is None:
            raise ChannelClosed
        return message, fds

    def close(self) -> None:
        """Let the peer's `receive` raise ChannelClosed."""
        self._outbox.put((None, []))


def thread_pair() -> tuple[ThreadChannel, ThreadChannel]:
    """Return the two ends of a channel between threads."""
    one: SimpleQueue[Any] = SimpleQueue()
    two: SimpleQueue[Any] = SimpleQueue()
    return ThreadChannel(one, two), ThreadChannel(two, one)


def packed(message: Any) -> tuple[bytes, list[int]]:
    """Return what to send for `message`: a payload, and the memfd of a large one, to be closed.

    Raises OSError without descriptors.
    """
    payload = encode(message)
    if len(payload) <= MAX_INLINE:
        return payload, []
    fd = os.memfd_create("hetsched message", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(payload)
    except BaseException:
        os.close(fd)
        raise
    return MARKER, [fd]


def _unpack(fds: list[int]) -> bytes:
    """Return a large message, from the last of `fds`: it is closed and removed. ProtocolError."""
    if not fds:
        raise ProtocolError("a large message without its descriptor")
    with open(fds.pop(), "rb") as file:
        nbytes = os.fstat(file.fileno()).st_size
        if nbytes > MAX_LARGE:
            raise ProtocolError(f"a message of {nbytes} bytes; the limit is {MAX_LARGE}")
        file.seek(0)
        return file.read()
