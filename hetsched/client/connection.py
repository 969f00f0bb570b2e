"""The client's background thread: requests to the daemon over ZeroMQ, and their answers.

When the daemon stops, the thread tries to reach the next one, and sends the requests that haven't
been answered again. Without open requests it does so only once there is another request.

A request is sent on the caller's thread, which saves a change of threads: `_lock` guards the
ZeroMQ socket, and its descriptor only says when to look for replies.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import zmq
from msgspec.structs import replace

from hetsched.client.job import FROM_CALLBACK, Job, Listener
from hetsched.client.session import Session, SessionLost
from hetsched.errors import (
    HetschedError,
    InternalError,
    NotPermitted,
    ProtocolError,
    TryAgain,
    Unavailable,
    UsageError,
    from_record,
)
from hetsched.job import JobSpec, JobState, ended
from hetsched.transport import messages
from hetsched.transport.codec import Decoder, encode
from hetsched.transport.process_owner import ProcessOwner
from hetsched.units import format_bytes, format_seconds

log = logging.getLogger(__name__)

LAST_REPLIES_SECONDS = 0.5
"""Seconds that the last replies may take after the session's end."""
GREETING_SECONDS = 2.0
"""Seconds for the first answer of a daemon that has just started, before another attempt.
`close` may have to wait for it."""
RESEND_SECONDS = 0.02
"""Seconds until requests are sent again that can't be sent yet."""
RECONNECT_MS = 1000
"""Milliseconds until ZeroMQ tries again to connect: longer than the time in which a stopped daemon
is noticed. It would take waiting requests to the next one, which doesn't know their token."""
FIRST_DELAY, MAX_DELAY = 0.05, 1.0
"""Seconds between attempts to reach a daemon; each delay is twice the one before. A restart takes
about one."""

OnEvent = Callable[[int, JobState], None]
Renew = Callable[[JobSpec], tuple[JobSpec, bool]]
"""Passes a job's arrays to the next daemon; returns the spec for it, and whether none is lost."""

_decode: Decoder[messages.Reply] = Decoder(messages.Reply)


class Renumbering:
    """Jobs of this client that the next daemon knows by other numbers than the last one.

    `new`: last number -> present number. `pending`: last numbers of those that have been submitted
    again, but haven't been accepted yet.
    """

    def __init__(self) -> None:
        self.new: dict[int, int] = {}
        self.pending: set[int] = set()

    def present(self, job: int) -> int:
        return self.new.get(job, job)


