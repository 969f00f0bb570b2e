"""How often, how long and when the journal was committed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CommitStats:
    """Totals since the journal was opened.

    Attributes
    ----------
    commits, failures : int
    writes : int
        Of all commits: several share one, and its fsync.
    seconds, longest : float, seconds
        Of all commits that succeeded, and of the slowest; nearly all of it is fsync.
    last_at : float or None, seconds since the epoch
        The end of the last commit that succeeded.
    """

    commits: int = 0
    failures: int = 0
    writes: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    last_at: float | None = None

    def committed(self, writes: int, seconds: float, now: float) -> CommitStats:
        """Add a commit."""
        return CommitStats(
            self.commits + 1,
            self.failures,
            self.writes + writes,
            self.seconds + seconds,
            max(self.longest, seconds),
            now,
        )

    def failed(self) -> CommitStats:
        """Add a commit that failed."""
        return CommitStats(
            self.commits, self.failures + 1, self.writes, self.seconds, self.longest, self.last_at
        )
