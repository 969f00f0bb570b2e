"""The daemon's ZeroMQ socket: frames in, replies out, a bounded backlog for slow clients."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import zmq
from msgspec.structs import replace

from hetsched.daemon.access.zap import DOMAIN
from hetsched.daemon.limits.connection_guard import ConnectionGuard
from hetsched.daemon.limits.log_limiter import LogLimiter
from hetsched.daemon.limits.reply_backlog import ReplyBacklog
from hetsched.daemon.requests import ROOT_UID
from hetsched.daemon.sockets.request_sockets import RequestSockets
from hetsched.errors import ConfigError, DataError, to_record
from hetsched.job import Done, Failed, JobReport
from hetsched.transport.codec import encode
from hetsched.transport.inspection.metric_records import Metric, counter, gauge
from hetsched.transport.large_messages import MAX_INLINE
from hetsched.transport.loop import Loop
from hetsched.transport.messages import MAX_FRAME, Refused, Reply, State
from hetsched.transport.sockets import NOBODY, Peer, address_peer, remove_socket

log = logging.getLogger(__name__)

MAX_SLOW_CLIENTS = 8
"""Clients whose unsent replies may reach their limit at the same time. Arbitrary."""
SEND_QUEUE = 32
"""Replies to one client that libzmq may hold; it counts messages, and each may have MAX_FRAME
bytes. The others wait in the backlog, where bytes count."""
RECEIVE_QUEUE = 64
"""Requests of one client that libzmq may hold, of at most MAX_FRAME bytes each."""
RETRY_SECONDS = (0.001, 0.02)
"""Seconds until sending to a client that doesn't read is retried: at first, and at most."""
LAST_REPLIES_SECONDS = 2.0
"""Seconds that clients have to read their last replies, before the socket is closed. Arbitrary."""
MAX_FRAMES_PER_TURN = 64
"""Frames received before other handlers on the loop run. Arbitrary."""
MAX_TURN_SECONDS = 0.01
"""The same in time: large requests take milliseconds each. Arbitrary."""
MAX_HELD_REPLIES = 64
"""Replies that wait for the end of the round: small ones, 4 MB at most. Arbitrary."""
_MORE_FOLLOWS = int(zmq.NOBLOCK | zmq.SNDMORE)  # each operation on flags takes several calls


