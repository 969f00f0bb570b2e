"""Memory interleaved over NUMA nodes, page by page, so that no node's bandwidth is the limit.
Huge pages: see `huge_pages.touched_byte`.

The policy of a memfd holds for all processes that map it (`mbind(2)`: shared memory keeps it with
the file). Python and the C library lack the call, so it is made by its number.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import platform
from collections.abc import Sequence

from hetsched.transport.pages.mapping_address import mapping_address

log = logging.getLogger(__name__)

SYS_MBIND = {"x86_64": 237, "aarch64": 235}
"""From unistd.h, by machine."""
MPOL_INTERLEAVE = 3
"""From linux/mempolicy.h."""
MASK_BITS = 64
"""Bits of a word of the mask of nodes."""


class Interleaving:
    """The NUMA nodes over which new segments are interleaved; none after the first failure.

    Parameters
    ----------
    nodes : sequence of int
        Those that have memory. With fewer than two nothing is done.
    """

    def __init__(self, nodes: Sequence[int] = ()) -> None:
        self.nodes = tuple(nodes) if len(nodes) > 1 else ()

    def apply(self, fd: int, nbytes: int) -> None:
        """Interleave the pages of memfd `fd` that aren't in place yet. Never fails."""
        if not self.nodes:
            return
        try:
            _mbind(fd, nbytes, self.nodes)
        except OSError as error:
            log.warning("shared memory isn't interleaved over NUMA nodes: %s", error.strerror)
            self.nodes = ()

    def note(self) -> str:
        """Describe it in one line; empty without nodes."""
        numbers = ", ".join(map(str, self.nodes))
        return f"shared memory is interleaved over NUMA nodes {numbers}" if numbers else ""


def _mbind(fd: int, nbytes: int, nodes: Sequence[int]) -> None:
    number = SYS_MBIND.get(platform.machine())
    if number is None:
        raise OSError(0, f"unknown on {platform.machine()}")
    words = max(nodes) // MASK_BITS + 1
    mask = (ctypes.c_uint64 * words)()
    for node in nodes:
        mask[node // MASK_BITS] |= 1 << node % MASK_BITS
    libc = ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(fd, nbytes) as mapping:
        # The kernel reads one bit less than it is told.
        result = libc.syscall(
            ctypes.c_long(number),
            ctypes.c_void_p(mapping_address(mapping)),
            ctypes.c_ulong(nbytes),
            ctypes.c_int(MPOL_INTERLEAVE),
            mask,
            ctypes.c_ulong(words * MASK_BITS + 1),
            ctypes.c_uint(0),
        )
        code = ctypes.get_errno()
    if result != 0:
        raise OSError(code, os.strerror(code))
