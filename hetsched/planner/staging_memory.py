"""The memory limits of a plan for a device with a link: the device's, and any host buffers'.

Arrays in files pass through host buffers. Each slot has one as large as the largest chunk needs,
so a factored share of a few GiB would take several times its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace

from hetsched.memory import MemoryDemand
from hetsched.planner.records import Candidate
from hetsched.plans.slot_allocation import slotted

MAX_BUFFER_BYTES = 64 << 20
"""Bytes of all host buffers of a device: enough to keep a link busy, little for a host."""


@dataclass(frozen=True, kw_only=True)
class StagedDemand(MemoryDemand):
    """A demand whose chunks need host buffers too.

    Attributes
    ----------
    buffer : callable, units -> bytes
        Of a chunk's input and output.
    """

    buffer: Callable[[int], int]

    def fits(self, chunks: Iterable[int]) -> bool:
        """Return whether `chunks` fit. A chunk of one unit always has its buffer."""
        sizes = list(chunks)
        if not super().fits(sizes):
            return False
        return sizes in ([], [1]) or len(sizes) * self.buffer(max(sizes)) <= MAX_BUFFER_BYTES

    def in_granules(self, granule: int) -> MemoryDemand:
        scaled = super().in_granules(granule)
        assert isinstance(scaled, StagedDemand), "a changed copy of this one"
        return replace(scaled, buffer=lambda granules: self.buffer(granule * granules))


def planning_memory(candidate: Candidate) -> MemoryDemand:
    """Return the demand that limits plans for `candidate`, which has a link."""
    memory = slotted(candidate.demand)
    if not candidate.is_staged:
        return memory
    values = {field.name: getattr(memory, field.name) for field in fields(memory)}
    return StagedDemand(**values, buffer=candidate.demand.data)
