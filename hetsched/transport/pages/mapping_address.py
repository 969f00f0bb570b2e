"""The address of a mapping: Python hides it, system calls on its pages need it."""

from __future__ import annotations

import ctypes
import mmap


def mapping_address(mapping: mmap.mmap) -> int:
    """Return the address of a writable mapping's first byte; it may be closed then."""
    first = ctypes.c_char.from_buffer(mapping)
    return ctypes.addressof(first)  # `first` ends here, or the mapping couldn't be closed
