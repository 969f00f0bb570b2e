"""The client's connection to the daemon, and the background thread that serves it.

A `Session` are the sockets to one daemon: ZeroMQ's for requests, the session's for shared memory
and liveness. When the daemon stops, the thread tries to reach the next one, and sends the requests
that haven't been answered again. Without open requests it does so only once there is another
request.

A request is sent on the caller's thread, which saves a change of threads: `_lock` guards the
ZeroMQ socket, and its descriptor only says when to look for replies.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import select
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq
from msgspec.structs import replace

from hetsched import __version__, errors
from hetsched.client.job import FROM_CALLBACK, Job, SessionLost, check_process
from hetsched.job import Ended, JobSpec, JobState
from hetsched.transport import messages, sockets
from hetsched.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from hetsched.client.client import ClientSegment
    from hetsched.transport.arena import Segment

log = logging.getLogger(__name__)

LAST_REPLIES_SECONDS = 0.5
"""Seconds that the last replies may take after the session's end."""
GREETING_SECONDS = 2.0
"""Seconds for the first answer of a daemon that has just started, before another attempt.
`close` may have to wait for it."""
RESEND_SECONDS = 0.02
"""Seconds until requests are sent again that can't be sent yet."""
FIRST_DELAY, MAX_DELAY = 0.05, 1.0
"""Seconds between attempts to reach a daemon; each delay is twice the one before. A restart takes
about one."""

OnEvent = Callable[[int, JobState], None]
Renew = Callable[[JobSpec], JobSpec]
"""Passes a job's arrays to the next daemon, and returns the spec for it. TryAgain if one is lost.
"""


@dataclass
class PresentNumber:
    """A job's number at the present daemon; None until that has accepted it."""

    number: int | None = None


Numbers = dict[int, PresentNumber]
"""By a job's number at an earlier daemon; they hold no job, whose result may be large."""

MAX_ANSWER = 64 << 10
"""Bytes of the longest answer."""
RECONNECT_MS = 1000
"""Milliseconds until ZeroMQ tries again to connect: longer than the time in which a stopped daemon
is noticed. It would take waiting requests to the next one, which doesn't know their token."""
CLOSING_SECONDS = 5.0
"""For the connection's thread to end; it may be in a callback that never returns."""

_decode_reply: messages.Decoder[messages.Reply] = messages.Decoder(messages.Reply)
_decode_answer: messages.Decoder[messages.SessionAnswer] = messages.Decoder(messages.SessionAnswer)