class Router:
    """A ROUTER socket that never blocks, with a backlog bounded in bytes.

    A ZapHandler for the same context must exist: without one every connection is refused.

    Parameters
    ----------
    on_frame : callable
        on_frame(identity, frame, peer) for every message of one frame; others are dropped.
    on_overflow : callable
        on_overflow(identity): this client doesn't read, so its replies were dropped.
    max_backlog : int, bytes
        Of unsent replies to one client; beyond, it is disconnected.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        loop: Loop,
        on_frame: Callable[[bytes, bytes, Peer], None],
        on_overflow: Callable[[bytes], None],
        max_backlog: int,
    ) -> None:
        self._loop = loop
        self._on_frame = on_frame
        self._on_overflow = on_overflow
        self._socket = context.socket(zmq.ROUTER)
        self._path: Path | None = None
        self._backlog = ReplyBacklog(max_backlog, MAX_SLOW_CLIENTS * max_backlog)
        self._retrying: set[bytes] = set()
        self._guard: ConnectionGuard | None = None
        self._dropped_messages = LogLimiter()
        self._dropped_events = 0
        self._stalled: dict[bytes, float] = {}
        self.sockets = RequestSockets(loop, on_frame, on_overflow)
        self._disconnected_clients = 0
        self._held: deque[tuple[bytes, bytes, bool]] = deque()
        self._is_holding = False

    def bind(self, path: Path, listening: int | None = None) -> None:
        """Listen at `path` (0600), or on the descriptor `listening`, already bound to it.

        libzmq owns the descriptor from then on. Without one it replaces what is at `path`: hold
        the lock first.

        Raises
        ------
        ConfigError
            The path isn't a socket, or can't be bound.
        """
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.MAXMSGSIZE, MAX_FRAME),
            (zmq.ROUTER_MANDATORY, 1),  # else replies to a slow client are silently dropped
            (zmq.RCVHWM, RECEIVE_QUEUE),
            (zmq.SNDHWM, SEND_QUEUE),
            (zmq.HANDSHAKE_IVL, 2000),
            (zmq.ZAP_DOMAIN, DOMAIN),
            (zmq.ZAP_ENFORCE_DOMAIN, 1),  # else no handler would mean no check
        ):
            self._socket.set(option, value)
        for uid in {os.getuid(), ROOT_UID}:  # others are refused before their greeting is read
            self._socket.set(zmq.IPC_FILTER_UID, uid)
        self._guard = ConnectionGuard(self._loop, self._socket)
        if listening is not None:
            self._socket.set(zmq.USE_FD, listening)
        else:
            remove_socket(path)
            self._path = path
        mask = os.umask(0o177)
        try:
            self._socket.bind(f"ipc://{path}")
        except zmq.ZMQError as error:
            raise ConfigError(f"control socket {path}: {error.strerror}") from None
        finally:
            os.umask(mask)
        self._loop.add_reader(self._socket, self._receive)

    def send(self, identity: bytes, reply: Reply, droppable: bool = False) -> None:
        """Send now or, unless `droppable`, as soon as the client reads, if it still exists.

        Inside `holding`, and after a reply to the same client that was held: at the end of the
        loop's round.
        """
        if droppable and (identity in self._backlog or self._is_stalled(identity)):
            self._dropped_events += 1
            return
        payload = encode_bounded(reply)
        if not (self._is_holding or any(held[0] == identity for held in self._held)):
            self._deliver(identity, payload, droppable)
            return
        if not self._held:
            self._loop.call_last(self._release)
        self._held.append((identity, payload, droppable))
        if len(payload) > MAX_INLINE or len(self._held) >= MAX_HELD_REPLIES:
            self._release()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Hold replies back until the loop's round ends, when devices have got their commands.

        A reply wakes its client, on this thread's core if the others are busy; a job that starts
        here would wait for that.
        """
        self._is_holding = True
        try:
            yield
        finally:
            self._is_holding = False

    def _release(self) -> None:
        """Send the replies held back; what is left after an error follows in the next round."""
        try:
            while self._held:
                self._deliver(*self._held.popleft())
        finally:
            if self._held:
                self._loop.call_last(self._release)

    def _deliver(self, identity: bytes, payload: bytes, droppable: bool) -> None:
        if identity not in self._backlog and self._try_send(identity, payload):
            return
        if droppable:
            self._dropped_events += 1
            self._stalled[identity] = time.monotonic() + RETRY_SECONDS[1]
            return
        if identity not in self._retrying:
            self._retrying.add(identity)
            self._retry_later(identity, RETRY_SECONDS[0])
        for client in self._backlog.add(identity, payload):
            self._drop_client(client)

    def _is_stalled(self, identity: bytes) -> bool:
        """Whether a client has just not read: its events aren't even encoded for a while."""
        until = self._stalled.get(identity)
        if until is None:
            return False
        if time.monotonic() < until:
            return True
        del self._stalled[identity]
        return False

    def forget(self, identities: Iterable[bytes]) -> None:
        """Note that a client has ended."""
        for identity in identities:
            self._stalled.pop(identity, None)
            self.sockets.close(identity)

    def backlog(self) -> int:
        """Count the replies that wait for the slowest client."""
        return self._backlog.longest()

    def backlog_bytes(self) -> int:
        """Return the bytes of all replies that wait."""
        return self._backlog.nbytes

    def metrics(self) -> list[Metric]:
        """Return what was dropped, and what waits."""
        return [
            counter(
                "hetsched_rejected_frames",
                "Messages of several frames, which were dropped.",
                self._dropped_messages.total,
            ),
            counter(
                "hetsched_dropped_events",
                "Events not sent to clients that didn't read.",
                self._dropped_events,
            ),
            counter(
                "hetsched_disconnected_clients",
                "Clients disconnected because they didn't read.",
                self._disconnected_clients,
            ),
            gauge("hetsched_unread_replies_bytes", "Unsent replies.", self.backlog_bytes()),
        ]

    def close(self) -> None:
        """Close the socket, after a short wait for the last replies; remove it if it is ours."""
        self._loop.remove_reader(self._socket)
        self._release()
        deadline = time.monotonic() + LAST_REPLIES_SECONDS
        while (unread := self._flush()) and time.monotonic() < deadline:
            time.sleep(RETRY_SECONDS[0])
        if unread:
            log.warning("stopping with %d replies that clients didn't read", unread)
        self.sockets.close_all()
        if self._guard is not None:
            self._guard.close()
        self._socket.close(linger=int(LAST_REPLIES_SECONDS * 1000))
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _receive(self) -> None:
        end = time.monotonic() + MAX_TURN_SECONDS
        for _ in range(MAX_FRAMES_PER_TURN):
            try:
                message = self._next_message()
            except zmq.Again:
                return
            if message is not None:
                if self._guard is not None:
                    self._guard.note_message(message[2])
                self._on_frame(*message)
            if time.monotonic() > end:
                return

    def _next_message(self) -> tuple[bytes, bytes, Peer] | None:
        """Return a client, its frame and its process; None for a message of several frames.

        libzmq has all frames of a message in memory by now; only one is kept here.
        """
        identity = self._socket.recv(zmq.NOBLOCK)
        frame = self._socket.recv(zmq.NOBLOCK, copy=False)
        count, last = 1, frame
        while last.more:
            last = self._socket.recv(zmq.NOBLOCK, copy=False)
            count += 1
        if count > 1:
            self._log_dropped(f"dropped a message of {count} frames")
            return None
        return identity, frame.bytes, _frame_peer(frame)

    def _log_dropped(self, text: str) -> None:
        suffix = self._dropped_messages.admit(time.monotonic())
        if suffix is not None:
            log.warning("%s%s", text, suffix)

    def _try_send(self, identity: bytes, payload: bytes) -> bool:
        """Return whether the message needs no retry: it was sent, or its client has ended."""
        if identity in self.sockets:
            return self.sockets.try_send(identity, payload)
        try:
            self._socket.send(identity, _MORE_FOLLOWS)
            self._socket.send(payload, zmq.NOBLOCK)
            self._loop.recheck(self._socket)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
        return True

    def _retry_later(self, identity: bytes, seconds: float) -> None:
        self._loop.call_later(seconds, functools.partial(self._retry, identity, seconds))

    def _retry(self, identity: bytes, waited: float) -> None:
        has_sent = self._send_waiting(identity)
        if identity in self._backlog:
            wait = RETRY_SECONDS[0] if has_sent else min(2 * waited, RETRY_SECONDS[1])
            self._retry_later(identity, wait)
        else:
            self._retrying.discard(identity)

    def _send_waiting(self, identity: bytes) -> bool:
        """Send what a client's queue in libzmq takes; return whether that was anything."""
        has_sent = False
        while (payload := self._backlog.first(identity)) is not None:
            if not self._try_send(identity, payload):
                break
            has_sent = True
            self._backlog.drop_first(identity)
        return has_sent

    def _flush(self) -> int:
        """Try to send all that waits; return the number of replies that still do."""
        for identity in self._backlog.clients():
            self._send_waiting(identity)
        return len(self._backlog)

    def _drop_client(self, identity: bytes) -> None:
        count = self._backlog.forget(identity)
        self._disconnected_clients += 1
        log.warning("disconnected a client that doesn't read: dropped %d replies to it", count)
        self._on_overflow(identity)


