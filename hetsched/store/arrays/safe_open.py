"""Opens paths that clients named, without side effects on what isn't a regular file.

A link such as ``/proc/self/fd/3`` or ``/proc/self/cwd`` means another file in each process: in the
daemon it would be one of the daemon's own files. openat2 with RESOLVE_NO_MAGICLINKS refuses these;
ordinary symbolic links are followed. A file is first opened with O_PATH, which reads nothing: to
open a device or a FIFO can block or act on the device.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

SYS_OPENAT2 = 437
"""The same on every architecture."""
RESOLVE_NO_MAGICLINKS = 0x02
AT_FDCWD = -100
MAX_LINKS = 40
"""Links in one path, as in the kernel."""
_UNSUPPORTED = (errno.ENOSYS, errno.EPERM, errno.E2BIG)
"""Errors of openat2 before Linux 5.6, and where a container forbids it."""

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def open_path(path: str) -> int:
    """Return an O_PATH descriptor of `path`, whatever it is. Its links may not be magic ones.

    Raises
    ------
    OSError
        ELOOP: a magic link, or too many links.
    ValueError
        `path` contains a null byte.
    """
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("embedded null byte")
    how = _OpenHow(os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_NO_MAGICLINKS)
    fd: int = _libc.syscall(
        SYS_OPENAT2, AT_FDCWD, ctypes.c_char_p(name), ctypes.byref(how), ctypes.sizeof(how)
    )
    if fd >= 0:
        return fd
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return _open_path_without_openat2(path)
    raise OSError(code, os.strerror(code), path)


def check_no_magic_links(path: str) -> None:
    """Raise OSError (ELOOP) if `path` leads through a magic link; it need not exist."""
    try:
        fd = open_path(path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise
        return
    os.close(fd)


def reopen(path_fd: int, flags: int) -> int:
    """Open the file behind an O_PATH descriptor. Raises OSError."""
    return os.open(f"/proc/self/fd/{path_fd}", flags | os.O_CLOEXEC)


def _open_path_without_openat2(path: str) -> int:
    """Open with O_PATH, after a check of the links' texts: as good as it gets without openat2."""
    if _leads_through_proc(path):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _leads_through_proc(path: str) -> bool:
    for _ in range(MAX_LINKS):
        folder, name = os.path.split(Path(path).absolute())
        if any(f"{place}/".startswith("/proc/") for place in (folder, os.path.realpath(folder))):
            return True
        try:
            path = os.path.join(folder, Path(folder, name).readlink())
        except OSError:  # not a link
            return False
    return True
