"""The client's background thread: requests to the daemon over ZeroMQ, and their answers.

When the daemon stops, the thread tries to reach the next one, and sends the requests that haven't
been answered again. Without open requests it does so only once there is another request.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import zmq

from hetsched.client.backoff import Backoff
from hetsched.client.handlers import Handler, SingleAnswer
from hetsched.client.job import FROM_CALLBACK
from hetsched.client.link import Link
from hetsched.client.open_requests import OpenRequests
from hetsched.client.session import Session
from hetsched.errors import (
    HetschedError,
    NotPermitted,
    ProtocolError,
    TryAgain,
    Unavailable,
    UsageError,
)
from hetsched.transport.codec import Decoder
from hetsched.transport.loop import Loop
from hetsched.transport.messages import Answer, Refused, Reply, Request
from hetsched.transport.process_owner import ProcessOwner
from hetsched.units import format_seconds

log = logging.getLogger(__name__)

T = TypeVar("T")

LAST_REPLIES_SECONDS = 0.5
"""Seconds that the last replies may take after the session's end. Arbitrary."""
GREETING_SECONDS = 2.0
"""Seconds for the first answer of a daemon that has just started, before another attempt.
`close` may have to wait for it. Arbitrary."""
RESEND_SECONDS = 0.02
"""Seconds until requests are sent again that the daemon doesn't accept yet. Arbitrary."""

_decode: Decoder[Reply] = Decoder(Reply)


