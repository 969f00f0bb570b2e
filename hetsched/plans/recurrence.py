"""The recurrence behind every predicted time: start and end of each phase of each chunk.

Ilic & Sousa, section 3; slot reuse is ours: a chunk is copied in after the copy out of the chunk
`slots` before it. The same code runs on floats (one plan) and on arrays (many plans at once).

A copy out is first scheduled as if no further copy in followed; each copy in then delays the
copies out that compete with it. Links differ only in this rule. A device without overlap is a ring
of one slot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from hetsched.plans.device_plan import Overlap
from hetsched.plans.phase_costs import Floats

Time = TypeVar("Time", float, Floats)
"""Seconds: of one plan, or of each of many."""
Spans = tuple[Time, Time, Time, Time]
"""Start and end of a chunk's copy in, start and end of its computation."""

MAX_SLOTS_IN_USE = {Overlap.NONE: 1, Overlap.SINGLE: 2}
"""Slots beyond which more make no difference: without overlap there is one chunk at a time; one
copy engine copies in the order I1 I2 O1 I3 O2 ... regardless of slots."""


class Arithmetic(NamedTuple):
    """The operations on `Time` that differ between floats and arrays."""

    maximum: Callable[[Any, Any], Any]
    minimum: Callable[[Any, Any], Any]
    is_any: Callable[[Any], bool]


FLOATS = Arithmetic(max, min, bool)
ARRAYS = Arithmetic(np.maximum, np.minimum, lambda values: bool(values.any()))


class Recurrence(Generic[Time]):
    """The phases of one sub-distribution, to which chunks are appended in order.

    Parameters
    ----------
    start : Time, seconds
        Earliest start of the first copy in.
    arithmetic : Arithmetic
    copy_in : CopyIn
    freed : callable, (copy-out ends, chunk) -> Time
        When the slot of a chunk is free; None: immediately.

    Attributes
    ----------
    out_begins, out_ends : lists of Time, seconds
        Of the copies out, as if no further copy in followed.
    first_pending : int
        Copies out before this one are final.
    """

    def __init__(
        self,
        start: Time,
        arithmetic: Arithmetic,
        copy_in: CopyIn,
        freed: Callable[[list[Time], int], Time | None],
    ) -> None:
        self.arithmetic = arithmetic
        self.out_begins: list[Time] = []
        self.out_ends: list[Time] = []
        self.first_pending = 0
        self._start: Time = start
        self._copy_in = copy_in
        self._freed: Callable[[list[Time], int], Time | None] = freed
        self._arrived: Time = start
        self._computed: Time = start
        self._last_copy_out: Time = start

    def append(self, copy_in: Time, compute: Time, copy_out: Time) -> Spans[Time]:
        """Add a chunk, given the seconds of its phases without interference.

        The returned spans are final. Copies out are final once the last chunk is appended.
        """
        maximum = self.arithmetic.maximum
        begin_in = self._arrived
        free = self._freed(self.out_ends, len(self.out_ends))
        if free is not None:
            begin_in = maximum(begin_in, free)
        self._arrived = arrived = self._copy_in(self, begin_in, copy_in)
        begin = maximum(arrived, self._computed)
        self._computed = computed = begin + compute
        begin_out = maximum(computed, self.makespan)
        self.out_begins.append(begin_out)
        self.out_ends.append(begin_out + copy_out)
        self._last_copy_out = copy_out
        return begin_in, arrived, begin, computed

    def delay_last_out(self, until: Time) -> None:
        """Delay the last copy out until at least `until`."""
        if self.out_ends:
            begin = self.arithmetic.maximum(self.out_begins[-1], until)
            self.out_begins[-1] = begin
            self.out_ends[-1] = begin + self._last_copy_out

    @property
    def makespan(self) -> Time:
        """When the last copy out ends."""
        return self.out_ends[-1] if self.out_ends else self._start

    def branch(self) -> Recurrence[Time]:
        """Return a copy to which other chunks can be appended."""
        copy: Recurrence[Time] = object.__new__(Recurrence)
        copy.__dict__.update(self.__dict__)
        copy.out_begins, copy.out_ends = self.out_begins.copy(), self.out_ends.copy()
        return copy


CopyIn = Callable[[Recurrence[Any], Any, Any], Any]
"""(recurrence, begin, seconds without interference) -> end; delays competing copies out."""


def copy_in_rule(overlap: Overlap, slots: int, duplex: tuple[float, float]) -> CopyIn:
    """Return the rule by which copies in and out share the link; with one slot they never do.

    `slots`: at most `MAX_SLOTS_IN_USE`.
    """
    if slots == 1:
        return _copy_alone
    if overlap is Overlap.SINGLE:
        return _copy_before_last_out
    return _copy_alone if min(duplex) == 1 else _SlowedCopy(*duplex)


def same_slots(slots: int) -> Callable[[list[Time], int], Time | None]:
    """Return when a chunk's slot is freed: by the chunk `slots` before it."""
    return lambda ends, chunk: ends[chunk - slots] if chunk >= slots else None


def _copy_alone(recurrence: Recurrence[Time], begin: Time, seconds: Time) -> Time:
    return begin + seconds


def _copy_before_last_out(recurrence: Recurrence[Time], begin: Time, seconds: Time) -> Time:
    """Schedule a copy in with one copy engine: I_k precedes O_{k-1}."""
    end = begin + seconds
    recurrence.delay_last_out(end)
    return end


class _SlowedCopy:
    """Two copy engines that slow each other down, in a fluid model.

    While copies in both directions run, each keeps its duplex share of its one-way pace, fixed
    cost included; alone it runs at full pace.
    """

    def __init__(self, pace_in: float, pace_out: float) -> None:
        self._pace_in = pace_in
        self._pace_out = pace_out

    def __call__(self, recurrence: Recurrence[Time], begin: Time, seconds: Time) -> Time:
        maximum, minimum, is_any = recurrence.arithmetic
        begins, ends = recurrence.out_begins, recurrence.out_ends
        first = recurrence.first_pending
        while first < len(ends) and not is_any(ends[first] > begin):
            first += 1
        recurrence.first_pending = first
        now, rest, end_before = begin, seconds, begin
        for out in range(first, len(ends)):
            due = maximum(begin, begins[out])
            resumed = maximum(due, end_before)
            rest_out = maximum(ends[out] - due, 0.0)
            alone = minimum(rest, resumed - now)
            together = minimum((rest - alone) / self._pace_in, rest_out / self._pace_out)
            rest = rest - alone - together * self._pace_in
            now = now + alone + together
            if out > first:
                begins[out] = maximum(begins[out], end_before)
            end_before = ends[out] + resumed - due + together * (1 - self._pace_out)
            ends[out] = end_before
        return now + rest
