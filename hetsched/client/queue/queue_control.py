"""The client's operations on the queue."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.client.connection import Connection
from hetsched.client.requests.queue import cancel_all, hold, prioritize, release, status
from hetsched.transport.messages import Changed, JobLine


class QueueControl:
    """The methods of `Client` and `Control` that list and change the queue.

    Those that take a job raise InputMissing if it isn't known, and those that change one raise
    UsageError if it no longer waits.
    """

    _connection: Connection

    def status(self, states: Sequence[str] = (), limit: int | None = None) -> tuple[JobLine, ...]:
        """Return all jobs that the daemon remembers, oldest first.

        Parameters
        ----------
        states : sequence of str
            Only jobs in these: "queued", "held", "running", "done", "failed", "cancelled".
        limit : int or None
            Only the newest ones.
        """
        return status.status(self._connection, states, limit)

    def hold(self, job: int) -> Changed:
        """Keep waiting job number `job` from starting until `release`."""
        return hold.hold(self._connection, job)

    def release(self, job: int) -> Changed:
        """Let held job number `job` start when its turn comes."""
        return release.release(self._connection, job)

    def prioritize(self, job: int, priority: int) -> Changed:
        """Give waiting job number `job` another priority, -20 to 19; larger ones run first."""
        return prioritize.prioritize(self._connection, job, priority)

    def cancel_all(self) -> tuple[int, ...]:
        """Cancel all jobs that haven't ended, everyone's; return their numbers."""
        return cancel_all.cancel_all(self._connection)
