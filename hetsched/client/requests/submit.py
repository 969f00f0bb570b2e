"""Submit: have a job accepted, then deliver its states until it has ended."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from hetsched.client.connection import Connection
from hetsched.client.job import Job, Listener
from hetsched.client.requests.explain import explain
from hetsched.errors import HetschedError, ProtocolError, TryAgain, from_record
from hetsched.job import Done, JobSpec, ended
from hetsched.transport.messages import Accepted, Answer, Refused, State, Submit


def submit(
    connection: Connection,
    spec: JobSpec,
    cancel: Callable[[int], None],
    fetch: Callable[[Done], Any],
    follow: Listener | None = None,
) -> Job:
    """Submit a job and return it once it has been accepted.

    Raises
    ------
    HetschedError
        The daemon's error; TryAgain if it has stopped or doesn't answer.
    """
    handler = JobHandler(connection, cancel, fetch, follow)
    connection.check_thread(Submit(spec))
    connection.send(Submit(spec), handler)
    try:
        return connection.wait(handler.accepted)
    finally:
        del handler  # its error refers to this frame and its callers', which hold arrays


class JobHandler:
    """Receives the answers about one job; `accepted` gets it once it has a number."""

    def __init__(
        self,
        connection: Connection,
        cancel: Callable[[int], None],
        fetch: Callable[[Done], Any],
        follow: Listener | None,
    ) -> None:
        self._explain = functools.partial(explain, connection)
        self.accepted: Future[Job] = Future()
        self._cancel = cancel
        self._fetch = fetch
        self._follow = follow
        self._job: Job | None = None

    def on_answer(self, answer: Answer) -> bool:
        match answer:
            case Accepted(job=ident):
                self._accept(ident)
                return False
            case State(state=state):
                job = self._job or self._accept(state.job)
                job.advance(state)
                return ended(state)
            case Refused(error=error):
                self.accepted.set_exception(from_record(error))
            case _:
                self.on_lost(ProtocolError(f"unexpected answer {type(answer).__name__}"))
        return True

    def on_lost(self, error: HetschedError) -> None:
        if self._job is None:
            self.accepted.set_exception(error)
        else:
            self._job.lost(TryAgain(f"job {self._job.id} is lost: {error}"))

    def _accept(self, ident: int) -> Job:
        self._job = Job(ident, self._cancel, self._fetch, self._explain)
        if self._follow is not None:
            self._job.follow(self._follow)
        self.accepted.set_result(self._job)
        return self._job