def _frame_peer(frame: zmq.Frame) -> Peer:
    try:
        address = frame.get("Peer-Address")
    except zmq.ZMQError:  # the transport has no such property
        return NOBODY
    return address_peer(str(address))


def encode_bounded(reply: Reply) -> bytes:
    """Encode `reply` in at most MAX_FRAME bytes.

    The report of a job loses its lists of chunks, then its devices, parameters and notes. An
    answer that is still too long becomes an error: the client would drop the connection.
    """
    payload = encode(reply)
    if len(payload) <= MAX_FRAME:
        return payload
    answer = reply.answer
    if isinstance(answer, State) and isinstance(answer.state, Done | Failed):
        for report in _shorter_reports(answer.state.report):
            state = replace(answer.state, report=report)
            shorter = encode(replace(reply, answer=State(state)))
            if len(shorter) <= MAX_FRAME:
                return shorter
    error = DataError(f"the answer has {len(payload)} bytes, the limit is {MAX_FRAME}")
    return encode(Reply(reply.number, Refused(to_record(error))))


def _shorter_reports(report: JobReport) -> Iterator[JobReport]:
    devices = tuple(replace(device, chunks=()) for device in report.devices)
    yield replace(report, devices=devices)
    note = "left out here: devices, parameters and notes, which are too long for a message"
    yield replace(report, devices=(), params={}, notes=(note,))
