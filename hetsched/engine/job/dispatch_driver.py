"""The timed part of a job: dispatches its chunks and keeps what they took."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from hetsched.device import Chunk, ChunkTimes
from hetsched.dispatch.dispatcher import (
    ChunkFinished,
    DeviceJoined,
    DeviceLost,
    Dispatch,
    Event,
    Finished,
    Send,
    Started,
)
from hetsched.job import DeviceProgress
from hetsched.planner.job_planner import Assignment
from hetsched.transport.device_messages import ChunkDone

Sender = Callable[[str, tuple[Chunk, ...]], None]


class Computing:
    """One pass over the load.

    Parameters
    ----------
    assigned : mapping
        Device -> its assignment.
    send : callable
        (device, chunks): sends them.
    finished : callable
        Called once, when every unit is done.
    stealing : bool
        Idle devices take chunks of others.
    """

    def __init__(
        self,
        assigned: Mapping[str, Assignment],
        send: Sender,
        finished: Callable[[], None],
        *,
        stealing: bool = False,
    ) -> None:
        self._assigned = assigned
        self._send = send
        self._finished = finished
        self._units: dict[int, int] = {}
        self._times: dict[str, list[tuple[int, ChunkTimes]]] = {d: [] for d in assigned}
        self.disturbed = False
        """A device was lost on the way: the times teach nothing."""
        self._dispatch = Dispatch(
            {device: one.chunks for device, one in assigned.items()},
            {device: one.window for device, one in assigned.items()},
            {device: one.chunk for device, one in assigned.items()},
            {device: one.pace for device, one in assigned.items()} if stealing else None,
        )

    def start(self) -> None:
        self._handle(Started())

    def chunk_done(self, device: str, done: ChunkDone) -> None:
        self._times[device].append((self._units[done.chunk], done.times))
        self._handle(ChunkFinished(device, done.chunk))

    def lost(self, device: str) -> None:
        self.disturbed = True
        self._handle(DeviceLost(device))

    def joined(self, device: str) -> None:
        self._handle(DeviceJoined(device))

    def progress(self) -> tuple[DeviceProgress, ...]:
        return self._dispatch.progress()

    @property
    def times(self) -> Mapping[str, Sequence[tuple[int, ChunkTimes]]]:
        """(units, times) of the chunks that each device has done; grows on."""
        return self._times

    def measured(self, device: str) -> tuple[tuple[int, ChunkTimes], ...]:
        """(units, times) of the chunks that `device` has done, in order."""
        return tuple(self._times[device])

    def _handle(self, event: Event) -> None:
        for command in self._dispatch.handle(event, time.monotonic()):
            match command:
                case Send(device, chunks):
                    self._units.update((chunk.id, chunk.count) for chunk in chunks)
                    self._send(device, chunks)
                case Finished():
                    self._finished()
