"""The client's operations on the queue."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.client.connection import Connection
from hetsched.client.requests.queue import (
    cancel_all,
    clean,
    drain,
    events,
    history,
    hold,
    prioritize,
    release,
    retry,
    status,
)
from hetsched.client.requests.queue.events import EventFollower, OnEvent
from hetsched.transport.messages import Changed, Draining, JobLine


class QueueControl:
    """The methods of `Client` and `Control` that list and change the queue.

    Those that take a job raise InputMissing if it isn't known, and those that change one raise
    UsageError if it no longer waits.
    """

    _connection: Connection

    def status(
        self, states: Sequence[str] = (), limit: int | None = None, jobs: Sequence[int] = ()
    ) -> tuple[JobLine, ...]:
        """Return all jobs that the daemon remembers, oldest first.

        Parameters
        ----------
        states : sequence of str
            Only jobs in these: "queued", "held", "running", "done", "failed", "cancelled".
        limit : int or None
            Only the newest ones.
        jobs : sequence of int
            Only these, if there are any. Raises InputMissing if one isn't known.
        """
        return status.status(self._connection, states, limit, jobs)

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

    def retry(self, job: int, *, force: bool = False) -> int:
        """Submit ended job number `job` again and return the new job's number.

        The new job has neither the id of the old one nor its dependencies. `force`: it replaces
        output files that exist, as the old one's does. Raises InputMissing if what it needs is
        gone, such as arrays of another client.
        """
        return retry.retry(self._connection, job, force=force)

    def history(
        self, states: Sequence[str] = (), since: float | None = None, limit: int = 100
    ) -> tuple[JobLine, ...]:
        """Return the newest `limit` jobs of the past, oldest first.

        Parameters
        ----------
        states : sequence of str
            As for `status`.
        since : float or None, seconds since the epoch
            Only jobs submitted then or later.
        """
        return history.history(self._connection, states, since, limit)

    def clean(self, states: Sequence[str] = (), older: float = 0.0) -> tuple[int, ...]:
        """Forget jobs that ended `older` seconds ago or earlier; return their numbers.

        Their results in memory are released.
        """
        return clean.clean(self._connection, states, older)

    def drain(self, *, stop: bool = False, now: bool = False, undo: bool = False) -> Draining:
        """Let the daemon accept no new jobs, or with `undo` accept them again.

        Parameters
        ----------
        stop : bool
            End the daemon as soon as no job runs or could start.
        now : bool
            End it now; running jobs stop after their current chunks.
        """
        return drain.drain(self._connection, stop, now, undo)

    def events(self, callback: OnEvent, jobs: Sequence[int] = ()) -> EventFollower:
        """Call ``callback(sequence, state)`` for each state of `jobs`, or of all.

        On the thread that serves this client. Its present states come first if `jobs` are given,
        and the follower is done when all have ended. What the callback is too slow for is dropped
        by the daemon, counted in `EventFollower.lost`, and slows nothing else.
        """
        return events.events(self._connection, callback, jobs)