class OpenRequest:
    """A request and what becomes of its answers, on the connection's thread.

    `answer`: the Future of its only answer, a `kind`, or of the daemon's error.
    """

    def __init__(self, request: messages.Request, kind: type[Any] | tuple[()] = ()) -> None:
        self.request, self._kind = request, kind
        self.answer: Future[Any] = Future()

    def on_answer(self, answer: messages.Answer) -> bool:
        """Handle an answer; return True if it was the last."""
        if isinstance(answer, self._kind):
            self.answer.set_result(answer)
        elif isinstance(answer, messages.Refused):
            self.fail(errors.from_record(answer.error))
        else:
            self.fail(
                errors.ProtocolError(
                    f"the daemon answered {type(answer).__name__} to"
                    f" {type(self.request).__name__}; install the same version for both"
                )
            )
        return True

    def fail(self, error: errors.HetschedError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def on_lost(self, error: errors.HetschedError) -> None:
        self.fail(error)

    def renew(self, numbers: Numbers) -> bool:
        """Make `request` one for the next daemon; return False if that must wait."""
        return True


class JobRequest(OpenRequest):
    """Submit or Follow: `answer` gets the Job once it has a number, the Job its states."""

    def __init__(
        self, request: messages.Submit | messages.Follow, job: Job, renew: Renew | None = None
    ) -> None:
        super().__init__(request)
        self._job, self._renew = job, renew
        self._present = PresentNumber()

    def on_answer(self, answer: messages.Answer) -> bool:
        match answer:
            case messages.Accepted():
                self._accept(answer.job, answer.durability)
                return False
            case messages.State(state=state):
                if not self.answer.done():
                    self._accept(state.job)
                self._job.advance(state)
                return isinstance(state, Ended)
        return super().on_answer(answer)

    def on_lost(self, error: errors.HetschedError) -> None:
        job = self._job
        if self.answer.done() and job.durability == "durable":
            hint = f"the job continues then, see `hetsched wait {job.id}`"
            error = errors.TryAgain(f"job {job.id} is out of reach: {error}; {hint}")
        elif self.answer.done():
            error = errors.TryAgain(f"job {job.id} is lost: {error}; submit it again")
        self.fail(error)

    def renew(self, numbers: Numbers) -> bool:
        """The next daemon may know the job by its key; if not, it gets another number there.

        Jobs that run after it wait for that number.
        """
        if isinstance(self.request, messages.Submit):
            spec, after = self.request.spec, []
            for earlier in spec.after:
                number = _present(earlier.job, numbers)
                if number is None:
                    return False
                after.append(replace(earlier, job=number))
            spec = replace(spec, after=tuple(after))
            if self._renew is not None:
                spec = self._renew(spec)
            self.request = replace(self.request, spec=spec)
            if self.answer.done():
                self._present.number = None
                numbers[self._job.id] = self._present
        return True

    def fail(self, error: errors.HetschedError) -> None:
        if self.answer.done():
            self._present.number = self._job.id
            self._job.lost(error)
        super().fail(error)

    def _accept(self, ident: int, durability: str = "") -> None:
        self._present.number = ident
        self._job.accepted(ident, durability)
        if not self.answer.done():
            self.answer.set_result(self._job)


def _present(number: int, numbers: Numbers) -> int | None:
    return numbers[number].number if number in numbers else number


class EventFollower(OpenRequest):
    """Receives events. `done`: a Future, done when all jobs have ended."""

    def __init__(self, on_event: OnEvent, jobs: Sequence[int]) -> None:
        numbers = tuple(dict.fromkeys(jobs))
        super().__init__(messages.Events(numbers))
        self.done: Future[None] = self.answer
        self.done.set_running_or_notify_cancel()  # so that nobody cancels it under the thread
        self._on_event = on_event
        self._pending = set(numbers)
        self._is_endless = not numbers

    def on_answer(self, answer: messages.Answer) -> bool:
        if not isinstance(answer, messages.State):
            return super().on_answer(answer)
        state = answer.state
        try:
            self._on_event(answer.sequence, state)
        except Exception:
            log.exception("error in a callback for events of job %d", state.job)
        if isinstance(state, Ended):
            self._pending.discard(state.job)
        if not self._pending and not self._is_endless:
            self.done.set_result(None)
        return self.done.done()

    def renew(self, numbers: Numbers) -> bool:
        """Follow the jobs at the next daemon that haven't ended; it counts anew."""
        present = [_present(job, numbers) for job in self._pending]
        if None in present:
            return False
        self._pending = {job for job in present if job is not None}
        self.request = messages.Events(tuple(sorted(self._pending)))
        return True


class Connection:
    """The session with a daemon, those with the ones after it, and the thread that serves them."""

    def __init__(self, path: Path, timeout: float, reconnect: float) -> None:
        self.timeout = timeout
        self._pid = os.getpid()
        self._path, self._reconnect = path, reconnect
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            # With the present daemon; the connection's thread changes it
            self.session: Session | None = Session(self._context, path, timeout, timeout)
        except BaseException:
            self._context.term()
            os.close(self._wake_fd)
            raise
        # Reentrant: the garbage collector may interrupt its holder and close a client.
        self._lock = threading.RLock()
        self._next_number = itertools.count(1)
        self._open: dict[int, OpenRequest] = {}
        self._unsent: deque[int] = deque()
        self._numbers: Numbers = {}
        self._closed: errors.HetschedError | None = None
        self._lost_error: errors.HetschedError | None = None
        self._thread = threading.Thread(target=self._run, name="hetsched-client", daemon=True)
        self._thread.start()

    # ---- for other threads

    def ask(self, request: OpenRequest, seconds: float | None = None) -> Any:
        """Send a request and return its `answer`, or raise the daemon's error.

        `seconds`: for the answer of the present daemon; default: also wait for the next one.
        """
        if seconds is not None and (self.session is None or self.session.is_lost):
            raise errors.TryAgain("the daemon has stopped")
        if threading.current_thread() is self._thread:
            raise errors.UsageError(f"{type(request.request).__name__.lower()} {FROM_CALLBACK}")
        self.send(request)
        limit = self.timeout if seconds is None else min(seconds, self.timeout)
        answer = request.answer
        try:
            return answer.result(limit)
        except TimeoutError:
            raise errors.TryAgain(f"the daemon hasn't answered for {limit:g} s") from None
        finally:
            del answer, request  # their error refers to this frame and its callers', with arrays

    def send(self, request: OpenRequest) -> None:
        """Send a request, once there is a daemon; its methods get the answers.

        Raises UsageError if it is too large, after `close` and in a forked child.
        """
        check_process(self._pid)
        with self._lock:
            if self._closed is not None:
                raise self._closed
            number, session = next(self._next_number), self.session
            is_sent = (
                session is not None and not self._unsent and session.send(number, request.request)
            )
            self._open[number] = request
            if not is_sent:
                self._unsent.append(number)
            if session is None or not is_sent or session.has_replies():
                self._wake()

    def live_session(self) -> Session:
        """Return the session with the present daemon, or wait for one, but in a callback raise."""
        check_process(self._pid)
        session = self.session
        if (session is None or session.is_lost) and threading.current_thread() is not self._thread:
            self.ask(OpenRequest(messages.Ping(), messages.Pong))  # which the next daemon answers
            session = self.session
        if self._closed is not None:
            raise self._closed
        if session is None or session.is_lost:
            raise self._lost_error or SessionLost("the daemon has stopped")
        return session

    def close(self) -> None:
        """Stop the thread; the Futures of jobs that haven't ended fail. Idempotent."""
        if not self._thread.is_alive() or os.getpid() != self._pid:
            return
        self._end(errors.UsageError("this client is closed; create another one"))
        if threading.current_thread() is not self._thread:
            # Not for ever: Ctrl-C at a bad moment leaves a Future locked, for which it waits.
            self._thread.join(CLOSING_SECONDS)

    def _end(self, error: errors.HetschedError) -> None:
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
                if self.session is not None:
                    self._serve(self.session)
                elif self._open:
                    self._find_daemon()
                else:
                    self._sleep(None)
        except Exception as error:  # a bug: nobody may wait for ever
            log.exception("the client's thread has failed")
            self._end(errors.InternalError(f"a bug in hetsched: {type(error).__name__}: {error}"))
        self._fail_all(self._closed or errors.InternalError("the client's thread has ended"))
        if self.session is not None:
            self.session.close(linger_ms=100)  # a last Cancel may not have been sent yet
        self._context.term()
        with self._lock:
            os.close(self._wake_fd)
            self._wake_fd = -1

    def _sleep(self, seconds: float | None, *fds: int) -> Container[int]:
        """Sleep until another thread wakes this one; return the descriptors that can be read."""
        poll = select.poll()
        for fd in (self._wake_fd, *fds):
            poll.register(fd, select.POLLIN)
        ready = dict(poll.poll(None if seconds is None else max(1, seconds * 1000)))
        if self._wake_fd in ready:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake_fd)
        return ready

    def _serve(self, session: Session) -> None:
        while self._closed is None and not session.is_lost:
            if self._unsent:
                self._send_unsent(session)
            self._read_replies(session)  # after sending, which may consume the event of a reply
            seconds = RESEND_SECONDS if self._unsent else None
            if session.fd in self._sleep(seconds, session.reply_fd, session.fd):
                session.receive_pending()
        # Replies sent before the end are still valid, and may be on their way.
        end = time.monotonic() + LAST_REPLIES_SECONDS
        while self._closed is None:
            self._read_replies(session)
            left = end - time.monotonic()
            if left <= 0 or not self._open:
                break
            self._sleep(left, session.reply_fd)
        if self._closed is not None:
            return
        self._lost_error = session.lost_error()
        with self._lock:
            self.session = None
            session.close()
        if self._open and self._reconnect > 0:
            patience = format_seconds(self._reconnect)
            log.warning("%s; waiting up to %s for the next one", self._lost_error, patience)

    def _read_replies(self, session: Session) -> None:
        """Read all that has come: ZeroMQ's descriptor announces only the first of several."""
        while self._closed is None:
            with self._lock:
                frame = session.receive()
            if frame is None:
                return
            try:
                reply = _decode_reply(frame)
            except errors.ProtocolError as error:
                self._end(error)
                return
            answer, request = reply.answer, self._open.get(reply.number)
            if request is None:
                continue
            if (
                isinstance(answer, messages.Refused)
                and answer.error.code == errors.NotPermitted.code
            ):
                session.receive_pending()
                if session.is_lost:  # ZeroMQ has taken it to the next daemon, without its token
                    continue
            try:
                is_last = request.on_answer(answer)
            except SessionLost:  # the results of a job are gone with the daemon
                continue
            if is_last:
                self._open.pop(reply.number, None)

    def _send_unsent(self, session: Session) -> None:
        """Send waiting requests in their order, up to one that must be tried again."""
        while self._unsent and self._closed is None:
            number = self._unsent[0]
            request = self._open.get(number)
            try:
                if request is not None:
                    if not request.renew(self._numbers):
                        return
                    with self._lock:
                        if not session.send(number, request.request):
                            return
            except errors.HetschedError as error:
                if session.is_lost:
                    return
                if request is not None:
                    del self._open[number]
                    request.on_lost(error)
            with self._lock:
                self._unsent.popleft()

    # ---- the loss of the daemon

    def _find_daemon(self) -> None:
        deadline = time.monotonic() + self._reconnect
        delay = FIRST_DELAY
        while self._closed is None and self._reconnect > 0:
            try:
                session = Session(self._context, self._path, self.timeout, GREETING_SECONDS)
            except (errors.Unavailable, errors.TryAgain):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                # Jitter, so that many clients don't come back at the same moment. A request ends
                # the pause.
                self._sleep(min(delay * random.uniform(0.5, 1.0), left))
                delay = min(2 * delay, MAX_DELAY)
            except errors.HetschedError as error:  # another version, or another user's
                self._give_up(error)
                return
            else:
                with self._lock:
                    self.session = session
                    self._unsent = deque(sorted(self._open))
                return
        if self._closed is None:
            self._give_up()

    def _give_up(self, error: errors.HetschedError | None = None) -> None:
        """Fail all requests: no daemon has come. The next request begins to look again."""
        lost = self._lost_error or errors.TryAgain("the daemon has stopped")
        if error is not None:
            self._lost_error = lost = type(error)(f"{lost}; the next one can't be used: {error}")
        elif self._reconnect > 0:
            lost = errors.TryAgain(f"{lost}; none has come for {format_seconds(self._reconnect)}")
        self._fail_all(lost)

    def _fail_all(self, error: errors.HetschedError) -> None:
        with self._lock:
            requests = list(self._open.values())
            self._open.clear()
            self._unsent.clear()
        for request in requests:
            request.on_lost(error)


