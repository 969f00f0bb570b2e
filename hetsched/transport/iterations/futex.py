"""Waiting for a word of shared memory to change (futex(2)), between threads and processes."""

from __future__ import annotations

import ctypes
import errno
import os
import platform

_NUMBERS = {"x86_64": 202, "aarch64": 98}
_WAIT, _WAKE = 0, 1
_EVERYONE = 0x7FFFFFFF
_EXPECTED = (errno.EAGAIN, errno.ETIMEDOUT, errno.EINTR)

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = [
    ctypes.c_long,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_uint32,
]
_number = _NUMBERS.get(platform.machine(), -1)


class _Timespec(ctypes.Structure):
    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


def wait(address: int, value: int, seconds: float) -> bool:
    """Sleep while the 32-bit word at `address` is `value`; return False after `seconds`.

    Also returns True for no reason, so the caller looks at the word again. Raises OSError.
    """
    whole = int(seconds)
    timeout = _Timespec(whole, int((seconds - whole) * 1e9))
    result = _syscall(
        _number, address, _WAIT, value & 0xFFFFFFFF, ctypes.addressof(timeout), None, 0
    )
    if result < 0:
        number = ctypes.get_errno()
        _check(number)
        return number != errno.ETIMEDOUT
    return True


def wake(address: int) -> None:
    """Wake all that wait for the word at `address`. Raises OSError."""
    if _syscall(_number, address, _WAKE, _EVERYONE, None, None, 0) < 0:
        _check(ctypes.get_errno())


def _check(number: int) -> None:
    if number not in _EXPECTED:
        raise OSError(number, os.strerror(number))