class OpenRequest:
    """A request and what becomes of its answers, on the connection's thread.

    This one has a single answer. `answer`: its Future, with the daemon's error if it refuses.
    """

    def __init__(self, request: messages.Request) -> None:
        self.request = request
        self.answer: Future[Any] = Future()

    def on_answer(self, answer: messages.Answer) -> bool:
        """Handle an answer; return True if it was the last."""
        if isinstance(answer, messages.Refused):
            self.answer.set_exception(from_record(answer.error))
        else:
            self.answer.set_result(answer)
        return True

    def on_lost(self, error: HetschedError) -> None:
        """Handle the loss of the connection: there will be no more answers."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def renew(self, numbers: Renumbering) -> bool:
        """Make `request` one for the next daemon; return False if that must wait."""
        return True


class JobRequest(OpenRequest):
    """Submit or Follow: `answer` gets the Job once it has a number, the Job its states.

    `make_job` makes it of the number and the durability.
    """

    def __init__(
        self,
        request: messages.Request,
        make_job: Callable[[int, str], Job],
        follow: Listener | None = None,
        renew: Renew | None = None,
    ) -> None:
        super().__init__(request)
        self._make_job, self._follow, self._renew = make_job, follow, renew
        self._is_input_lost = False
        self._job: Job | None = None
        self._numbers = Renumbering()

    def on_answer(self, answer: messages.Answer) -> bool:
        match answer:
            case messages.Accepted():
                self._accept(answer.job, answer.durability)
                return False
            case messages.State(state=state):
                job = self._job or self._accept(state.job)
                job.advance(state)
                return ended(state)
            case messages.Refused(error=record) if self._is_input_lost:
                error: HetschedError = TryAgain(
                    "input lost: the daemon was started again, and the job's shared memory"
                    f" couldn't be passed to it ({from_record(record)}); submit the job again"
                )
            case messages.Refused(error=record):
                error = from_record(record)
            case _:
                error = ProtocolError(f"unexpected answer {type(answer).__name__}")
        self._fail(error)
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

    def renew(self, numbers: Renumbering) -> bool:
        """The next daemon may know the job by its key; if not, it gets another number there.

        Jobs that run after it wait for that number.
        """
        if not isinstance(self.request, messages.Submit):
            return True
        spec = self.request.spec
        if any(dependency.job in numbers.pending for dependency in spec.after):
            return False
        spec = replace(
            spec, after=tuple(replace(d, job=numbers.present(d.job)) for d in spec.after)
        )
        if self._renew is not None:
            spec, is_complete = self._renew(spec)
            self._is_input_lost = not is_complete
        self.request = replace(self.request, spec=spec)
        self._numbers = numbers
        if self._job is not None:
            numbers.pending.add(self._job.id)
        return True

    def _fail(self, error: HetschedError) -> None:
        if self._job is None:
            self.answer.set_exception(error)
            return
        self._numbers.pending.discard(self._job.id)
        self._job.lost(error)

    def _accept(self, ident: int, durability: str = "") -> Job:
        if self._job is not None:  # by the next daemon
            last = self._job.id
            self._numbers.pending.discard(last)
            self._numbers.new[last] = ident
            self._job.renumber(ident, durability)
            return self._job
        job = self._job = self._make_job(ident, durability)
        if self._follow is not None:
            job.follow(self._follow)
        self.answer.set_result(job)
        return job


class EventFollower(OpenRequest):
    """Receives events, on the connection's thread.

    Attributes
    ----------
    lost : int
        Events that the daemon dropped since they weren't read in time.
    done : Future
        Done when all jobs have ended; its exception is the daemon's error.
    """

    def __init__(self, on_event: OnEvent, jobs: Sequence[int]) -> None:
        numbers = tuple(dict.fromkeys(jobs))
        super().__init__(messages.Events(numbers))
        self.lost = 0
        self.done: Future[None] = self.answer
        self._on_event = on_event
        self._pending = set(numbers)
        self._is_endless = not numbers
        self._sequence = 0

    def on_answer(self, answer: messages.Answer) -> bool:
        match answer:
            case messages.State(state=state, sequence=sequence):
                self._advance(sequence, state)
            case messages.Refused(error=error):
                self.done.set_exception(from_record(error))
            case _:
                self.on_lost(ProtocolError(f"unexpected answer {type(answer).__name__}"))
        return self.done.done()

    def renew(self, numbers: Renumbering) -> bool:
        """Follow the jobs at the next daemon that haven't ended; it counts anew."""
        if self._pending & numbers.pending:
            return False
        self._sequence = 0
        self._pending = set(map(numbers.present, self._pending))
        self.request = messages.Events(tuple(sorted(self._pending)))
        return True

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