class Session:
    """The sockets to one daemon, from its hello to its end.

    The session's stays open after its client as long as arrays on shared memory exist: closing it
    would free their segments, and other clients could write into them.

    Any thread may call any method; those of ZeroMQ's socket, under the heading `requests`, one at
    a time. `timeout`, `greeting_timeout`: seconds for each answer, and for the first one.

    Raises Unavailable, NotPermitted (another user's daemon), TryAgain (no answer) or ProtocolError
    (another version), with the reason.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        path: Path,
        timeout: float,
        greeting_timeout: float,
    ) -> None:
        self._path, self._timeout = path, timeout
        self.lock = threading.RLock()  # For `segments` and the session's socket, but for sending
        self.segments: dict[int, ClientSegment] = {}  # That this client maps
        self._drops: deque[bytes] = deque()
        self.arrays: set[object] = set()  # One for each array that holds a segment's reference
        self._is_closing = False
        self.is_lost = False  # The daemon has closed its end
        self._has_open_request = False
        with contextlib.ExitStack() as opened:  # closed if a later step fails
            self._socket = opened.enter_context(_connect(path))
            welcome = self._greet(greeting_timeout)
            try:
                self._requests = opened.enter_context(context.socket(zmq.DEALER))
                self._requests.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
                self._requests.connect(f"ipc://{welcome.endpoint}")
                self.reply_fd = int(self._requests.getsockopt(zmq.FD))
            except zmq.ZMQError as error:  # no descriptors, above all
                raise errors.TryAgain(
                    f"can't connect to the daemon ({path.parent}): {error}"
                ) from None
            opened.pop_all()
        self.fd = self._socket.fileno()
        self._daemon_pid, self._token = welcome.pid, welcome.token

    def lost_error(self) -> SessionLost:
        return SessionLost(
            f"the daemon (pid {self._daemon_pid}, {self._path.parent}) has stopped;"
            " start it: hetsched serve"
        )

    # ---- requests

    def send(self, number: int, request: messages.Request) -> bool:
        """Send a request; return False if the daemon accepts no more at present.

        Raises UsageError for one that can't be sent, or would end the connection by its length.
        """
        name = type(request).__name__.lower()
        try:
            payload = messages.encode(messages.Envelope(self._token, number, request))
        except (OverflowError, UnicodeEncodeError) as error:
            raise errors.UsageError(f"{name}: {error}") from None
        if len(payload) > messages.MAX_FRAME:
            raise errors.UsageError(
                f"{name}: the request has {len(payload)} bytes, the limit is {messages.MAX_FRAME}"
                f" ({format_bytes(messages.MAX_FRAME)}); pass large data as arrays"
            )
        try:
            self._requests.send(payload, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self) -> bytes | None:
        try:
            return self._requests.recv(zmq.NOBLOCK)
        except zmq.Again:
            return None

    def has_replies(self) -> bool:
        """Whether replies have come. To send may consume the event that announces them."""
        return bool(int(self._requests.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    def close(self, linger_ms: int = 0) -> None:
        """Close the sockets, the session's once no array needs it any more."""
        self._requests.close(linger=linger_ms)
        self._is_closing = True
        if self.is_lost or not self.arrays:
            self._socket.close()

    # ---- shared memory, and the daemon's life

    def request(
        self, message: messages.SessionRequest, fds: Sequence[int] = ()
    ) -> tuple[messages.SegmentFd, int | None]:
        """Request a segment, with copies of `fds`; return the answer and its fd, the caller's."""
        with self.lock:
            if self._is_closing:
                raise errors.UsageError("this client is closed; create another one")
            if self.is_lost:
                raise self.lost_error()
            if self._has_open_request:  # its answer may still come, and be taken for this one's
                raise errors.TryAgain(
                    "an earlier request was never answered; create another client"
                )
            try:  # without a free descriptor the kernel would drop the one that comes with it
                os.close(os.dup(self.fd))
            except OSError as error:
                raise errors.from_record(errors.to_record(error)) from None
            self._has_open_request = True  # still set after an interrupt or a timeout
            answer, received = self._ask(message, self._timeout, fds)
            self._has_open_request = False
        if isinstance(answer, messages.SegmentFd) and len(received) == int(answer.is_new):
            return answer, received[0] if received else None
        sockets.close_all(received)
        if isinstance(answer, messages.Refused):
            raise errors.from_record(answer.error)
        if answer is None:
            raise self.lost_error()
        raise errors.ProtocolError(f"unexpected answer {type(answer).__name__} to {message!r}")

    def knows(self, segment: Segment) -> bool:
        return not self.is_lost and self.segments.get(segment.id) is segment

    def receive_pending(self) -> None:
        """Handle the daemon's notifications; set `is_lost` at the end of file."""
        with self.lock:
            while not self.is_lost and sockets.is_readable(self._socket, 0):
                self._receive()

    def drop(self, segment: int, array: object = None) -> None:
        """Drop a reference to a segment, which may be an array's. Takes no lock, never blocks."""
        self.arrays.discard(array)
        self._drops.append(messages.encode(messages.Drop(segment)))
        self._flush()
        if self._is_closing and not self.arrays:
            self._socket.close()

    def _flush(self) -> None:
        """Send messages that were held back; the socket's buffer holds hundreds."""
        while self._drops:
            try:
                payload = self._drops.popleft()
            except IndexError:  # another thread has sent it
                return
            try:
                self._socket.send(payload, sockets.NOW)
            except BlockingIOError:
                self._drops.appendleft(payload)
                return
            except OSError:  # closed, also in a forked child; or the daemon has ended
                return

    def _greet(self, timeout: float) -> messages.Welcome:
        answer, fds = self._ask(
            messages.Hello(messages.PROTOCOL, __version__, os.getpid()), timeout
        )
        sockets.close_all(fds)
        if answer is None:
            raise errors.Unavailable(
                f"the daemon at {self._path} closed the connection; is it stopping?"
            )
        if isinstance(answer, messages.Refused):
            raise errors.from_record(answer.error)
        if not isinstance(answer, messages.Welcome) or answer.protocol != messages.PROTOCOL:
            raise errors.ProtocolError(
                f"{self._path}: the daemon's answer isn't protocol {messages.PROTOCOL} of hetsched"
                f" {__version__}; install the same version for both"
            )
        return answer

    def _ask(
        self, message: messages.SessionRequest, timeout: float, attached: Sequence[int] = ()
    ) -> tuple[messages.SessionAnswer | None, list[int]]:
        """Return the answer and its descriptors; None if the daemon has ended."""
        self._flush()
        try:
            sockets.send_message(self._socket, messages.encode(message), attached)
        except OSError:  # the daemon may have refused the session before it closed it
            self.is_lost = not sockets.is_readable(self._socket, 0)
        while not self.is_lost:
            if not sockets.is_readable(self._socket, timeout):
                raise errors.TryAgain(
                    f"the daemon ({self._path.parent}) hasn't answered for {timeout:g} s"
                )
            answer, fds = self._receive()
            if answer is not None:
                return answer, fds
        return None, []

    def _receive(self) -> tuple[messages.SessionAnswer | None, list[int]]:
        """Return an answer; None for a notification and at the end of file."""
        try:
            payload, fds = sockets.receive_message(self._socket, MAX_ANSWER)
        except OSError:
            payload, fds = b"", []
        if not payload:
            self.is_lost = True
            return None, fds
        answer = _decode_answer(payload)
        if isinstance(answer, messages.Discarded):
            segment = self.segments.pop(answer.segment, None)
            if segment is not None:
                segment.close()
            return None, fds
        return answer, fds


_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close a forked child's copies: the sockets' end tells the daemon that a client has ended."""
    for connection in list(_sockets):
        connection.close()


os.register_at_fork(after_in_child=_close_in_child)


def _connect(path: Path) -> socket.socket:
    try:
        connection = sockets.connect(path)
    except PermissionError as error:
        raise errors.NotPermitted(f"daemon at {path}: {sockets.connect_failure(error)}") from None
    except OSError as error:
        raise errors.Unavailable(
            f"no daemon at {path} ({sockets.connect_failure(error)}); start it: hetsched serve"
        ) from None
    uid = sockets.socket_peer(connection).uid
    if uid not in (os.geteuid(), 0):  # it would get the caller's arrays and paths
        connection.close()
        raise errors.NotPermitted(
            f"daemon at {path}: it belongs to user {uid}; only your own (user {os.geteuid()})"
            " or root's is trusted"
        )
    _sockets.add(connection)
    return connection
