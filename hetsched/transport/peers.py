"""Who is at the other end of a local socket: the kernel's word, never the peer's own."""

from __future__ import annotations

import functools
import socket
import struct
from dataclasses import dataclass

_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
_PREFIX = "localhost:"


@dataclass(frozen=True)
class Peer:
    """The process that connected, as the kernel recorded it then (SO_PEERCRED)."""

    uid: int
    pid: int


NOBODY = Peer(-1, -1)
"""A peer without credentials: it has no role anywhere."""


def socket_peer(sock: socket.socket) -> Peer:
    """Return the process at the other end of a connected unix socket. Raises OSError."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(data)
    return Peer(uid, pid)


@functools.lru_cache(maxsize=256)
def address_peer(address: str) -> Peer:
    """Parse ZeroMQ's Peer-Address of an ipc connection, "localhost:UID:GID:PID".

    NOBODY if it has another form, as that of a TCP connection. Cached: each message has one.
    """
    fields = address.removeprefix(_PREFIX).split(":")
    if len(fields) != 3 or not address.startswith(_PREFIX):
        return NOBODY
    if not all(field.isascii() and field.isdigit() for field in fields):
        return NOBODY
    return Peer(int(fields[0]), int(fields[2]))
