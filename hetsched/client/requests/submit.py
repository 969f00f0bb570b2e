"""Submit: have a job accepted, then deliver its states until it has ended."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from msgspec.structs import replace

from hetsched.client.connection import Connection
from hetsched.client.job import Job, Listener
from hetsched.client.requests.explain import explain, explain_at_once
from hetsched.errors import HetschedError, ProtocolError, TryAgain, from_record
from hetsched.job import Done, JobSpec, ended
from hetsched.transport.messages import Accepted, Answer, Refused, Request, State, Submit


class Renewal(Protocol):
    """Makes a request usable for the next daemon (`renewal.py`)."""

    is_complete: bool
    """Whether `renew` could pass on all that the job needs."""

    def renew(self, spec: JobSpec) -> JobSpec:
        """Return the request to submit to the next daemon."""

    def release(self) -> None:
        """The next daemon has the request."""


def submit(
    connection: Connection,
    request: Submit,
    cancel: Callable[[int], None],
    fetch: Callable[[Done], Any],
    follow: Listener | None = None,
    renewal: Renewal | None = None,
) -> Job:
    """Submit a job and return it once it has been accepted.

    Raises
    ------
    HetschedError
        The daemon's error; TryAgain if it has stopped or doesn't answer.
    """
    handler = JobHandler(connection, cancel, fetch, follow, renewal)
    connection.check_thread(request)
    connection.send(request, handler)
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
        renewal: Renewal | None = None,
    ) -> None:
        self._explain = functools.partial(explain, connection)
        self._explain_at_once = functools.partial(explain_at_once, connection)
        self.accepted: Future[Job] = Future()
        self._cancel = cancel
        self._fetch = fetch
        self._follow = follow
        self._renewal = renewal
        self._job: Job | None = None

    def on_answer(self, answer: Answer) -> bool:
        match answer:
            case Accepted():
                self._accept(answer.job, answer.durability)
                return False
            case State(state=state):
                job = self._job or self._accept(state.job)
                job.advance(state)
                return ended(state)
            case Refused(error=error):
                self._fail(self._refusal(from_record(error)))
            case _:
                self._fail(ProtocolError(f"unexpected answer {type(answer).__name__}"))
        return True

    def on_lost(self, error: HetschedError) -> None:
        job = self._job
        if job is None:
            self._fail(error)
        elif job.durability == "durable":
            hint = f"the job continues then, see `hetsched wait {job.id}`"
            self._fail(TryAgain(f"job {job.id} is out of reach: {error}; {hint}"))
        else:
            self._fail(TryAgain(f"job {job.id} is lost: {error}; submit it again"))

    def renew(self, request: Request) -> Request:
        """Return the same request for the next daemon, which may know the job by its key."""
        if self._renewal is None or not isinstance(request, Submit):
            return request
        return replace(request, spec=self._renewal.renew(request.spec))

    def _refusal(self, error: HetschedError) -> HetschedError:
        """Return the error to report for a refusal, perhaps by the next daemon."""
        if self._renewal is None or self._renewal.is_complete:
            return error
        return TryAgain(
            "input lost: the daemon was started again, and the job's shared memory couldn't be"
            f" passed to it ({error}); submit the job again"
        )

    def _fail(self, error: HetschedError) -> None:
        if self._renewal is not None:
            self._renewal.release()
        if self._job is None:
            self.accepted.set_exception(error)
        else:
            self._job.lost(error)

    def _accept(self, ident: int, durability: str = "") -> Job:
        if self._renewal is not None:
            self._renewal.release()
        if self._job is not None:  # by the next daemon
            self._job.renumber(ident, durability)
            return self._job
        self._job = Job(
            ident, self._cancel, self._fetch, self._explain, durability, self._explain_at_once
        )
        if self._follow is not None:
            self._job.follow(self._follow)
        self.accepted.set_result(self._job)
        return self._job
