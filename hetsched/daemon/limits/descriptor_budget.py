"""How many sessions and segments fit the limit of descriptors (RLIMIT_NOFILE). Pure.

libzmq aborts the process when it can't accept a connection, and a daemon without descriptors can
neither replace a device process nor write its journal. So clients may use only what is left
beside the daemon's own descriptors and a reserve; beyond that they are refused (75).
"""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.errors import ConfigError, TryAgain

RESERVE = 16
"""Descriptors for a process that is replaced (5), the files of jobs that run, the journal, models,
and messages on their way. Arbitrary."""
PER_SESSION = 3
"""The session's socket, that for requests, and the client's ZeroMQ connection, which follows."""
MIN_SESSIONS = 3
"""Sessions that segments leave room for, so that a user can still look and cancel. Arbitrary."""
MIN_SEGMENTS = 4
"""Segments that sessions leave room for, so that idle ones don't keep others from work.
Arbitrary."""


@dataclass(frozen=True)
class DescriptorBudget:
    """Descriptors that clients may use, for sessions and segments together.

    Parameters
    ----------
    limit : int
        RLIMIT_NOFILE.
    own : int
        The daemon's, without any client.

    Raises
    ------
    ConfigError
        Too few for any work.
    """

    limit: int
    own: int

    def __post_init__(self) -> None:
        needed = self.own + RESERVE + PER_SESSION * MIN_SESSIONS + MIN_SEGMENTS
        if self.limit < needed:
            raise ConfigError(
                f"{self.limit} descriptors (RLIMIT_NOFILE) are too few, the daemon needs"
                f" {needed}: raise the hard limit (`ulimit -Hn`, LimitNOFILE= in systemd)"
            )

    @property
    def capacity(self) -> int:
        """Descriptors for clients."""
        return self.limit - self.own - RESERVE

    def max_segments(self, sessions: int) -> int:
        """Return how many segments there may be beside so many sessions."""
        return self.capacity - PER_SESSION * max(sessions, MIN_SESSIONS)

    def check_session(self, sessions: int, segments: int) -> None:
        """Raise TryAgain if there may be no session besides these `sessions` and `segments`."""
        if PER_SESSION * (sessions + 1) + max(segments, MIN_SEGMENTS) > self.capacity:
            raise TryAgain(
                f"{sessions} clients and {segments} segments of shared memory are as many as the"
                f" daemon's limit of {self.limit} descriptors (RLIMIT_NOFILE) allows; close some,"
                " try again later, or raise the limit"
            )
