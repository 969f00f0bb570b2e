"""The client's background thread: requests to the daemon over ZeroMQ, and their answers."""

from __future__ import annotations

import contextlib
import itertools
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol, TypeVar

import zmq

from hetsched.client.job import FROM_CALLBACK
from hetsched.client.session import Session
from hetsched.errors import HetschedError, ProtocolError, TryAgain, UsageError, from_record
from hetsched.transport.codec import Decoder, encode
from hetsched.transport.loop import Loop
from hetsched.transport.messages import Answer, Envelope, Refused, Reply, Request

T = TypeVar("T")

LAST_REPLIES_SECONDS = 0.2
"""Seconds that the last replies may take after the session's end. Arbitrary."""

_decode: Decoder[Reply] = Decoder(Reply)


class Handler(Protocol):
    """Receives the answers to one request, on the connection's thread."""

    def on_answer(self, answer: Answer) -> bool:
        """Handle an answer; return True if it was the last."""

    def on_lost(self, error: HetschedError) -> None:
        """Handle the loss of the connection: there will be no more answers."""


class SingleAnswer:
    """Handler of a request with one answer."""

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


class Connection:
    """A session, a ZeroMQ socket and the thread that serves both.

    Parameters
    ----------
    session_path : Path
    timeout : float, seconds
        For each answer.

    Raises
    ------
    Unavailable, NotPermitted, ProtocolError
        See `Session`.
    """

    def __init__(self, session_path: Path, timeout: float) -> None:
        self.timeout = timeout
        self.session = Session(session_path, timeout)
        self._token = self.session.welcome.token
        self._numbers = itertools.count(1)
        self._handlers: dict[int, Handler] = {}
        self._error: HetschedError | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.connect(f"ipc://{self.session.welcome.endpoint}")
        self._loop = Loop()
        self._loop.add_reader(self._socket, self._replies)
        self._loop.add_reader(self.session.fileno(), self._on_session_readable)
        self._thread = threading.Thread(target=self._run, name="hetsched-client", daemon=True)
        self._thread.start()

    def ask(self, request: Request) -> Answer:
        """Send `request` and return its answer.

        Raises
        ------
        HetschedError
            The daemon's error; TryAgain if it has stopped or doesn't answer.
        """
        handler = SingleAnswer()
        self.check_thread(request)
        self.send(request, handler)
        try:
            return self.wait(handler.future)
        finally:
            del handler  # its error refers to this frame

    def check_thread(self, request: Request) -> None:
        """Raise UsageError on the connection's own thread, which would wait for itself."""
        if threading.current_thread() is self._thread:
            raise UsageError(f"{type(request).__name__.lower()} {FROM_CALLBACK}")

    def send(self, request: Request, handler: Handler) -> None:
        """Send `request`; `handler` receives the answers.

        Raises
        ------
        HetschedError
            The connection is closed or lost.
        """
        if self._error is not None:
            raise self._error
        number = next(self._numbers)
        try:
            payload = encode(Envelope(self._token, number, request))
        except OverflowError as error:
            raise UsageError(f"{type(request).__name__.lower()}: {error}") from None
        self._loop.call_soon_threadsafe(lambda: self._send(number, payload, handler))

    def wait(self, future: Future[T]) -> T:
        """Return the result of `future`. Raises TryAgain if it takes longer than the timeout."""
        try:
            return future.result(self.timeout)
        except TimeoutError:
            raise TryAgain(f"the daemon hasn't answered for {self.timeout:g} s") from None
        finally:
            del future  # its error refers to this frame

    def close(self) -> None:
        """Stop the thread; the Futures of jobs that haven't ended fail. Idempotent."""
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(
            lambda: self._fail(UsageError("this client is closed; create another one"))
        )
        self._loop.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        self._loop.run()
        self._socket.close(linger=100)  # a last Cancel may not have been sent yet
        self._context.term()
        self._loop.close()
        self.session.close()

    def _send(self, number: int, payload: bytes, handler: Handler) -> None:
        if self._error is not None:
            handler.on_lost(self._error)
            return
        self._handlers[number] = handler
        try:
            self._socket.send(payload, zmq.NOBLOCK)
        except zmq.Again:
            del self._handlers[number]
            handler.on_lost(TryAgain("the daemon accepts no more requests; try again later"))

    def _replies(self) -> None:
        with contextlib.suppress(zmq.Again):
            while True:
                self._reply(self._socket.recv(zmq.NOBLOCK))

    def _reply(self, frame: bytes) -> None:
        try:
            reply = _decode(frame)
        except ProtocolError as error:
            self._fail(error)
            return
        handler = self._handlers.get(reply.number)
        if handler is not None and handler.on_answer(reply.answer):
            self._handlers.pop(reply.number, None)

    def _on_session_readable(self) -> None:
        self.session.receive_pending()
        if self.session.is_lost:
            self._loop.remove_reader(self.session.fileno())
            # Replies sent before the end are still valid, and may be on their way through ZeroMQ.
            delay = LAST_REPLIES_SECONDS if self._handlers else 0.0
            self._loop.call_later(delay, lambda: self._fail(self.session.lost_error()))

    def _fail(self, error: HetschedError) -> None:
        """Report `error` to all handlers: there will be no more answers."""
        if self._error is not None:
            return
        self._error = error
        with contextlib.suppress(ValueError):
            self._loop.remove_reader(self.session.fileno())
        handlers, self._handlers = self._handlers, {}
        for handler in handlers.values():
            handler.on_lost(error)


def expect(kind: type[T], answer: Answer) -> T:
    """Return `answer` if it is of `kind`. Raises ProtocolError otherwise."""
    if not isinstance(answer, kind):
        raise ProtocolError(f"the daemon answered {type(answer).__name__}, not {kind.__name__}")
    return answer
