"""A memory barrier between processes that share memory, for processors that reorder stores.

x86-64 keeps the order of stores, and of loads. Elsewhere membarrier(2) is called before the store
that others wait for: every thread of the registered processes then executes a full barrier, so
whoever sees that store also sees all earlier ones. So readers need none of their own.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform

from hetsched.errors import Unavailable

_NUMBERS = {"x86_64": 324, "aarch64": 283}
_GLOBAL_EXPEDITED, _REGISTER_GLOBAL_EXPEDITED = 1 << 1, 1 << 2

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_uint, ctypes.c_int]
IS_ORDERED = platform.machine() == "x86_64"
"""Whether stores become visible in their order anyway."""


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
    number = _NUMBERS.get(platform.machine(), -1)
    if _syscall(number, command, 0, 0) < 0:
        reason = os.strerror(ctypes.get_errno())
        raise Unavailable(
            f"iterative jobs on {platform.machine()} need membarrier(2) of Linux 4.16: {reason}"
        )
