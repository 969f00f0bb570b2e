"""What a plan for a device with a link must fit: its memory, and host buffers if there are any.

Arrays that live in files pass through host buffers. Every slot has its own, as large as the
largest chunk's, so that a factored share of a few GiB would take several times that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields

from hetsched.memory import MemoryDemand
from hetsched.planner.records import Candidate
from hetsched.plans.slot_allocation import slotted

STAGED = 64 << 20
"""Bytes of all host buffers of a device: enough for a link to be busy, little for a host."""


@dataclass(frozen=True, kw_only=True)
class Staged(MemoryDemand):
    """A demand whose chunks need room in host buffers too.

    Attributes
    ----------
    buffer : callable, units -> bytes
        Of a chunk's input and output.
    """

    buffer: Callable[[int], int]

    def fits(self, chunks: Iterable[int]) -> bool:
        """One chunk of one unit always has its buffer, or larger units could not be computed."""
        sizes = list(chunks)
        if not super().fits(sizes):
            return False
        return sizes in ([], [1]) or len(sizes) * self.buffer(max(sizes)) <= STAGED


def planning_memory(candidate: Candidate) -> MemoryDemand:
    """What plans for `candidate`, which has a link, are made with."""
    memory = slotted(candidate.demand)
    if not candidate.staged:
        return memory
    same = {one.name: getattr(memory, one.name) for one in fields(memory)}
    return Staged(**same, buffer=candidate.demand.data)
