"""Events: the states of several jobs, or of all, as numbered events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from hetsched.client.connection import Connection
from hetsched.errors import HetschedError, ProtocolError, from_record
from hetsched.job import JobState, ended
from hetsched.transport.messages import Answer, Events, JobEvent, Refused, Request

log = logging.getLogger(__name__)

OnEvent = Callable[[int, JobState], None]


class EventFollower:
    """Receives events, on the connection's thread.

    Attributes
    ----------
    lost : int
        Events that the daemon dropped since they weren't read in time.
    done : Future
        Done when all jobs have ended; its exception is the daemon's error.
    """

    def __init__(self, on_event: OnEvent, jobs: Sequence[int]) -> None:
        self.lost = 0
        self.done: Future[None] = Future()
        self._on_event = on_event
        self._pending = set(jobs)
        self._is_endless = not jobs
        self._sequence = 0

    def on_answer(self, answer: Answer) -> bool:
        match answer:
            case JobEvent(sequence=sequence, state=state):
                self._advance(sequence, state)
            case Refused(error=error):
                self.done.set_exception(from_record(error))
            case _:
                self.on_lost(ProtocolError(f"unexpected answer {type(answer).__name__}"))
        return self.done.done()

    def on_lost(self, error: HetschedError) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def renew(self, request: Request) -> Request:
        """Follow the jobs at the next daemon that haven't ended; it counts anew."""
        self._sequence = 0
        return Events(() if self._is_endless else tuple(sorted(self._pending)))

    def _advance(self, sequence: int, state: JobState) -> None:
        self.lost += max(0, sequence - self._sequence - 1)
        self._sequence = sequence
        try:
            self._on_event(sequence, state)
        except Exception:
            log.exception("error in a callback for events of job %d", state.job)
        if ended(state):
            self._pending.discard(state.job)
        if not self._pending and not self._is_endless:
            self.done.set_result(None)


def events(connection: Connection, callback: OnEvent, jobs: Sequence[int]) -> EventFollower:
    """Follow `jobs`, or all; errors are reported by the follower's Future."""
    numbers = tuple(dict.fromkeys(jobs))
    follower = EventFollower(callback, numbers)
    connection.check_thread(Events(numbers))
    connection.send(Events(numbers), follower)
    return follower
