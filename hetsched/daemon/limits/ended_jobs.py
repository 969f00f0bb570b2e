"""Which ended jobs are remembered, in number and bytes. Pure.

Over the limit of bytes, first the largest jobs lose their parameters and lists of chunks, which
may have a megabyte; so one client's large parameters don't make the daemon forget other jobs. Then
the oldest jobs are forgotten.
"""

from __future__ import annotations

from msgspec.structs import replace

from hetsched.daemon.records import JobEntry
from hetsched.job import Done, Failed
from hetsched.transport.codec import encode

MAX_ENDED_JOBS = 1000
"""Ended jobs that are remembered. Arbitrary."""
MIN_SHORTENED_BYTES = 8 << 10
"""Jobs up to this size stay as they are. Arbitrary."""
ENTRY_BYTES = 2000
"""Of a job's record, without what clients chose. Estimated."""


class EndedJobs:
    """The ended jobs, the first to end first.

    Parameters
    ----------
    max_bytes : int, bytes
        Of all together, estimated.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._jobs: dict[int, tuple[JobEntry, int]] = {}
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, entry: JobEntry) -> list[JobEntry]:
        """Add a job; return those to forget. May shorten others, or this one."""
        size = entry_bytes(entry)
        self._jobs[entry.job] = entry, size
        self.nbytes += size
        if self.nbytes > self._max_bytes:
            self._shorten()
        forgotten = []
        while len(self._jobs) > 1 and (
            len(self._jobs) > MAX_ENDED_JOBS or self.nbytes > self._max_bytes
        ):
            forgotten.append(self.remove(next(iter(self._jobs))))
        return forgotten

    def remove(self, number: int) -> JobEntry:
        """Remove a job. Raises KeyError."""
        entry, size = self._jobs.pop(number)
        self.nbytes -= size
        return entry

    def _shorten(self) -> None:
        """Shorten the largest jobs until all fit."""
        sizes = {number: size for number, (_, size) in self._jobs.items()}
        for number in sorted(sizes, key=sizes.__getitem__, reverse=True):
            entry, size = self._jobs[number]
            if self.nbytes <= self._max_bytes or size <= MIN_SHORTENED_BYTES:
                return
            shorten(entry)
            shortened_size = entry_bytes(entry)
            self._jobs[number] = entry, shortened_size
            self.nbytes += shortened_size - size


def entry_bytes(entry: JobEntry) -> int:
    """Estimate the bytes that a job takes, by its length as a message."""
    state = 0 if entry.state is None else len(encode(entry.state))
    return ENTRY_BYTES + len(encode(entry.spec)) + state


def shorten(entry: JobEntry) -> None:
    """Drop the parameters and the lists of chunks of an ended job."""
    entry.is_shortened = True
    entry.spec = replace(entry.spec, params={}, measure={})
    if isinstance(entry.state, Done | Failed):
        report = entry.state.report
        devices = tuple(replace(device, chunks=()) for device in report.devices)
        entry.state = replace(entry.state, report=replace(report, params={}, devices=devices))
