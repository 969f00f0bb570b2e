"""SOCK_SEQPACKET sockets with file descriptors beside the messages, and the locks around them.

A seqpacket socket keeps messages whole, tells the end of file, and passes descriptors
(SCM_RIGHTS), which ZeroMQ can't.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from hetsched.errors import ConfigError, ProtocolError
from hetsched.paths import MAX_SOCKET_PATH

MAX_FDS = 16
"""Descriptors that one message may carry."""

_ANCILLARY = socket.CMSG_SPACE(MAX_FDS * array.array("i").itemsize)


def send_message(sock: socket.socket, payload: bytes, fds: Sequence[int] = ()) -> None:
    """Send one message, with `fds` beside it; the caller keeps its own descriptors.

    Raises
    ------
    OSError
        BlockingIOError (non-blocking and full), BrokenPipeError (the peer is gone), ...
    """
    if not fds:
        sock.send(payload, socket.MSG_NOSIGNAL)
        return
    rights = array.array("i", fds)
    sock.sendmsg([payload], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], socket.MSG_NOSIGNAL)


def receive_message(sock: socket.socket, limit: int) -> tuple[bytes, list[int]]:
    """One message of at most `limit` bytes and the descriptors with it; b"" at the end of file.

    The descriptors belong to the caller and are closed on exec.

    Raises
    ------
    ProtocolError
        The message was longer, or carried more than MAX_FDS descriptors (all closed again).
    OSError
        BlockingIOError when there is none and the socket doesn't block.
    """
    try:
        payload, ancillary, flags, _ = sock.recvmsg(limit, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:  # the peer closed with messages unread
        return b"", []
    fds = _descriptors(ancillary)
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        close_all(fds)
        raise ProtocolError(f"a message over {limit} bytes or {MAX_FDS} descriptors; it was cut")
    return payload, fds


def close_all(fds: Sequence[int]) -> None:
    """Close descriptors that nobody wants; ones that are closed already are fine."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def check_path(path: Path) -> None:
    """Raises ConfigError when `path` is too long for a unix socket."""
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH:
        raise ConfigError(
            f"runtime path too long: {path} has {length} bytes, a socket's path may have"
            f" {MAX_SOCKET_PATH}; set HETSCHED_RUNTIME_DIR to a shorter folder"
        )


def lock(path: Path) -> int:
    """Take the lock file at `path`, with our pid in it; the fd holds the lock until it is closed.

    Raises
    ------
    ConfigError
        Another process holds it; its pid is said. Or the file can't be made.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigError(f"lock file {path}: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise ConfigError(
            f"{path.parent} is in use by hetsched pid {pid};"
            " stop it, or set HETSCHED_RUNTIME_DIR to another folder"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def listen(path: Path) -> socket.socket:
    """A listening session socket at `path` (0600), which doesn't block.

    A socket that lies there is taken for left over and removed: hold `lock` first.

    Raises
    ------
    ConfigError
        The path is too long, or can't be bound.
    """
    check_path(path)
    remove_socket(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        mask = os.umask(0o177)
        try:
            sock.bind(os.fspath(path))
        finally:
            os.umask(mask)
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise ConfigError(f"session socket {path}: {error.strerror}") from None
    return sock


def remove_socket(path: Path) -> None:
    """Remove the socket at `path`. Raises ConfigError when something else lies there."""
    if path.is_socket():
        path.unlink(missing_ok=True)
    elif path.is_symlink() or path.exists():
        raise ConfigError(f"{path} is not a socket; move it away or set HETSCHED_RUNTIME_DIR")


def connect(path: Path) -> socket.socket:
    """A blocking connection to the session socket at `path`. Raises ConfigError, OSError."""
    check_path(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.connect(os.fspath(path))
    except BaseException:
        sock.close()
        raise
    return sock


def probe(path: Path) -> str | None:
    """Why nobody can be reached at `path`; None when somebody listens. ZeroMQ can't tell."""
    try:
        connect(path).close()
    except OSError as error:
        return reason(error)
    return None


def reason(error: OSError) -> str:
    """What a failed connect means."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens: left over by a daemon that died"
    if isinstance(error, PermissionError):
        return "not permitted: it belongs to another user"
    return error.strerror or str(error)


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return list(fds)
