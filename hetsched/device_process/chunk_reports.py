"""What a device tells the engine of its finished chunks: several in a message where none waits."""

from __future__ import annotations

from collections.abc import Callable

from hetsched.device import Chunk, ChunkTimes
from hetsched.transport.device_messages import ChunksDone, DoneChunk

MAX_REPORT_SECONDS = 0.25
"""No chunk is reported later than that, as far as the next one can be predicted. If the process
dies, so much is computed again."""


class ChunkReports:
    """The finished chunks of one attempt that the engine hasn't heard of.

    Parameters
    ----------
    gathers : bool
        False: report each at once, as for a device with copies in flight, whose queue must not
        run dry.
    """

    def __init__(self, attempt: int, send: Callable[[ChunksDone], None], *, gathers: bool) -> None:
        self._attempt = attempt
        self._send = send
        self._gathers = gathers
        self._done: list[DoneChunk] = []
        self._since = 0.0
        """The start of the first of them."""
        self._level = 0
        """Chunks that the device had when the engine last sent some or heard of some."""

    def added(self, queued: int) -> None:
        """Note that the device now has `queued` chunks."""
        self._level = queued

    def finish(self, chunk: Chunk, times: ChunkTimes, queued: int, *, has_tail: bool) -> None:
        """Report a chunk, now or with later ones: at the latest when the queue is half empty.

        `has_tail`: the device goes on by itself, whatever is in its queue.
        """
        start, end = times.start, times.end
        if not self._done:
            self._since = start
        self._done.append(DoneChunk(chunk.id, chunk.first, chunk.count, times))
        is_low = not has_tail and 2 * queued <= self._level
        next_end = end + (end - start)  # if the next one takes as long
        is_due = times.cold or next_end - self._since >= MAX_REPORT_SECONDS
        if not self._gathers or is_low or is_due:
            self._level = queued
            self.flush()

    def flush(self, *, has_left: bool = False) -> None:
        """Report everything; `has_left` as in ChunksDone."""
        done, self._done = tuple(self._done), []
        if done or has_left:
            self._send(ChunksDone(self._attempt, done, has_left))
