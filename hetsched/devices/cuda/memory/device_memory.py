"""Memory that a CUDA device keeps between jobs: a block, a work area, kernels with plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hetsched.devices.cuda.runtime import Block, Runtime
from hetsched.plans.slots import aligned
from hetsched.workload import Kernel

CUDA_ALIGNMENT = 256
"""Alignment of cudaMalloc, bytes; the widest loads of cuFFT and cuBLAS need less."""


class SharedWorkArea:
    """`KernelContext.allocate`: one area for all kernels, which run one after the other.

    Plans that a workload keeps between jobs refer to the area that they were made with, so it is a
    separate block, replaced only when a larger one is needed.
    """

    def __init__(self, runtime: Runtime, nbytes: int) -> None:
        self._runtime = runtime
        self._block = runtime.allocate(nbytes) if nbytes else None

    @property
    def nbytes(self) -> int:
        return self._block.nbytes if self._block else 0

    def __call__(self, nbytes: int) -> Any:
        """Return the area, or separate memory if a library needs more than was declared."""
        block = self._block
        if block is None or nbytes > block.nbytes:
            block = self._runtime.allocate(nbytes)
        return block.pointer(0)


class DeviceMemory:
    """The device's block, its work area, and the kernels made with that area."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.kernels: dict[tuple[Any, ...], tuple[Kernel, set[int]]] = {}
        """Kernels, and the sizes of chunks that they have computed."""
        self._block: Block | None = None
        self._work_area: SharedWorkArea | None = None

    def block(self, nbytes: int) -> Block:
        """Return a block of at least `nbytes`: the current one, or a new one that replaces it."""
        if self._block is None or self._block.nbytes < nbytes:
            self._block = None  # freed first: both together may not fit
            self._block = self.runtime.allocate(nbytes)
        return self._block

    def work_area(self, nbytes: int) -> SharedWorkArea:
        """Return an area of at least `nbytes`: the current one, or a new one without kernels.

        If the job needs none, the current area is freed, as it isn't in the job's budget.
        """
        area = self._work_area
        is_unneeded = nbytes == 0 and area is not None and area.nbytes > 0
        if area is None or area.nbytes < nbytes or is_unneeded:
            self.kernels.clear()
            self._work_area = area = None
            self._work_area = area = SharedWorkArea(self.runtime, nbytes)
        return area

    def free(self) -> None:
        """Free everything, also what libraries keep for temporaries."""
        self.kernels.clear()
        self._block = None
        self._work_area = None
        self.runtime.trim()

    @property
    def kept(self) -> int:
        """Bytes of the block and the work area."""
        area = self._work_area.nbytes if self._work_area else 0
        return area + (self._block.nbytes if self._block else 0)


@dataclass(frozen=True)
class BlockLayout:
    """Offsets within the block: resident arrays, then the slots.

    Attributes
    ----------
    residents : mapping
        Array name -> byte offset.
    slots : int
        Byte offset of the slots.
    slots_bytes : int
        Reserved for slots.
    nbytes : int
        Size of the whole block.
    """

    residents: Mapping[str, int]
    slots: int
    slots_bytes: int
    nbytes: int


def block_layout(residents: Mapping[str, int], slots_bytes: int) -> BlockLayout:
    """Lay out a job's `residents` (name -> bytes) and slots. Pure."""
    offsets = {}
    end = 0
    for name, nbytes in residents.items():
        offsets[name] = end
        end += aligned(nbytes)
    return BlockLayout(offsets, end, slots_bytes, end + aligned(slots_bytes))
