"""Pinned host memory: mappings registered once, in slices, within a quota of our own.

Pinning half a gigabyte costs more than a job on it, so a mapping is registered when first met and
stays so. It is registered in slices, each a call of its own: one call holds locks of the driver
that stall other processes. No copy may cross the border of two slices; `pieces` cuts it there.

A registered mapping must not be unmapped: its pages would stay pinned and the address, given to
another mapping, would be copied from the old pages. Pins therefore hold the mapping's buffer, and
let go of it when nobody else refers to it.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetsched.devices.cuda.faults import Fault, classify
from hetsched.devices.cuda.runtime import Runtime
from hetsched.devices.slots import fresh_pages

SLICE = 256 << 20
"""Bytes registered in one call."""
QUOTA = 8 << 30
QUOTA_SHARE = 0.25
"""At most so many bytes, and so much of the machine's memory, are pinned by one device."""


def default_quota() -> int:
    """Bytes that one device may pin on this machine."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(QUOTA, int(QUOTA_SHARE * memory))


def pieces(start: int, nbytes: int, base: int, slice_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut [start, start + nbytes) where slices that count from `base` meet: (address, bytes)."""
    end = start + nbytes
    while start < end:
        border = base + ((start - base) // slice_bytes + 1) * slice_bytes
        stop = min(end, border)
        yield start, stop - start
        start = stop


def mapping_of(array: np.ndarray) -> mmap.mmap | None:
    """The mapping that `array` is a view of, or None if it lives elsewhere."""
    root: Any = array
    while isinstance(root, np.ndarray):
        root = root.base
    if isinstance(root, memoryview):
        root = root.obj
    return root if isinstance(root, mmap.mmap) else None


@dataclass
class Pinned:
    """One registered mapping. `view` keeps it mapped."""

    view: memoryview
    address: int
    nbytes: int
    slice_bytes: int

    def pieces(self, start: int, nbytes: int) -> Iterator[tuple[int, int]]:
        return pieces(start, nbytes, self.address, self.slice_bytes)

    def only_ours(self) -> bool:
        """Nobody else refers to the mapping: one reference is `view`'s, one this call's own."""
        return sys.getrefcount(self.view.obj) <= 2


class Pins:
    """What this process has registered; the least recently used goes first.

    Parameters
    ----------
    quota, slice_bytes : int, bytes
    """

    def __init__(self, runtime: Runtime, quota: int, slice_bytes: int = SLICE) -> None:
        self._runtime = runtime
        self._quota = quota
        self._slice = slice_bytes
        self._known: OrderedDict[int, Pinned] = OrderedDict()
        self.refused = ""
        """Why the last mapping could not be pinned."""

    @property
    def used(self) -> int:
        return sum(pinned.nbytes for pinned in self._known.values())

    def cover(self, array: np.ndarray, keep: set[int]) -> Pinned | None:
        """The registration of the mapping behind `array`, made if need be; None: it can't be.

        `keep`: addresses of mappings that must stay; the one found is added.
        """
        mapping = mapping_of(array)
        if mapping is None:
            self.refused = "the array is not in shared memory"
            return None
        view = memoryview(mapping)
        address = np.frombuffer(view, np.uint8).ctypes.data
        pinned = self._known.get(address)
        if pinned is None:
            pinned = self._register(Pinned(view, address, view.nbytes, self._slice), keep)
        if pinned is not None:
            keep.add(address)
            self._known.move_to_end(address)
        return pinned

    def sweep(self) -> None:
        """Let go of the mappings that nobody else uses any more."""
        for address in [a for a, pinned in self._known.items() if pinned.only_ours()]:
            self._forget(address)

    def clear(self) -> None:
        """Let go of all mappings."""
        for address in list(self._known):
            self._forget(address)

    def _register(self, pinned: Pinned, keep: set[int]) -> Pinned | None:
        self._make_room(pinned.nbytes, keep)
        if self.used + pinned.nbytes > self._quota:
            self.refused = f"the quota of {self._quota} pinned bytes is used up"
            return None
        done: list[int] = []
        try:
            for start, nbytes in pinned.pieces(pinned.address, pinned.nbytes):
                self._runtime.pin(start, nbytes, pinned.view.readonly)
                done.append(start)
        except Exception as error:
            if classify(error) is Fault.STICKY:
                raise
            self.refused = str(error)
            self._unpin(done)
            return None
        self._known[pinned.address] = pinned
        return pinned

    def _make_room(self, nbytes: int, keep: set[int]) -> None:
        for address in list(self._known):
            if self.used + nbytes <= self._quota:
                return
            if address not in keep:
                self._forget(address)

    def _forget(self, address: int) -> None:
        pinned = self._known.pop(address)
        self._unpin([start for start, _ in pinned.pieces(address, pinned.nbytes)])

    def _unpin(self, starts: list[int]) -> None:
        for start in starts:
            self._runtime.unpin(start)


class Staging:
    """Pinned buffers that data passes through where it can't be copied directly; kept warm.

    A buffer goes by (slot index, number of the array), and is replaced only by an idle device.
    One that can't be pinned still works: copies from it are right, but no longer overlap.
    """

    def __init__(self, pins: Pins) -> None:
        self._pins = pins
        self._buffers: dict[tuple[int, int], np.ndarray] = {}

    def buffer(
        self, key: tuple[int, int], nbytes: int, keep: set[int]
    ) -> tuple[np.ndarray, Pinned | None]:
        """At least `nbytes` of host memory (uint8), and its registration; `keep`: see `cover`."""
        memory = self._buffers.get(key)
        if memory is None or memory.nbytes < nbytes:
            memory = None
            self._buffers.pop(key, None)
            self._pins.sweep()
            memory = fresh_pages(nbytes)
            self._buffers[key] = memory
        return memory, self._pins.cover(memory, keep)
