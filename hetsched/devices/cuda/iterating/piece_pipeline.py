"""One stage of a GPU's rows: copies in, kernels and copies out of pieces, which overlap.

The same streams and events as for the chunks of jobs without iterations, and the same waits: a
kernel waits for its piece's copy in, a copy out for its kernel, a copy in for the copy out of the
piece that had the slot before. Kernels may block the host until they have ended, since they return
partial results to it; so the copies that can run meanwhile are issued before each kernel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hetsched.devices.base import StageSeconds
from hetsched.devices.cuda.chunk_flight import EventPool, PhaseEvents, block_until
from hetsched.devices.cuda.runtime import Runtime, Stream


class StageStreams(NamedTuple):
    """The streams of a device."""

    copy_in: Stream
    compute: Stream
    copy_out: Stream


@dataclass(frozen=True)
class PieceWork:
    """What is to be done with a piece in a stage.

    Attributes
    ----------
    slot : hashable
        The memory that it uses: it is free again after the copy out.
    copy_in, launch, copy_out : callable
        Issue operations to the stream.
    is_held : bool
        No other piece needs the slot: others are copied out first.
    """

    slot: Hashable
    copy_in: Callable[[Stream], None]
    launch: Callable[[Stream], None]
    copy_out: Callable[[Stream], None]
    is_held: bool = False


class PiecePipeline:
    """Runs the pieces of a stage."""

    def __init__(self, runtime: Runtime, streams: StageStreams, events: EventPool) -> None:
        self._runtime = runtime
        self._streams = streams
        self._pool = events
        self._begin, self._end = runtime.event(), runtime.event()
        self._flights: deque[PhaseEvents] = deque()

    def run(self, works: Sequence[PieceWork]) -> StageSeconds:
        """Run all pieces; return when the last copy out has ended.

        Transfer is the time in which no kernel ran.
        """
        streams = self._streams
        streams.copy_in.record(self._begin)
        seconds = self._compute(deque(works))
        streams.copy_out.record(self._end)
        block_until(self._end)
        while self._flights:
            seconds += self._land()
        total = self._end.milliseconds_after(self._begin) * 1e-3
        return StageSeconds(seconds, max(0.0, total - seconds))

    def abandon(self) -> None:
        """Wait until nothing is copied any more; what has been issued is given up."""
        self._runtime.synchronize()
        while self._flights:
            self._pool.give_back(self._flights.popleft())

    def _compute(self, waiting: deque[PieceWork]) -> float:
        """Issue all operations; return the seconds of kernels that have ended."""
        seconds = 0.0
        used: dict[Hashable, PhaseEvents] = {}
        """Slot -> events of the last piece there."""
        ready: deque[tuple[PieceWork, PhaseEvents]] = deque()
        held = []
        while waiting or ready:
            taken = {work.slot for work, _ in ready}
            while waiting and waiting[0].slot not in taken:
                work = waiting.popleft()
                taken.add(work.slot)
                ready.append((work, self._copy_in(work, used.get(work.slot))))
                used[work.slot] = ready[-1][1]
            work, events = ready.popleft()
            self._launch(work, events)
            if work.is_held:
                held.append((work, events))
            else:
                self._copy_out(work, events)
            # An older piece than any of the slots': waiting for it doesn't keep streams from work.
            if len(self._flights) > 2 * len(used):
                seconds += self._land()
        for work, events in held:
            self._copy_out(work, events)
        return seconds

    def _copy_in(self, work: PieceWork, previous: PhaseEvents | None) -> PhaseEvents:
        stream, events = self._streams.copy_in, self._pool.take()
        if previous is not None:
            stream.wait(previous.out_end)
        work.copy_in(stream)
        stream.record(events.in_end)
        return events

    def _launch(self, work: PieceWork, events: PhaseEvents) -> None:
        compute = self._streams.compute
        compute.wait(events.in_end)
        compute.record(events.compute_start)
        work.launch(compute)
        compute.record(events.compute_end)

    def _copy_out(self, work: PieceWork, events: PhaseEvents) -> None:
        out = self._streams.copy_out
        out.wait(events.compute_end)
        work.copy_out(out)
        out.record(events.out_end)
        self._flights.append(events)

    def _land(self) -> float:
        """Wait for the oldest piece; return the seconds of its kernel."""
        events = self._flights.popleft()
        block_until(events.out_end)
        seconds = events.compute_end.milliseconds_after(events.compute_start) * 1e-3
        self._pool.give_back(events)
        return seconds
