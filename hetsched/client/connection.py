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
import random
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import zmq
from msgspec.structs import replace

from hetsched import errors
from hetsched.client.job import FROM_CALLBACK, Job, SessionLost, check_process
from hetsched.client.session import Session
from hetsched.job import JobSpec, JobState, ended
from hetsched.transport import messages
from hetsched.units import format_seconds

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
Numbers = dict[int, int | None]
"""A job's number at the last daemon -> that at this one, which may be another; None: the job has
been submitted again, but hasn't been accepted yet."""

_decode: messages.Decoder[messages.Reply] = messages.Decoder(messages.Reply)


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
            self.answer.set_exception(errors.from_record(answer.error))
        else:
            self.answer.set_result(answer)
        return True

    def on_lost(self, error: errors.HetschedError) -> None:
        """Handle the loss of the connection: there will be no more answers."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def renew(self, numbers: Numbers) -> bool:
        """Make `request` one for the next daemon; return False if that must wait."""
        return True


class JobRequest(OpenRequest):
    """Submit or Follow: `answer` gets the Job once it has a number, the Job its states."""

    def __init__(
        self,
        request: messages.Submit | messages.Follow,
        job: Job,
        renew: Renew | None = None,
    ) -> None:
        super().__init__(request)
        self._job, self._renew = job, renew
        self._numbers: Numbers = {}

    def on_answer(self, answer: messages.Answer) -> bool:
        match answer:
            case messages.Accepted():
                self._accept(answer.job, answer.durability)
                return False
            case messages.State(state=state):
                if not self.answer.done():
                    self._accept(state.job)
                self._job.advance(state)
                return ended(state)
            case messages.Refused(error=record):
                self._fail(errors.from_record(record))
            case _:
                self._fail(errors.ProtocolError(f"unexpected answer {type(answer).__name__}"))
        return True

    def on_lost(self, error: errors.HetschedError) -> None:
        job = self._job
        if self.answer.done() and job.durability == "durable":
            hint = f"the job continues then, see `hetsched wait {job.id}`"
            error = errors.TryAgain(f"job {job.id} is out of reach: {error}; {hint}")
        elif self.answer.done():
            error = errors.TryAgain(f"job {job.id} is lost: {error}; submit it again")
        self._fail(error)

    def renew(self, numbers: Numbers) -> bool:
        """The next daemon may know the job by its key; if not, it gets another number there.

        Jobs that run after it wait for that number.
        """
        if isinstance(self.request, messages.Submit):
            spec, after = self.request.spec, []
            for earlier in spec.after:
                number = numbers.get(earlier.job, earlier.job)
                if number is None:
                    return False
                after.append(replace(earlier, job=number))
            spec = replace(spec, after=tuple(after))
            if self._renew is not None:
                spec = self._renew(spec)
            self.request = replace(self.request, spec=spec)
            if self.answer.done():
                self._numbers = numbers
                numbers[self._job.id] = None
        return True

    def _fail(self, error: errors.HetschedError) -> None:
        if self.answer.done():
            self._numbers.pop(self._job.id, None)
            self._job.lost(error)
        else:
            self.answer.set_exception(error)

    def _accept(self, ident: int, durability: str = "") -> None:
        job = self._job
        if self.answer.done():  # by the next daemon
            self._numbers.pop(job.id, None)
            if job.id != ident:
                self._numbers[job.id] = ident
        job.accepted(ident, durability)
        if not self.answer.done():
            self.answer.set_result(job)


class EventFollower(OpenRequest):
    """Receives events, on the connection's thread.

    `done`: a Future, done when all jobs have ended; its exception is the daemon's error.
    """

    def __init__(self, on_event: OnEvent, jobs: Sequence[int]) -> None:
        numbers = tuple(dict.fromkeys(jobs))
        super().__init__(messages.Events(numbers))
        self.done: Future[None] = self.answer
        self.done.set_running_or_notify_cancel()  # so that nobody cancels it under the thread
        self._on_event = on_event
        self._pending = set(numbers)
        self._is_endless = not numbers

    def on_answer(self, answer: messages.Answer) -> bool:
        match answer:
            case messages.State(state=state, sequence=sequence):
                self._advance(sequence, state)
            case messages.Refused(error=error):
                self.done.set_exception(errors.from_record(error))
            case _:
                self.on_lost(errors.ProtocolError(f"unexpected answer {type(answer).__name__}"))
        return self.done.done()

    def renew(self, numbers: Numbers) -> bool:
        """Follow the jobs at the next daemon that haven't ended; it counts anew."""
        present = [numbers.get(job, job) for job in self._pending]
        if None in present:
            return False
        self._pending = {job for job in present if job is not None}
        self.request = messages.Events(tuple(sorted(self._pending)))
        return True

    def _advance(self, sequence: int, state: JobState) -> None:
        try:
            self._on_event(sequence, state)
        except Exception:
            log.exception("error in a callback for events of job %d", state.job)
        if ended(state):
            self._pending.discard(state.job)
        if not self._pending and not self._is_endless:
            self.done.set_result(None)


class Connection:
    """The session with a daemon, those with the ones after it, and the thread that serves them.

    `timeout`: for each answer; `reconnect`: for reaching the next daemon once one has stopped.
    Raises as `Session`.
    """

    def __init__(self, path: Path, timeout: float, reconnect: float) -> None:
        self.timeout = timeout
        self._pid = os.getpid()
        self._path, self._reconnect = path, reconnect
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            self.session: Session | None = Session(self._context, path, timeout, timeout)
            """With the present daemon; the connection's thread changes it."""
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

    def wait(self, request: OpenRequest, seconds: float | None = None) -> Any:
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
        """Return the session with the present daemon.

        If there is none, wait for one, but not on the connection's own thread: TryAgain.
        """
        check_process(self._pid)
        session = self.session
        if (session is None or session.is_lost) and threading.current_thread() is not self._thread:
            self.wait(OpenRequest(messages.Ping()))  # which the next daemon answers
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
            self._thread.join()

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
        """Wait until another thread wakes this one, time is over or there is something to read.

        Return the descriptors that can be read.
        """
        poll = select.poll()
        for fd in (self._wake_fd, *fds):
            poll.register(fd, select.POLLIN)
        ready = dict(poll.poll(None if seconds is None else max(1, seconds * 1000)))
        if self._wake_fd in ready:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake_fd)
        return ready

    def _serve(self, session: Session) -> None:
        """Send and receive until the daemon has stopped."""
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
                self._detach(session)
                return
            self._sleep(left, session.reply_fd)

    def _read_replies(self, session: Session) -> None:
        """Read all that has come: ZeroMQ's descriptor announces only the first of several."""
        while self._closed is None:
            with self._lock:
                frame = session.receive()
            if frame is None:
                return
            try:
                reply = _decode(frame)
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

    def _detach(self, session: Session) -> None:
        self._lost_error = session.lost_error()
        with self._lock:
            self.session = None
            session.close()
        if self._open and self._reconnect > 0:
            seconds = format_seconds(self._reconnect)
            log.warning("%s; waiting up to %s for the next one", self._lost_error, seconds)

    def _find_daemon(self) -> None:
        """Look for a daemon with growing delays until there is one, or time is over."""
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
                for job in [job for job, present in self._numbers.items() if present is None]:
                    del self._numbers[job]
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
