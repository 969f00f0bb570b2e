"""What one device is to do, as data: chunks in order, grouped by what shares its memory.

Owns the plan and the check that it fits. Not how plans are found (factoring, equal, planner), nor
what they cost (timeline). Ilic & Sousa, section 2: alpha is the share, beta the sub-distributions.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched.memory import MemoryDemand
from hetsched.units import format_bytes

_INT = frozenset((int,))
MOST_SHOWN = 60
"""Characters of a wrong value that a message quotes."""


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
        if not (_is_whole(engines) and engines >= 0):
            raise UsageError(f"copy engines: {engines!r}, it must be a whole number, 0 or more")
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

    Raises
    ------
    UsageError
        A chunk is no whole number or less than 1, a sub-distribution empty; mode and slots don't
        go together.
    """

    sub_distributions: tuple[tuple[int, ...], ...]
    mode: Mode = Mode.INSTALLMENTS
    slots: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sub_distributions", _whole(self.sub_distributions))
        require_type("mode", self.mode, Mode)
        if not _is_whole(self.slots):
            raise UsageError(f"slots: {self.slots!r} must be a whole number")
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
    UsageError
        `plan` or `memory` isn't one.
    """
    require_type("plan", plan, DevicePlan)
    require_type("memory", memory, MemoryDemand)
    for together in _resident(plan):
        if not memory.fits(together):
            raise DataError(
                f"chunks of {_brief(together)} units need {format_bytes(memory.need(together))} of"
                f" device memory together, the limit is {format_bytes(memory.limit or 0)}:"
                " use smaller chunks"
            )


def fits(plan: DevicePlan, memory: MemoryDemand) -> bool:
    """Whether `check` has nothing to say."""
    return memory.limit is None or all(map(memory.fits, _resident(plan)))


def slot_sizes(chunks: Sequence[int], slots: int) -> tuple[int, ...]:
    """What slots of sizes of their own must hold, units: the largest chunk that comes into each.

    Chunks come into `slots` slots (at least one) in turn; there may be fewer chunks.
    """
    return tuple(max(chunks[first::slots]) for first in range(min(slots, len(chunks))))


def _resident(plan: DevicePlan) -> Iterable[tuple[int, ...]]:
    """Every different set of chunks that is in device memory at once."""
    if plan.mode is Mode.INSTALLMENTS:
        return dict.fromkeys(plan.sub_distributions)
    chunks, slots = plan.chunks, plan.slots
    last = max(len(chunks) - slots, 0)
    return dict.fromkeys(chunks[first : first + slots] for first in range(last + 1))


def require_type(name: str, value: Any, kind: type) -> None:
    """Raises UsageError unless `value` is a `kind`."""
    if not isinstance(value, kind):
        raise UsageError(f"{name}: {_shown(value)}, it must be of type {kind.__name__}")


def _whole(sub_distributions: Any) -> tuple[tuple[int, ...], ...]:
    """The same as tuples of int; quick where they are already."""
    if not isinstance(sub_distributions, tuple | list):
        raise UsageError(
            f"sub-distributions: {_shown(sub_distributions)}, it must be a tuple of tuples"
        )
    return tuple(_chunks(index, chunks) for index, chunks in enumerate(sub_distributions))


def _chunks(index: int, chunks: Any) -> tuple[int, ...]:
    if type(chunks) is tuple and _INT.issuperset(map(type, chunks)):
        return chunks
    if not (isinstance(chunks, tuple | list) and all(map(_is_whole, chunks))):
        raise UsageError(
            f"sub-distribution {index}: {_shown(chunks)}, it must be a tuple of whole units"
        )
    return tuple(map(operator.index, chunks))


def _is_whole(value: Any) -> bool:
    """Whether it is an int, or NumPy's; truth values aren't."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _brief(chunks: tuple[int, ...]) -> str:
    text = ", ".join(map(str, chunks[:6]))
    return text if len(chunks) <= 6 else f"{text}, ... ({len(chunks)} chunks)"