class Connection:
    """The link to a daemon, to those after it, and the thread that serves it.

    Parameters
    ----------
    session_path : Path
    timeout : float, seconds
        For each answer.
    reconnect : float, seconds
        How long to try to reach the next daemon, once one has stopped.

    Raises
    ------
    Unavailable, NotPermitted, ProtocolError
        See `Session`.
    """

    def __init__(self, session_path: Path, timeout: float, reconnect: float) -> None:
        self.timeout = timeout
        self._owner = ProcessOwner()
        self._path, self._reconnect = session_path, reconnect
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            self._link: Link | None = Link(self._context, session_path, timeout, timeout)
        except BaseException:
            self._context.term()
            raise
        self.on_renewed: Callable[[], None] = lambda: None
        """Called on the connection's thread when another daemon has been reached."""
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._open_requests = OpenRequests()
        self._unsent: deque[int] = deque()
        self._closed: HetschedError | None = None
        self._lost_error: HetschedError | None = None
        self._backoff: Backoff | None = None
        self._is_wanted = False
        """Another thread waits for a daemon."""
        self._failures = 0
        """Number of searches that ended without a daemon."""
        self._loop = Loop(slow_level=logging.DEBUG)
        self._attach(self._link)
        self._open_requests.resume(self._link)
        self._thread = threading.Thread(target=self._run, name="hetsched-client", daemon=True)
        self._thread.start()

    def ask(self, request: Request, seconds: float | None = None) -> Answer:
        """Send `request` and return its answer.

        `seconds`: for the answer of the present daemon; default: also wait for the next one.

        Raises
        ------
        HetschedError
            The daemon's error; TryAgain if it has stopped or doesn't answer.
        """
        handler = SingleAnswer()
        self.check_thread(request)
        if seconds is not None and self._live_session() is None:
            raise TryAgain("the daemon has stopped")
        self.send(request, handler)
        try:
            return self.wait(handler.future, seconds)
        finally:
            del handler  # its error refers to this frame

    def check_thread(self, request: Request) -> None:
        """Raise UsageError on the connection's own thread, which would wait for itself."""
        if threading.current_thread() is self._thread:
            raise UsageError(f"{type(request).__name__.lower()} {FROM_CALLBACK}")

    def send(self, request: Request, handler: Handler) -> None:
        """Send `request`, once there is a daemon; `handler` receives the answers.

        Raises
        ------
        HetschedError
            The connection is closed.
        UsageError
            The request is too large, or this is a forked child.
        """
        self._owner.check()
        if self._closed is not None:
            raise self._closed
        number = next(self._numbers)
        link, payload = self._link, b""
        if link is not None:
            try:
                payload = link.encode(number, request)
            except OverflowError as error:
                raise UsageError(f"{type(request).__name__.lower()}: {error}") from None
            if self._open_requests.send(link, number, request, handler, payload):
                return
        self._loop.call_soon_threadsafe(
            lambda: self._send(number, request, handler, link, payload)
        )

    def wait(self, future: Future[T], seconds: float | None = None) -> T:
        """Return the result of `future`. Raises TryAgain after `seconds`; default: the timeout."""
        limit = self.timeout if seconds is None else min(seconds, self.timeout)
        try:
            return future.result(limit)
        except TimeoutError:
            raise TryAgain(f"the daemon hasn't answered for {limit:g} s") from None
        finally:
            del future  # its error refers to this frame

    def session(self) -> Session:
        """Return the session with the present daemon; wait for one if there is none.

        Raises
        ------
        TryAgain
            None has come within the timeout, or this is the connection's own thread.
        UsageError
            The connection is closed.
        """
        self._owner.check()
        session = self._live_session()
        if session is not None:
            return session
        if threading.current_thread() is self._thread:
            raise self._lost_error or TryAgain("the daemon has stopped")
        with self._changed:
            failures = self._failures
            self._loop.call_soon_threadsafe(self._restart_attempts)
            self._changed.wait_for(lambda: self._is_settled(failures), self.timeout)
        if self._closed is not None:
            raise self._closed
        session = self._live_session()
        if session is None:
            raise self._lost_error or TryAgain("the daemon has stopped")
        return session

    def close(self) -> None:
        """Stop the thread; the Futures of jobs that haven't ended fail. Idempotent."""
        if not self._thread.is_alive() or self._owner.is_forked:
            return
        self._loop.call_soon_threadsafe(
            lambda: self._end(UsageError("this client is closed; create another one"))
        )
        self._loop.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        self._loop.run()
        if self._link is not None:
            self._link.close(linger_ms=100)  # a last Cancel may not have been sent yet
        self._context.term()
        self._loop.close()

    # ---- requests

    def _send(
        self, number: int, request: Request, handler: Handler, link: Link | None, payload: bytes
    ) -> None:
        if self._closed is not None:
            handler.on_lost(self._closed)
            return
        self._open_requests[number] = (request, handler)
        if self._link is None:
            self._restart_attempts()
        elif link is not self._link:  # encoded for another daemon
            self._unsent.append(number)
            self._send_unsent()
        elif not self._pass_on(link, payload):
            del self._open_requests[number]
            handler.on_lost(TryAgain("the daemon accepts no more requests; try again later"))

    def _pass_on(self, link: Link, payload: bytes) -> bool:
        has_sent = link.send(payload)
        self._loop.recheck(link.socket)
        return has_sent

    def _read(self, link: Link, frames: Iterator[bytes]) -> None:
        for frame in frames:
            self._reply(frame)
            if not self._open_requests:  # to look for more would delay the thread just woken
                return
        if link.has_read_all:
            self._loop.remove_reader(link.request_fd)

    def _reply(self, frame: bytes) -> None:
        try:
            reply = _decode(frame)
        except ProtocolError as error:
            self._end(error)
            return
        _, handler = self._open_requests.get(reply.number, (None, None))
        if isinstance(reply.answer, Refused) and self._is_for_earlier_daemon(reply.answer):
            return
        if handler is not None and handler.on_answer(reply.answer):
            self._open_requests.pop(reply.number, None)

    def _is_for_earlier_daemon(self, refusal: Refused) -> bool:
        """Return whether ZeroMQ has taken a request for a stopped daemon to the next one.

        That one refuses it, since the token is valid only as long as its session.
        """
        if refusal.error.code != NotPermitted.code:
            return False
        session = None if self._link is None else self._link.session
        if session is not None:
            session.receive_pending()
        return session is None or session.is_lost

    # ---- the loss of the daemon

    def _on_session_readable(self) -> None:
        link = self._link
        if link is None:
            return
        link.session.receive_pending()
        if link.session.is_lost:
            self._loop.remove_reader(link.session.fileno())
            # Replies sent before the end are still valid, and may be on their way through ZeroMQ.
            delay = LAST_REPLIES_SECONDS if self._open_requests else 0.0
            self._loop.call_later(delay, lambda: self._detach(link))

    def _attach(self, link: Link) -> None:
        self._link = link
        self._loop.add_reader(link.socket, lambda: self._read(link, link.zmq_replies()))
        if link.request_fd >= 0:
            self._loop.add_reader(link.request_fd, lambda: self._read(link, link.direct_replies()))
        self._loop.add_reader(link.session.fileno(), self._on_session_readable)

    def _detach(self, link: Link) -> None:
        """Give up a link whose daemon has stopped."""
        if self._link is not link or self._closed is not None:
            return
        self._lost_error = link.session.lost_error()
        self._loop.remove_reader(link.socket)
        self._loop.remove_reader(link.request_fd)
        self._link = None
        self._open_requests.pause()
        self._unsent.clear()
        link.close()
        if self._open_requests or self._is_wanted:
            if self._reconnect > 0:
                seconds = format_seconds(self._reconnect)
                log.warning("%s; waiting up to %s for the next one", self._lost_error, seconds)
            self._restart_attempts()

    def _restart_attempts(self) -> None:
        """Look for a daemon, unless there is one or the search has begun."""
        self._is_wanted = True
        if self._link is None and self._backoff is None and self._closed is None:
            self._backoff = Backoff(time.monotonic() + self._reconnect)
            self._try_to_connect()

    def _try_to_connect(self) -> None:
        if self._backoff is None or self._closed is not None:
            return
        if self._reconnect <= 0:
            self._give_up()
            return
        try:
            link = Link(self._context, self._path, self.timeout, GREETING_SECONDS)
        except (Unavailable, TryAgain):
            delay = self._backoff.next_delay(time.monotonic(), random.random())
            if delay is None:
                self._give_up()
            else:
                self._loop.call_later(delay, self._try_to_connect)
        except HetschedError as error:  # another version, or another user's
            self._give_up(error)
        else:
            self._on_connected(link)

    def _on_connected(self, link: Link) -> None:
        self._backoff, self._is_wanted = None, False
        self._attach(link)
        self.on_renewed()
        with self._changed:
            self._changed.notify_all()
        self._unsent = deque(self._open_requests.resume(link))
        self._send_unsent()

    def _send_unsent(self) -> None:
        """Send open requests to a new daemon, as many as it accepts at once."""
        while self._unsent and self._link is not None:
            if not self._renew(self._unsent[0]):
                self._loop.call_later(RESEND_SECONDS, self._send_unsent)
                return
            self._unsent.popleft()

    def _renew(self, number: int) -> bool:
        """Send an open request to the present daemon; return False if it should be tried again."""
        request, handler = self._open_requests.get(number, (None, None))
        link = self._link
        if request is None or handler is None or link is None:
            return True
        try:
            request = handler.renew(request)
            payload = link.encode(number, request)
        except OverflowError as error:
            self._fail(number, UsageError(f"{type(request).__name__.lower()}: {error}"))
        except HetschedError as error:
            if not link.session.is_lost:  # else there is another attempt
                self._fail(number, error)
        else:
            self._open_requests[number] = (request, handler)
            return self._pass_on(link, payload)
        return True

    def _fail(self, number: int, error: HetschedError) -> None:
        _, handler = self._open_requests.pop(number)
        handler.on_lost(error)

    def _give_up(self, error: HetschedError | None = None) -> None:
        """Fail all requests: no daemon has come. The next request begins to look again."""
        self._backoff, self._is_wanted = None, False
        self._failures += 1
        lost = self._lost_error or TryAgain("the daemon has stopped")
        if error is not None:
            self._lost_error = lost = type(error)(f"{lost}; the next one can't be used: {error}")
        elif self._reconnect > 0:
            lost = TryAgain(f"{lost}; none has come for {format_seconds(self._reconnect)}")
        self._fail_all(lost)

    def _end(self, error: HetschedError) -> None:
        """Fail all requests: there will be no more answers."""
        if self._closed is None:
            self._closed = error
            if self._link is not None:
                self._loop.remove_reader(self._link.session.fileno())
            self._fail_all(error)

    def _fail_all(self, error: HetschedError) -> None:
        with self._changed:
            self._changed.notify_all()
        for _, handler in self._open_requests.take_all():
            handler.on_lost(error)

    # ---- for other threads

    def _live_session(self) -> Session | None:
        link = self._link
        if self._closed is not None:
            raise self._closed
        return None if link is None or link.session.is_lost else link.session

    def _is_settled(self, failures: int) -> bool:
        """Return whether a daemon has been reached, or none after `failures` failures."""
        link = self._link
        is_linked = link is not None and not link.session.is_lost
        return is_linked or self._closed is not None or self._failures > failures