class Link:
    """The sockets to one daemon, from its hello to its end. Raises as `Session`."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], path: Path, timeout: float, greeting: float
    ) -> None:
        self.session = Session(path, timeout, greeting)
        try:
            self._socket = context.socket(zmq.DEALER)
            self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
            self._socket.connect(f"ipc://{self.session.welcome.endpoint}")
            self.fd = int(self._socket.getsockopt(zmq.FD))
        except zmq.ZMQError as error:  # no descriptors, above all
            self.session.close()
            raise TryAgain(f"can't connect to the daemon ({path.parent}): {error}") from None

    def encode(self, number: int, request: messages.Request) -> bytes:
        """Encode a request for this daemon.

        Raises UsageError for one that can't be sent: one that is too long would end the
        connection, and with it other requests.
        """
        name = type(request).__name__.lower()
        try:
            payload = encode(messages.Envelope(self.session.welcome.token, number, request))
        except (OverflowError, UnicodeEncodeError) as error:
            raise UsageError(f"{name}: {error}") from None
        if len(payload) > messages.MAX_FRAME:
            raise UsageError(
                f"{name}: the request has {len(payload)} bytes, the limit is {messages.MAX_FRAME}"
                f" ({format_bytes(messages.MAX_FRAME)}); pass large data as arrays"
            )
        return payload

    def send(self, payload: bytes) -> bool:
        """Send an encoded request; return False if the daemon accepts no more at present."""
        try:
            self._socket.send(payload, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self) -> bytes | None:
        try:
            return self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return None

    def has_replies(self) -> bool:
        """Whether replies have come. To send may consume the event that announces them."""
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    def close(self, linger_ms: int = 0) -> None:
        self._socket.close(linger=linger_ms)
        self.session.close()


class Connection:
    """The link to a daemon, to those after it, and the thread that serves it.

    `timeout`: for each answer; `reconnect`: for reaching the next daemon once one has stopped.
    Raises as `Session`.
    """

    def __init__(self, path: Path, timeout: float, reconnect: float) -> None:
        self.timeout = timeout
        self._owner = ProcessOwner()
        self._path, self._reconnect = path, reconnect
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            self._link: Link | None = Link(self._context, path, timeout, timeout)
        except BaseException:
            self._context.term()
            os.close(self._wake_fd)
            raise
        # Reentrant: the garbage collector may interrupt its holder and close a client.
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._open: dict[int, OpenRequest] = {}
        self._unsent: deque[int] = deque()
        self._renumbering = Renumbering()
        self._closed: HetschedError | None = None
        self._lost_error: HetschedError | None = None
        self._thread = threading.Thread(target=self._run, name="hetsched-client", daemon=True)
        self._thread.start()

    # ---- for other threads

    def wait(self, request: OpenRequest, seconds: float | None = None) -> Any:
        """Send a request and return its `answer`, or raise the daemon's error.

        `seconds`: for the answer of the present daemon; default: also wait for the next one.
        """
        if seconds is not None and self._live_session() is None:
            raise TryAgain("the daemon has stopped")
        if threading.current_thread() is self._thread:
            raise UsageError(f"{type(request.request).__name__.lower()} {FROM_CALLBACK}")
        self.send(request)
        limit = self.timeout if seconds is None else min(seconds, self.timeout)
        answer = request.answer
        try:
            return answer.result(limit)
        except TimeoutError:
            raise TryAgain(f"the daemon hasn't answered for {limit:g} s") from None
        finally:
            del answer, request  # their error refers to this frame and its callers', with arrays

    def send(self, request: OpenRequest) -> None:
        """Send a request, once there is a daemon; its methods get the answers.

        Raises UsageError if it is too large, after `close` and in a forked child.
        """
        self._owner.check()
        number, link = next(self._numbers), self._link
        payload = b"" if link is None else link.encode(number, request.request)
        with self._lock:
            if self._closed is not None:
                raise self._closed
            self._open[number] = request
            if link is None or link is not self._link or self._unsent or not link.send(payload):
                self._unsent.append(number)
                self._wake()
            elif link.has_replies():
                self._wake()

    def session(self) -> Session:
        """Return the session with the present daemon.

        If there is none, wait for one, but not on the connection's own thread: TryAgain.
        """
        self._owner.check()
        session = self._live_session()
        if session is None and threading.current_thread() is not self._thread:
            self.wait(OpenRequest(messages.Ping()))  # which the next daemon answers
            session = self._live_session()
        if session is None:
            raise self._lost_error or SessionLost("the daemon has stopped")
        return session

    def close(self) -> None:
        """Stop the thread; the Futures of jobs that haven't ended fail. Idempotent."""
        if not self._thread.is_alive() or self._owner.is_forked:
            return
        self._end(UsageError("this client is closed; create another one"))
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _live_session(self) -> Session | None:
        """Return the session, if there is one. Raises UsageError once the client is closed."""
        link = self._link
        if self._closed is not None:
            raise self._closed
        return None if link is None or link.session.is_lost else link.session

    def _end(self, error: HetschedError) -> None:
        with self._lock:
            if self._closed is None:
                self._closed = error
            self._wake()

    def _wake(self) -> None:
        with self._lock:  # once closed, the number may be that of another file
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    # ---- the thread

    def _run(self) -> None:
        try:
            while self._closed is None:
                if self._link is not None:
                    self._serve(self._link)
                elif self._open:
                    self._find_daemon()
                else:
                    self._sleep(None)
        except Exception as error:  # a bug: nobody may wait for ever
            log.exception("the client's thread has failed")
            self._end(InternalError(f"a bug in hetsched: {type(error).__name__}: {error}"))
        self._fail_all(self._closed or InternalError("the client's thread has ended"))
        if self._link is not None:
            self._link.close(linger_ms=100)  # a last Cancel may not have been sent yet
        self._context.term()
        with self._lock:
            os.close(self._wake_fd)
            self._wake_fd = -1

    def _sleep(self, seconds: float | None, *fds: int) -> None:
        """Wait until another thread wakes this one, a descriptor is readable or time is over."""
        poll = select.poll()
        for fd in (self._wake_fd, *fds):
            poll.register(fd, select.POLLIN)
        poll.poll(None if seconds is None else max(1, seconds * 1000))
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)

    def _serve(self, link: Link) -> None:
        """Send and receive until the daemon has stopped."""
        end: float | None = None
        while self._closed is None:
            self._read_replies(link)
            if not link.session.is_lost:
                link.session.receive_pending()
            if link.session.is_lost:
                now = time.monotonic()
                # Replies sent before the end are still valid, and may be on their way.
                end = now + LAST_REPLIES_SECONDS if end is None else end
                if now >= end or not self._open:
                    self._detach(link)
                    return
                self._sleep(end - now, link.fd)
            else:
                seconds = None if self._send_unsent(link) else RESEND_SECONDS
                self._sleep(seconds, link.fd, link.session.fileno())

    def _read_replies(self, link: Link) -> None:
        """Read all that has come: ZeroMQ's descriptor announces only the first of several."""
        while self._closed is None:
            with self._lock:
                frame = link.receive()
            if frame is None:
                return
            try:
                reply = _decode(frame)
            except ProtocolError as error:
                self._end(error)
                return
            request = self._open.get(reply.number)
            if request is None or self._is_void(link, reply.answer):
                continue
            try:
                is_last = request.on_answer(reply.answer)
            except SessionLost:  # the results of a job are gone with the daemon
                continue
            if is_last:
                self._open.pop(reply.number, None)

    def _is_void(self, link: Link, answer: messages.Answer) -> bool:
        """Return whether an answer is void, so that the next daemon decides.

        A refused token means that ZeroMQ has taken a request to the next daemon: the token is
        valid only in its session.
        """
        if not isinstance(answer, messages.Refused) or answer.error.code != NotPermitted.code:
            return False
        if not link.session.is_lost:
            link.session.receive_pending()
        return link.session.is_lost

    def _send_unsent(self, link: Link) -> bool:
        """Send waiting requests in their order; return False if some must be tried again."""
        while self._unsent and self._closed is None:
            number = self._unsent[0]
            request = self._open.get(number)
            try:
                if request is not None:
                    if not request.renew(self._renumbering):
                        return False
                    payload = link.encode(number, request.request)
                    with self._lock:
                        if not link.send(payload):
                            return False
            except HetschedError as error:
                if link.session.is_lost:
                    return False
                self._fail(number, error)
            with self._lock:
                self._unsent.popleft()
        return True

    # ---- the loss of the daemon

    def _detach(self, link: Link) -> None:
        self._lost_error = link.session.lost_error()
        with self._lock:
            self._link = None
            link.close()
            self._unsent = deque(sorted(self._open))
        if self._open and self._reconnect > 0:
            seconds = format_seconds(self._reconnect)
            log.warning("%s; waiting up to %s for the next one", self._lost_error, seconds)

    def _find_daemon(self) -> None:
        """Look for a daemon with growing delays until there is one, or time is over."""
        deadline = time.monotonic() + self._reconnect
        delay = FIRST_DELAY
        while self._closed is None and self._reconnect > 0:
            try:
                link = Link(self._context, self._path, self.timeout, GREETING_SECONDS)
            except (Unavailable, TryAgain):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                # Jitter, so that many clients don't come back at the same moment.
                end = time.monotonic() + min(delay * (0.5 + os.urandom(1)[0] / 512), left)
                while self._closed is None and time.monotonic() < end:  # requests wake it, too
                    self._sleep(end - time.monotonic())
                delay = min(2 * delay, MAX_DELAY)
            except HetschedError as error:  # another version, or another user's
                self._give_up(error)
                return
            else:
                self._renumbering.pending.clear()
                with self._lock:
                    self._link = link
                    self._unsent = deque(sorted(self._open))
                return
        if self._closed is None:
            self._give_up()

    def _give_up(self, error: HetschedError | None = None) -> None:
        """Fail all requests: no daemon has come. The next request begins to look again."""
        lost = self._lost_error or TryAgain("the daemon has stopped")
        if error is not None:
            self._lost_error = lost = type(error)(f"{lost}; the next one can't be used: {error}")
        elif self._reconnect > 0:
            lost = TryAgain(f"{lost}; none has come for {format_seconds(self._reconnect)}")
        self._fail_all(lost)

    def _fail_all(self, error: HetschedError) -> None:
        with self._lock:
            numbers = list(self._open)
            self._unsent.clear()
        for number in numbers:
            self._fail(number, error)

    def _fail(self, number: int, error: HetschedError) -> None:
        request = self._open.pop(number, None)
        if request is not None:
            request.on_lost(error)
