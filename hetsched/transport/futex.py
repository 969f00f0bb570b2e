"""Words of shared memory between processes: waiting for a change (futex(2)), the order of stores.

x86-64 keeps the order of stores, and of loads. Elsewhere membarrier(2) is called before the store
that others wait for: every thread of the registered processes then executes a full barrier, so
whoever sees that store also sees all earlier ones. So readers need none of their own.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform

from hetsched.errors import Unavailable

_FUTEX = {"x86_64": 202, "aarch64": 98}
_MEMBARRIER = {"x86_64": 324, "aarch64": 283}
_GLOBAL_EXPEDITED, _REGISTER_GLOBAL_EXPEDITED = 1 << 1, 1 << 2
IS_ORDERED = platform.machine() == "x86_64"
"""Whether stores become visible in their order anyway."""
_WAIT, _WAKE = 0, 1
_EVERYONE = 0x7FFFFFFF
_EXPECTED = (errno.EAGAIN, errno.ETIMEDOUT, errno.EINTR)

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_pointer = ctypes.c_void_p
_syscall.argtypes = (
    ctypes.c_long, _pointer, ctypes.c_int, ctypes.c_uint32, _pointer, _pointer, ctypes.c_uint32
)  # fmt: skip
_number = _FUTEX.get(platform.machine(), -1)


class _Timespec(ctypes.Structure):
    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


def wait(address: int, value: int, seconds: float) -> bool:
    """Sleep while the 32-bit word at `address` is `value`; return False after `seconds`.

    Also returns True for no reason, so the caller looks at the word again. Raises OSError.
    """
    whole = int(seconds)
    timeout = _Timespec(whole, int((seconds - whole) * 1e9))
    return _futex(address, _WAIT, value & 0xFFFFFFFF, ctypes.addressof(timeout)) != errno.ETIMEDOUT


def wake(address: int) -> None:
    """Wake all that wait for the word at `address`. Raises OSError."""
    _futex(address, _WAKE, _EVERYONE, None)


def _futex(address: int, operation: int, value: int, timeout: int | None) -> int:
    """Return 0 or the number of an expected error."""
    if _syscall(_number, address, operation, value, timeout, None, 0) >= 0:
        return 0
    number = ctypes.get_errno()
    if number not in _EXPECTED:
        raise OSError(number, os.strerror(number))
    return number


@functools.cache
def register() -> None:
    """Take part in the barriers of other processes; needed once in each. Raises Unavailable."""
    if not IS_ORDERED:
        _membarrier(_REGISTER_GLOBAL_EXPEDITED)


def order_stores() -> None:
    """Make all earlier stores visible before any later one. Raises Unavailable."""
    if not IS_ORDERED:
        _membarrier(_GLOBAL_EXPEDITED)


def _membarrier(command: int) -> None:
    number = _MEMBARRIER.get(platform.machine(), -1)
    if _syscall(number, command, 0, 0, None, None, 0) < 0:
        reason = os.strerror(ctypes.get_errno())
        raise Unavailable(
            f"iterative jobs on {platform.machine()} need membarrier(2) of Linux 4.16: {reason}"
        )
