"""Pinned host memory: mappings registered once, in slices, within a quota.

Pinning half a gigabyte costs more than a job on it, so a mapping is registered at its first use
and stays registered; of one that is larger than the quota, the first slices. It is registered
slice by slice, because a call holds driver locks that stall other processes. No copy may cross the
end of a slice; `Pins.split` divides it.

A registered mapping must not be unmapped: its pages would stay pinned, and copies from another
mapping at the same address would read the old pages. Pins therefore hold the mapping's buffer, and
release it when nothing else refers to it.
"""

from __future__ import annotations

import mmap
import sys
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from hetsched.devices.accelerator.runtime import Copy, Fault, Runtime
from hetsched.devices.base import DeviceFault
from hetsched.devices.slot_layout import HostBuffers, fresh_pages
from hetsched.machine_limits import machine_memory
from hetsched.workload import ArraySpec

SLICE_BYTES = 256 << 20
"""Bytes registered per call."""
MAX_PINNED_BYTES = 8 << 30
MAX_PINNED_FRACTION = 0.25
"""Limits on pinned memory per device: bytes, and fraction of the machine's memory."""


def default_quota() -> int:
    return min(MAX_PINNED_BYTES, int(MAX_PINNED_FRACTION * machine_memory()))


def mapping_of(array: np.ndarray) -> mmap.mmap | None:
    root: Any = array
    while isinstance(root, np.ndarray):
        root = root.base
    if isinstance(root, memoryview):
        root = root.obj
    return root if isinstance(root, mmap.mmap) else None


@dataclass
class Pinned:
    """One mapping, registered from its start to `registered` bytes. `view` keeps it mapped."""

    view: memoryview
    address: int
    slice_bytes: int
    registered: int = 0

    @property
    def nbytes(self) -> int:
        return self.view.nbytes

    @property
    def is_whole(self) -> bool:
        return self.registered == self.nbytes

    def covers(self, host: np.ndarray) -> bool:
        """Whether copies from or to `host`, a part of it, need no staging buffer."""
        return host.ctypes.data + host.nbytes <= self.address + self.registered

    def slices(self, start: int, stop: int) -> list[np.ndarray]:
        """Return its bytes from `start` to `stop`, divided where registrations end."""
        values, size = np.frombuffer(self.view, np.uint8), self.slice_bytes
        ends = [*range((start // size + 1) * size, stop, size), stop]
        return [values[first:end] for first, end in pairwise([start, *ends])]

    def only_ours(self) -> bool:
        """Whether the mapping has no other references than `view`'s and this call's."""
        return sys.getrefcount(self.view.obj) <= 2


class Pins:
    """The registered mappings of this process; the least recently used is unpinned first."""

    def __init__(self, runtime: Runtime, quota: int, slice_bytes: int = SLICE_BYTES) -> None:
        self._runtime = runtime
        self.quota = quota
        self._slice_bytes = slice_bytes
        self._pinned: OrderedDict[int, Pinned] = OrderedDict()
        self._in_use: set[int] = set()
        """Addresses of mappings that the present job uses."""
        self.refused = ""
        """The reason why the last mapping could not be pinned, or not all of it."""

    @property
    def used(self) -> int:
        return sum(pinned.registered for pinned in self._pinned.values())

    def begin_job(self) -> None:
        """Let go of what earlier jobs have covered; unpin what nothing else uses."""
        self._in_use.clear()
        self.sweep()

    def cover(self, array: np.ndarray, spare: int = 0) -> Pinned | None:
        """Register the mapping behind `array`, or as many slices as fit; None if none do.

        It stays pinned until the next job begins. `spare`: bytes of the quota for other memory.
        """
        mapping = mapping_of(array)
        if mapping is None:
            self.refused = "the array is not in shared memory"
            return None
        view = memoryview(mapping)
        address = np.frombuffer(view, np.uint8).ctypes.data
        pinned = self._pinned.get(address) or Pinned(view, address, self._slice_bytes)
        self._in_use.add(address)
        if not pinned.is_whole:
            self._register(pinned, self.quota - spare)
        if not pinned.registered:
            return None
        self._pinned[address] = pinned
        self._pinned.move_to_end(address)
        return pinned

    def split(self, copies: Iterable[Copy]) -> Iterator[Copy]:
        """Divide copies from and to any host memory where registrations end."""
        for copy in copies:
            first, offset, parts = copy.host.ctypes.data, copy.offset, [copy.host]
            for pinned in self._pinned.values():
                start = first - pinned.address
                if 0 <= start < pinned.nbytes:
                    parts = pinned.slices(start, start + copy.host.nbytes)
            for host in parts:
                yield Copy(copy.block, offset, host)
                offset += host.nbytes

    def sweep(self) -> None:
        for address in [a for a, pinned in self._pinned.items() if pinned.only_ours()]:
            self._drop(address)

    def clear(self) -> None:
        for address in list(self._pinned):
            self._drop(address)

    def _register(self, pinned: Pinned, limit: int) -> None:
        """Register further slices while all pinned memory takes at most `limit` bytes."""
        for address in [address for address in self._pinned if address not in self._in_use]:
            if self.used + pinned.nbytes - pinned.registered > limit:
                self._drop(address)
        used = self.used
        for host in pinned.slices(pinned.registered, pinned.nbytes):
            if used + host.nbytes > limit:
                self.refused = f"the quota of {self.quota} pinned bytes is used up"
                return
            try:
                self._runtime.pin(host)
            except Exception as error:
                if self._runtime.classify(error) is Fault.STICKY:
                    raise
                self.refused = str(error)
                return
            used += host.nbytes
            pinned.registered += host.nbytes

    def _drop(self, address: int) -> None:
        """Unpin a mapping. Raises DeviceFault: until the process ends, copies may go on."""
        pinned = self._pinned[address]
        for host in pinned.slices(0, pinned.registered):
            try:
                self._runtime.unpin(host)
            except Exception as error:
                raise DeviceFault(f"host memory can't be unpinned: {error}") from error
        del self._pinned[address]


class Staging(HostBuffers):
    """Pinned buffers for data that can't be copied directly, one per slot index and array.

    Each is replaced, or dropped, only while the device is idle; `Pins.sweep` unpins it. Copies
    from a buffer that can't be pinned are correct but don't overlap.
    """

    def __init__(self, pins: Pins) -> None:
        super().__init__()
        self._pins = pins

    def allocate(self, nbytes: int) -> np.ndarray:
        self._pins.sweep()
        memory = fresh_pages(nbytes)
        mapping = mapping_of(memory)
        assert mapping is not None
        # After a fork, say by a plug-in that starts a program, the next write would move these
        # private pages, while the GPU copies from and to the old ones.
        mapping.madvise(mmap.MADV_DONTFORK)
        return memory

    def array(self, key: Hashable, spec: ArraySpec, units: int) -> np.ndarray:
        memory = super().array(key, spec, units)
        self._pins.cover(memory)
        return memory
