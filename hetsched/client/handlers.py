"""Handlers of the daemon's answers to one request."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol, TypeVar

from hetsched.errors import HetschedError, ProtocolError, from_record
from hetsched.transport.messages import Answer, Refused, Request

T = TypeVar("T")


class Handler(Protocol):
    """Receives the answers to one request, on the connection's thread."""

    def on_answer(self, answer: Answer) -> bool:
        """Handle an answer; return True if it was the last."""

    def on_lost(self, error: HetschedError) -> None:
        """Handle the loss of the connection: there will be no more answers."""

    def renew(self, request: Request) -> Request:
        """Return the request to send to the next daemon. Raises HetschedError if there is none."""


class SingleAnswer:
    """Handler of a request with one answer, which may be sent twice."""

    def __init__(self) -> None:
        self.future: Future[Answer] = Future()

    def on_answer(self, answer: Answer) -> bool:
        if isinstance(answer, Refused):
            self.future.set_exception(from_record(answer.error))
        else:
            self.future.set_result(answer)
        return True

    def on_lost(self, error: HetschedError) -> None:
        self.future.set_exception(error)

    def renew(self, request: Request) -> Request:
        return request


def expect(kind: type[T], answer: Answer) -> T:
    """Return `answer` if it is of `kind`. Raises ProtocolError otherwise."""
    if not isinstance(answer, kind):
        raise ProtocolError(f"the daemon answered {type(answer).__name__}, not {kind.__name__}")
    return answer
