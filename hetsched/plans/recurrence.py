"""One recurrence behind every predicted time: start and end of each phase of each chunk.

Ilic & Sousa, section 3; slot reuse is ours: a chunk is copied in after the copy out of the chunk
`slots` before it. A copy out is first scheduled as if no further copy in followed; each copy in
then delays the copies out that compete with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hetsched.device import ChunkTimeline, Timeline
from hetsched.models import DeviceModel
from hetsched.plans.costs import Floats, PhaseCosts, phase_seconds
from hetsched.plans.device_plan import DevicePlan, Mode, Overlap, require_type

Time = TypeVar("Time", float, Floats)
"""Seconds: of one plan, or of each of many."""
Sizes = NDArray[np.int64]
Interval = tuple[float, float]
Spans = tuple[Interval, Interval, Interval]
"""Start and end of a chunk's copy in, computation and copy out."""

SLOTS_IN_USE = {Overlap.NONE: 1, Overlap.SINGLE: 2}
"""More slots make no difference: without overlap there is one chunk at a time; one copy engine
copies in the order I1 I2 O1 I3 O2 ... regardless of slots."""


class Recurrence(Generic[Time]):
    """The phases of one sub-distribution from `start` on, to which chunks are appended in order.

    `slots`: chunks in device memory at once, of one plan or of each of many. `duplex`: of one
    plan; many have stretched copies (`costs_of`). `makespan`: when the last copy out ends.
    """

    def __init__(
        self,
        start: Time,
        overlap: Overlap,
        slots: int | Sizes,
        duplex: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        self.out_begins: list[Any] = []
        self.out_ends: list[Any] = []
        self.makespan: Any = start
        self._arrived: Any = start
        self._computed: Any = start
        self._last_copy_out: Any = start
        self._final = 0  # copies out before this one no longer change
        self._duplex = duplex
        most = SLOTS_IN_USE.get(overlap, sys.maxsize)
        self._maximum: Callable[[Any, Any], Any] = max
        self._slots: list[tuple[int, Any]]  # distinct counts, and the plans that have them
        if isinstance(slots, np.ndarray):
            self._maximum = np.maximum
            slots = np.minimum(slots, most)
            self._slots = [(count, slots == count) for count in sorted(set(slots.tolist()))]
        else:
            slots = min(slots, most)
            self._slots = [(slots, True)]
        # With one slot, copies in both directions never meet.
        self._meets: Any = slots > 1
        self._is_slowed = overlap is Overlap.FULL and min(duplex) < 1 and bool(self._meets)
        self._delays_out = overlap is Overlap.SINGLE and bool(np.any(self._meets))

    def extend(self, chunks: Iterable[tuple[Time, Time, Time]]) -> list[tuple[Interval, Interval]]:
        """Add chunks by the seconds of their phases; return spans of copies in and computations.

        These are final, copies out once the last chunk is added.
        """
        maximum, begins, ends = self._maximum, self.out_begins, self.out_ends
        spans = []
        for copy_in, compute, copy_out in chunks:
            begin_in, last_end = self._arrived, self.makespan
            for count, rows in self._slots:
                if count <= len(ends):  # a slot that was used before
                    begin_in = maximum(begin_in, ends[-count] * rows)
            arrived = self._slowed(begin_in, copy_in) if self._is_slowed else begin_in + copy_in
            if ends and self._is_slowed:
                last_end = ends[-1]
            elif ends and self._delays_out:  # I_k precedes O_{k-1}
                begins[-1] = maximum(begins[-1], arrived * self._meets)
                last_end = ends[-1] = begins[-1] + self._last_copy_out
            begin = maximum(arrived, self._computed)
            computed = begin + compute
            begins.append(maximum(computed, last_end))
            self.makespan = begins[-1] + copy_out
            ends.append(self.makespan)
            self._arrived, self._computed, self._last_copy_out = arrived, computed, copy_out
            spans.append(((begin_in, arrived), (begin, computed)))
        return spans

    def branch(self) -> Recurrence[Time]:
        copy: Recurrence[Time] = object.__new__(Recurrence)
        copy.__dict__.update(self.__dict__)
        copy.out_begins, copy.out_ends = self.out_begins.copy(), self.out_ends.copy()
        return copy

    def _slowed(self, begin: Any, seconds: Any) -> Any:
        """Return the end of a copy in, and delay the copies out that it meets, in a fluid model.

        While copies in both directions run, each keeps its duplex share of its one-way pace, fixed
        cost included; alone it runs at full pace.
        """
        pace_in, pace_out = self._duplex
        begins, ends = self.out_begins, self.out_ends
        while self._final < len(ends) and ends[self._final] <= begin:
            self._final += 1
        now, rest, end_before = begin, seconds, begin
        for out in range(self._final, len(ends)):
            due = max(begin, begins[out])
            resumed = max(due, end_before)
            alone = min(rest, resumed - now)
            together = min((rest - alone) / pace_in, max(ends[out] - due, 0.0) / pace_out)
            rest -= alone + together * pace_in
            now += alone + together
            if out > self._final:
                begins[out] = max(begins[out], end_before)
            ends[out] += resumed - due + together * (1 - pace_out)
            end_before = ends[out]
        return now + rest


def timeline(plan: DevicePlan, model: DeviceModel, overlap: Overlap) -> Timeline:
    """Predict when each phase of `plan` starts and ends on a device described by `model`.

    One copy engine copies in the order I1 I2 O1 I3 O2 ... regardless of slots. With two, the
    model's `duplex` slows down simultaneous copies in both directions. O(chunks).

    Parameters
    ----------
    plan : DevicePlan
    model : DeviceModel
        `h2d` or `d2h` None: no such phase.
    overlap : Overlap

    Returns
    -------
    Timeline
        Seconds from the start of the first chunk.

    Raises
    ------
    UsageError
        A parameter has the wrong type; the model returns a negative time or NaN.
    """
    require_type("plan", plan, DevicePlan)
    require_type("model", model, DeviceModel)
    require_type("overlap", overlap, Overlap)
    end, spans = _scheduled(plan, model, overlap)
    has_in, has_out = model.h2d is not None, model.d2h is not None
    chunks = tuple(
        ChunkTimeline(units, copy_in if has_in else None, compute, copy_out if has_out else None)
        for units, (copy_in, compute, copy_out) in zip(plan.chunks, spans, strict=True)
    )
    return Timeline(end, chunks)


def price(plan: DevicePlan, model: DeviceModel, overlap: Overlap) -> float:
    """Return the seconds of `plan`: the makespan of its `timeline`."""
    return _scheduled(plan, model, overlap)[0]


def _scheduled(
    plan: DevicePlan, model: DeviceModel, overlap: Overlap
) -> tuple[float, list[Spans]]:
    seconds = phase_seconds(model, np.array(plan.chunks, dtype=float))
    phases = list(zip(*(phase.tolist() for phase in seconds), strict=True))
    spans: list[Spans] = []
    end, first = 0.0, 0
    for sizes in plan.sub_distributions:
        slots = plan.slots if plan.mode is Mode.RING else len(sizes)
        recurrence = Recurrence(end, overlap, slots, model.duplex)
        begun = recurrence.extend(phases[first : first + len(sizes)])
        outs = zip(recurrence.out_begins, recurrence.out_ends, strict=True)
        spans += [(*chunk, out) for chunk, out in zip(begun, outs, strict=True)]
        end = recurrence.makespan
        first += len(sizes)
    return end, spans


def prices(
    plans: Sequence[Sequence[int]] | Sizes,
    slots: int | Sequence[int],
    costs: PhaseCosts,
    overlap: Overlap,
) -> Floats:
    """Return the seconds of many plans, each given as the chunks of one sub-distribution.

    `slots`: of a ring; 0: all chunks are in device memory together.
    """
    longest = max(map(len, plans))
    if not isinstance(plans, np.ndarray):  # chunks of 0 units cost nothing
        plans = np.array([[*row, *(0,) * (longest - len(row))] for row in plans], dtype=np.int64)
    by_chunk = np.ascontiguousarray(plans.T)
    in_memory = np.broadcast_to(np.asarray(slots, dtype=np.int64), len(plans))
    recurrence = Recurrence(
        np.zeros(len(plans)), overlap, np.where(in_memory == 0, longest, in_memory)
    )
    recurrence.extend(zip(*(phase[by_chunk] for phase in costs), strict=True))
    seconds: Floats = recurrence.makespan
    return seconds
