"""Messages of any size between the engine and a device process.

A message larger than a socket's buffer can never be sent. So a large one is in a memfd that is
passed with a short message: MARKER, which no msgpack message begins with, and the memfd.
"""

from __future__ import annotations

import fcntl
import os

from hetsched.errors import ProtocolError
from hetsched.transport.sockets import close_all

MAX_INLINE = 64 << 10
"""Bytes of a message without a memfd: fits into any socket buffer, at least 208 KiB by default."""
MAX_LARGE = 1 << 30
"""Bytes of a message in a memfd. Only a bug exceeds it: 64 commands of 1 MiB have 64 MiB."""
MARKER = b"\xc1"
"""Never used in msgpack."""
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def in_memfd(payload: bytes) -> int:
    """Return the fd of a sealed memfd with `payload`. Raises OSError without descriptors."""
    fd = os.memfd_create("hetsched message", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(payload)
        while view:
            view = view[os.write(fd, view) :]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def unpack(payload: bytes, fds: list[int]) -> bytes:
    """Return the message that was received as `payload` with `fds`, which stay the caller's.

    A memfd is closed and removed from `fds`.

    Raises
    ------
    ProtocolError
        A marker without its memfd, or a memfd that is too large.
    """
    if payload != MARKER:
        return payload
    if len(fds) != 1:
        close_all(fds)
        raise ProtocolError(f"a large message with {len(fds)} descriptors, not 1")
    fd = fds.pop()
    try:
        return _read(fd)
    finally:
        os.close(fd)


def _read(fd: int) -> bytes:
    nbytes = os.fstat(fd).st_size
    if nbytes > MAX_LARGE:
        raise ProtocolError(f"a message of {nbytes} bytes; the limit is {MAX_LARGE}")
    payload = bytearray(nbytes)
    view = memoryview(payload)
    offset = 0
    while offset < nbytes:
        count = os.preadv(fd, [view[offset:]], offset)
        if count == 0:
            raise ProtocolError(f"a large message ends after {offset} of {nbytes} bytes")
        offset += count
    return bytes(payload)
