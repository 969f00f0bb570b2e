"""What one device is to do, as data: chunks in order, grouped by what shares its memory.

Owns the plan and the check that it fits. Not how plans are found (factoring, equal, planner), nor
what they cost (timeline). Ilic & Sousa, section 2: alpha is the share, beta the sub-distributions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from hetsched.errors import DataError, UsageError
from hetsched.memory import MemoryDemand
from hetsched.units import format_bytes


class Mode(Enum):
    """How device memory is used: freed between sub-distributions, or slot by slot."""

    INSTALLMENTS = "installments"
    RING = "ring"


class Overlap(Enum):
    """Copy engines: none (no phase overlaps another), one for both directions, one for each."""

    NONE = 0
    SINGLE = 1
    FULL = 2

    @classmethod
    def of(cls, engines: int) -> Overlap:
        """The overlap that so many copy engines allow; a third one changes nothing."""
        return cls(min(engines, 2))


@dataclass(frozen=True)
class DevicePlan:
    """The ordered sub-distributions of one device.

    Attributes
    ----------
    sub_distributions : tuple of tuples of int, units
        Chunks that are in device memory together; () is a share of 0.
    mode : Mode
    slots : int
        Chunks of a ring that may be in device memory at once; 0 with installments.
    """

    sub_distributions: tuple[tuple[int, ...], ...]
    mode: Mode = Mode.INSTALLMENTS
    slots: int = 0

    def __post_init__(self) -> None:
        for index, chunks in enumerate(self.sub_distributions):
            if not chunks or min(chunks) < 1:
                raise UsageError(
                    f"sub-distribution {index}: chunks of {_brief(chunks)} units;"
                    " it needs one or more, of at least 1"
                )
        if self.mode is Mode.RING and len(self.sub_distributions) > 1:
            raise UsageError(
                f"a ring has one sub-distribution, got {len(self.sub_distributions)}:"
                " use Mode.INSTALLMENTS"
            )
        if (self.slots >= 1) != (self.mode is Mode.RING):
            raise UsageError(
                f"slots: {self.slots}; a ring needs at least 1, installments have none (0)"
            )

    @property
    def share(self) -> int:
        """Units of the whole plan."""
        return sum(self.chunks)

    @property
    def chunks(self) -> tuple[int, ...]:
        """All chunks in order, units."""
        return tuple(size for chunks in self.sub_distributions for size in chunks)


def check(plan: DevicePlan, memory: MemoryDemand) -> None:
    """Make sure that `plan` fits the device's memory at every moment.

    Raises
    ------
    DataError
        With the chunks that are in memory together, what they need and the limit.
    """
    for together in _resident(plan):
        if not memory.fits(together):
            raise DataError(
                f"chunks of {_brief(together)} units need {format_bytes(memory.need(together))} of"
                f" device memory together, the limit is {format_bytes(memory.limit or 0)}:"
                " use smaller chunks"
            )


def fits(plan: DevicePlan, memory: MemoryDemand) -> bool:
    """Whether `plan` fits the device's memory at every moment."""
    return all(memory.fits(together) for together in _resident(plan))


def _resident(plan: DevicePlan) -> Iterable[tuple[int, ...]]:
    """Every different set of chunks that is in device memory at once."""
    if plan.mode is Mode.INSTALLMENTS:
        return dict.fromkeys(plan.sub_distributions)
    chunks, slots = plan.chunks, plan.slots
    last = max(len(chunks) - slots, 0)
    return dict.fromkeys(chunks[first : first + slots] for first in range(last + 1))


def _brief(chunks: tuple[int, ...]) -> str:
    text = ", ".join(map(str, chunks[:6]))
    return text if len(chunks) <= 6 else f"{text}, ... ({len(chunks)} chunks)"
