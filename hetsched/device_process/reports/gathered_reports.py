"""Reports of the chunks that a device was sent: one by one, or several in a message."""

from __future__ import annotations

from collections.abc import Callable

from hetsched.device import ChunkTimes
from hetsched.device_process.shared_tails import MAX_REPORT_SECONDS
from hetsched.transport.device_messages import OwnChunk

Report = Callable[[tuple[OwnChunk, ...]], None]


class GatheredReports:
    """The finished chunks of one job that the engine hasn't heard of.

    Parameters
    ----------
    report : callable
        Sends them.
    has_more : callable
        Whether the device has other chunks of the job, after which it reports anyway.
    """

    def __init__(self, report: Report, has_more: Callable[[], bool]) -> None:
        self._report = report
        self._has_more = has_more
        self._done: list[OwnChunk] = []
        self._since = 0.0
        """The start of the first of them."""

    def finish(self, chunk: int, times: ChunkTimes) -> None:
        """Report a finished chunk, now or with later ones, `MAX_REPORT_SECONDS` at most."""
        if not self._done:
            self._since = times.start
        self._done.append(OwnChunk(chunk, times))
        if not self._has_more() or times.end - self._since >= MAX_REPORT_SECONDS:
            done, self._done = tuple(self._done), []
            self._report(done)
