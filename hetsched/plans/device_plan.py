"""A device's plan as data: chunks in order, grouped by joint residence in device memory.

Owns the plan and the check that it fits; not the search (`best_plan`) or the predicted time
(`timeline`). Ilic & Sousa, section 2: alpha is the share, beta the sub-distributions.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.models.validation import require_count
from hetsched.units import format_bytes, quoted

MAX_LISTED_CHUNKS = 6


class Mode(Enum):
    """The use of device memory: freed between sub-distributions, or slot by slot."""

    INSTALLMENTS = "installments"
    RING = "ring"


class Overlap(Enum):
    """Copy engines: none (no phases overlap), one for both directions, one for each."""

    NONE = 0
    SINGLE = 1
    FULL = 2

    @classmethod
    def of(cls, engines: int) -> Overlap:
        """Return the overlap with so many copy engines; more than two make no difference."""
        if not (_is_integer(engines) and engines >= 0):
            raise UsageError(f"copy engines: {engines!r}; it must be an integer, 0 or more")
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
        A chunk is not an integer or below 1; a sub-distribution is empty; mode and slots
        contradict each other.
    """

    sub_distributions: tuple[tuple[int, ...], ...]
    mode: Mode = Mode.INSTALLMENTS
    slots: int = 0

    def __post_init__(self) -> None:
        given: Any = self.sub_distributions
        if not isinstance(given, tuple | list):
            raise UsageError(f"sub-distributions: {quoted(given)}; it must be a tuple of tuples")
        parts = tuple(_integers(i, chunks) for i, chunks in enumerate(given))
        object.__setattr__(self, "sub_distributions", parts)
        require_type("mode", self.mode, Mode)
        if not _is_integer(self.slots):
            raise UsageError(f"slots: {self.slots!r}; it must be an integer")
        for index, chunks in enumerate(self.sub_distributions):
            if not chunks or min(chunks) < 1:
                raise UsageError(
                    f"sub-distribution {index}: chunks of {_listed(chunks)} units; it needs one"
                    " or more, each of at least 1 unit"
                )
        if self.mode is Mode.RING and len(self.sub_distributions) > 1:
            raise UsageError(
                f"a ring has one sub-distribution, not {len(self.sub_distributions)}:"
                " use Mode.INSTALLMENTS"
            )
        if (self.slots >= 1) != (self.mode is Mode.RING):
            raise UsageError(f"slots: {self.slots}; a ring needs at least 1, installments need 0")

    @cached_property
    def share(self) -> int:
        return sum(self.chunks)

    @cached_property
    def chunks(self) -> tuple[int, ...]:
        if len(self.sub_distributions) == 1:
            return self.sub_distributions[0]
        return tuple(itertools.chain.from_iterable(self.sub_distributions))


def check(plan: DevicePlan, memory: MemoryDemand) -> None:
    """Check that `plan` fits in the device's memory at all times.

    Raises
    ------
    DataError
        It doesn't; the message gives the resident chunks, their bytes and the limit.
    UsageError
        `plan` or `memory` has the wrong type.
    """
    require_type("plan", plan, DevicePlan)
    require_type("memory", memory, MemoryDemand)
    for resident in _resident_sets(plan):
        if not memory.fits(resident):
            need = format_bytes(memory.need(resident))
            raise DataError(
                f"chunks of {_listed(resident)} units need {need} of"
                f" device memory together, the limit is {format_bytes(memory.limit or 0)}:"
                " use smaller chunks"
            )


def fits(plan: DevicePlan, memory: MemoryDemand) -> bool:
    return memory.limit is None or all(map(memory.fits, _resident_sets(plan)))


def evenly(share: int, chunks: int) -> tuple[int, ...]:
    """Cut `share` units into chunks that differ by one at most, the larger ones first."""
    size, larger = divmod(share, chunks)
    return (size + 1,) * larger + (size,) * (chunks - larger)


def slot_sizes(chunks: Sequence[int], slots: int) -> tuple[int, ...]:
    """Return the units of the largest chunk of each of `slots`, which chunks use in turn."""
    return tuple(max(chunks[first::slots]) for first in range(min(slots, len(chunks))))


def _resident_sets(plan: DevicePlan) -> Iterable[tuple[int, ...]]:
    """Yield each distinct set of chunks that are in device memory together."""
    if plan.mode is Mode.INSTALLMENTS:
        return dict.fromkeys(plan.sub_distributions)
    chunks, slots = plan.chunks, plan.slots
    last = max(len(chunks) - slots, 0)
    return dict.fromkeys([chunks[first : first + slots] for first in range(last + 1)])


def require_type(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise UsageError(f"{name}: {quoted(value)}; it must be of type {kind.__name__}")


def validate_request(
    share: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap
) -> int:
    """Return the share as an int. Raises UsageError unless all arguments are of their types."""
    require_type("model", model, DeviceModel)
    require_type("overlap", overlap, Overlap)
    require_type("memory", memory, MemoryDemand)
    return require_count("share", share)


def _integers(index: int, chunks: Any) -> tuple[int, ...]:
    if type(chunks) is tuple and set(map(type, chunks)) <= {int}:
        return chunks
    if not (isinstance(chunks, tuple | list) and all(map(_is_integer, chunks))):
        raise UsageError(
            f"sub-distribution {index}: {quoted(chunks)}; it must be a tuple of integers (units)"
        )
    return tuple(map(operator.index, chunks))


def _is_integer(value: Any) -> bool:
    """Return whether `value` is an int or a NumPy integer, not a bool."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def _listed(chunks: tuple[int, ...]) -> str:
    text = ", ".join(map(str, chunks[:MAX_LISTED_CHUNKS]))
    return text if len(chunks) <= MAX_LISTED_CHUNKS else f"{text}, ... ({len(chunks)} chunks)"
