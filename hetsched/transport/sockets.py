"""SOCK_SEQPACKET sockets that pass file descriptors with messages, and the daemon's lock file.

A seqpacket socket preserves message boundaries, reports the end of file and passes descriptors
(SCM_RIGHTS); ZeroMQ does only the first. Who is at the other end is the kernel's word, never the
peer's own.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import functools
import os
import re
import select
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hetsched import errors
from hetsched.paths import MAX_SOCKET_PATH

MAX_FDS = 16
"""Largest number of descriptors in one message."""

_ANCILLARY = socket.CMSG_SPACE(MAX_FDS * array.array("i").itemsize)
# As integers: each operation on members of an enumeration takes several calls.
NOW = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
"""Flags of sending and receiving: without waiting, and without SIGPIPE."""
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)
_TRUNCATED = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
_ADDRESS = re.compile(r"localhost:([0-9]+):[0-9]+:([0-9]+)")


def send_message(
    sock: socket.socket, payload: bytes, fds: Sequence[int] = (), flags: int = 0
) -> None:
    """Send one message with copies of the descriptors `fds`. Raises OSError."""
    flags |= int(socket.MSG_NOSIGNAL)
    if not fds:
        sock.send(payload, flags)
        return
    rights = array.array("i", fds)
    # `socket.send_fds` ignores its flags before Python 3.13
    sock.sendmsg([payload], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], flags)


def receive_message(sock: socket.socket, limit: int, flags: int = 0) -> tuple[bytes, list[int]]:
    """Receive a message of at most `limit` bytes and its descriptors; b"" at the end of file.

    The caller owns the descriptors; they are closed on exec. Raises OSError, and ProtocolError for
    a longer message or more than MAX_FDS descriptors, which are closed.
    """
    flags |= _CLOSE_ON_EXEC
    try:
        payload, ancillary, status, _ = sock.recvmsg(limit, _ANCILLARY, flags)
    except ConnectionResetError:  # the peer closed with messages unread: reported once, first
        try:
            payload, ancillary, status, _ = sock.recvmsg(limit, _ANCILLARY, flags)
        except ConnectionResetError:
            return b"", []
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if status & _TRUNCATED:
        close_all(fds)
        raise errors.ProtocolError(
            f"a message over {limit} bytes or {MAX_FDS} descriptors; it was truncated"
        )
    return payload, list(fds)


def is_readable(source: socket.socket | int, seconds: float | None = None) -> bool:
    """Wait until `source` can be read, by default for ever; return whether it can.

    Not by select(), which takes no descriptor above 1023.
    """
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def close_all(fds: Sequence[int]) -> None:
    """Close descriptors; those already closed are ignored."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def validate_socket_path(path: Path) -> None:
    """Check that `path` isn't too long for a unix socket. Raises ConfigError."""
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH:
        raise errors.ConfigError(
            f"runtime path too long: {path} has {length} bytes, the limit for a socket is"
            f" {MAX_SOCKET_PATH}; set HETSCHED_RUNTIME_DIR to a shorter folder"
        )


def acquire_lock(path: Path) -> int:
    """Lock the file at `path` and write our pid into it; return its fd, which holds the lock.

    Raises ConfigError, with the pid of the process that holds the lock.
    """
    fd = -1
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise errors.ConfigError(
            f"{path.parent} is in use by hetsched pid {pid};"
            " stop it, or set HETSCHED_RUNTIME_DIR to another folder"
        ) from None
    except OSError as error:
        if fd >= 0:
            os.close(fd)
        raise errors.ConfigError(f"lock file {path}: {error.strerror}") from None
    return fd


def listen(path: Path, kind: int = socket.SOCK_SEQPACKET) -> socket.socket:
    """Return a non-blocking socket (mode 0600) that listens at `path`.

    An existing socket there is assumed stale and removed: acquire the lock first. Raises
    ConfigError.
    """
    validate_socket_path(path)
    if path.is_socket():
        path.unlink(missing_ok=True)
    elif path.is_symlink() or path.exists():
        raise errors.ConfigError(
            f"{path} is not a socket; move it away or set HETSCHED_RUNTIME_DIR"
        )
    sock = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)
    try:
        mask = os.umask(0o177)
        try:
            sock.bind(os.fspath(path))
        finally:
            os.umask(mask)
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise errors.ConfigError(f"socket {path}: {error.strerror}") from None
    return sock


def connect(path: Path) -> socket.socket:
    validate_socket_path(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.connect(os.fspath(path))
    except BaseException:
        sock.close()
        raise
    return sock


def unreachable_reason(path: Path) -> str | None:
    """Return why no daemon can be reached at `path`; None if one listens. ZeroMQ can't tell."""
    try:
        connect(path).close()
    except OSError as error:
        return connect_failure(error)
    return None


def connect_failure(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, ConnectionRefusedError):
        return "stale socket: its daemon has died"
    if isinstance(error, PermissionError):
        return "not permitted: it belongs to another user"
    return error.strerror or str(error)


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
    match = _ADDRESS.fullmatch(address)
    return Peer(int(match[1]), int(match[2])) if match else NOBODY
