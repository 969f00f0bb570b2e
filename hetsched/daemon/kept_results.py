"""Results that ended jobs keep in the arena, in the order in which they expire. No I/O.

Every operation takes constant time: thousands of jobs per second end and have their results
fetched.
"""

from __future__ import annotations

from collections.abc import Iterator

from hetsched.daemon.records import JobEntry


class KeptResults:
    """The jobs that keep results, and what these take.

    Attributes
    ----------
    nbytes : int, bytes
        Of all kept results.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self._entries: dict[int, JobEntry] = {}
        self._by_segment: dict[int, JobEntry] = {}

    def __iter__(self) -> Iterator[JobEntry]:
        """Iterate over a copy of the jobs, the first to expire first."""
        return iter(list(self._entries.values()))

    def add(self, entry: JobEntry, segment: int, nbytes: int) -> None:
        """Keep a result of a job, which expires later than those of all jobs before it."""
        entry.kept_results[segment] = nbytes
        self._entries[entry.ticket] = entry
        self._by_segment[segment] = entry
        self.nbytes += nbytes

    def remove(self, entry: JobEntry, segment: int) -> bool:
        """Stop keeping a result; return whether it was kept."""
        nbytes = entry.kept_results.pop(segment, None)
        if nbytes is None:
            return False
        self.nbytes -= nbytes
        del self._by_segment[segment]
        if not entry.kept_results:
            del self._entries[entry.ticket]
        return True

    def job_keeping(self, segment: int) -> JobEntry | None:
        """Return the job that keeps `segment`."""
        return self._by_segment.get(segment)

    def first(self) -> JobEntry | None:
        """Return the job whose results expire first."""
        return next(iter(self._entries.values()), None)

    def expired(self, now: float) -> list[JobEntry]:
        """Return the jobs whose results have expired, except behind one that is still awaited."""
        entries = []
        for entry in self._entries.values():
            if now < entry.expires:
                break
            entries.append(entry)
        return entries
