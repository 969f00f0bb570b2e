"""The daemon's ZeroMQ socket: who may connect, frames in, replies out, a bounded backlog.

ZAP (ZeroMQ RFC 27): libzmq asks before it reads a message of a new connection. It fails closed: a
handler that is closed or slow means a refused connection. So does a process without a session,
since libzmq keeps all frames of a message until the last one has come, which no option limits.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import zmq
from msgspec.structs import replace
from prometheus_client.metrics_core import Metric

from hetsched.daemon.metrics import counter, gauge
from hetsched.daemon.sessions import ROOT_UID
from hetsched.errors import ConfigError, DataError, to_record
from hetsched.job import Done, Failed, JobReport
from hetsched.transport.codec import encode
from hetsched.transport.loop import Loop
from hetsched.transport.messages import MAX_FRAME, Refused, Reply, State
from hetsched.transport.sockets import NOBODY, Peer, address_peer, remove_socket

log = logging.getLogger(__name__)

MAX_SLOW_CLIENTS = 8
"""Clients whose unsent replies may reach their limit at the same time."""
SEND_QUEUE = 32
"""Replies to one client that libzmq may hold; it counts messages, and each may have MAX_FRAME
bytes. The others wait in the backlog, where bytes count."""
RECEIVE_QUEUE = 64
"""Requests of one client that libzmq may hold, of at most MAX_FRAME bytes each."""
RETRY_SECONDS = (0.001, 0.02)
"""Seconds until sending to a client that doesn't read is retried: at first, and at most."""
LAST_REPLIES_SECONDS = 2.0
"""Seconds that clients have to read their last replies, before the socket is closed."""
MAX_FRAMES_PER_TURN = 64
"""Frames received before other handlers on the loop run."""
MAX_TURN_SECONDS = 0.01
"""The same in time: large requests take milliseconds each."""
ZAP_ENDPOINT = "inproc://zeromq.zap.01"
ZAP_DOMAIN = b"hetsched"
ZAP_VERSION = b"1.0"
_GRANTED, _DENIED = (b"200", b"OK"), (b"400", b"not permitted")
_MIN_ZAP_FRAMES = 8
"""Of a request: peer's return address, delimiter, version, request id, domain, address, routing
id, mechanism; then credentials, which the NULL mechanism hasn't."""
LOG_INTERVAL = 10.0
"""Seconds between two lines about one kind of event."""
MESSAGE_OVERHEAD = 128
"""Bytes added to each reply for the objects that hold it: tiny replies count too. Rounded up."""
_MORE_FOLLOWS = int(zmq.NOBLOCK | zmq.SNDMORE)  # each operation on flags takes several calls


class LogLimiter:
    """Decides which events of one kind are logged: the first, then one per LOG_INTERVAL.

    Attributes
    ----------
    total : int
        All events so far.
    """

    def __init__(self) -> None:
        self.total = 0
        self._next = float("-inf")
        self._unlogged = 0

    def admit(self, now: float) -> str | None:
        """Return what to append to the line, such as " (3 more before)"; None: don't log."""
        self.total += 1
        if now < self._next:
            self._unlogged += 1
            return None
        self._next = now + LOG_INTERVAL
        unlogged, self._unlogged = self._unlogged, 0
        return f" ({unlogged} more before)" if unlogged else ""


class ZapHandler:
    """Answers libzmq's questions for one context. Bind it before the sockets that it protects.

    Parameters
    ----------
    admits : callable
        admits(peer): whether its connection may be used.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        loop: Loop,
        admits: Callable[[Peer], bool],
    ) -> None:
        self._loop = loop
        self._admits = admits
        self._socket = context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(ZAP_ENDPOINT)
        loop.add_reader(self._socket, self._receive)

    def close(self) -> None:
        """Stop answering: from now on every connection is refused."""
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _receive(self) -> None:
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
                self._socket.send_multipart(decide_zap(frames, self._admits), zmq.NOBLOCK)
            except zmq.Again:
                return


def decide_zap(frames: Sequence[bytes], admits: Callable[[Peer], bool]) -> list[bytes]:
    """Return the reply to one request; one that isn't understood is denied."""
    return_address = list(frames[:1])
    if len(frames) < _MIN_ZAP_FRAMES or frames[2] != ZAP_VERSION:
        return [*return_address, b"", ZAP_VERSION, b"", *_DENIED, b"", b""]
    _, _, _, request_id, domain, address, *_ = frames
    peer = address_peer(address.decode("ascii", "replace"))
    is_admitted = domain == ZAP_DOMAIN and admits(peer)
    if not is_admitted:
        log.warning("refused a connection of uid %d (pid %d)", peer.uid, peer.pid)
    status = _GRANTED if is_admitted else _DENIED
    return [*return_address, b"", ZAP_VERSION, request_id, *status, str(peer.uid).encode(), b""]


@dataclass
class _Queue:
    payloads: deque[bytes] = field(default_factory=deque)
    nbytes: int = 0


class ReplyBacklog:
    """The unsent replies of each client, oldest first.

    Parameters
    ----------
    client_limit, total_limit : int, bytes
    """

    def __init__(self, client_limit: int, total_limit: int) -> None:
        self._client_limit = client_limit
        self._total_limit = total_limit
        self._queues: dict[bytes, _Queue] = {}
        self.nbytes = 0

    def __contains__(self, identity: bytes) -> bool:
        return identity in self._queues

    def __len__(self) -> int:
        """Return the number of replies that wait."""
        return sum(len(queue.payloads) for queue in self._queues.values())

    def clients(self) -> list[bytes]:
        """Return the clients that replies wait for."""
        return list(self._queues)

    def longest(self) -> int:
        """Return the number of replies that wait for the slowest client."""
        return max((len(queue.payloads) for queue in self._queues.values()), default=0)

    def add(self, identity: bytes, payload: bytes) -> list[bytes]:
        """Append a reply; return the clients that exceed a limit, which `forget` should drop.

        Over the total limit these are the clients with the most bytes.
        """
        queue = self._queues.setdefault(identity, _Queue())
        size = len(payload) + MESSAGE_OVERHEAD
        queue.payloads.append(payload)
        queue.nbytes += size
        self.nbytes += size
        if queue.nbytes > self._client_limit:
            return [identity]
        return self._largest(self.nbytes - self._total_limit)

    def first(self, identity: bytes) -> bytes | None:
        """Return the oldest reply of a client."""
        queue = self._queues.get(identity)
        return queue.payloads[0] if queue else None

    def drop_first(self, identity: bytes) -> None:
        """Remove the oldest reply of a client, and the client after its last one."""
        queue = self._queues[identity]
        size = len(queue.payloads.popleft()) + MESSAGE_OVERHEAD
        queue.nbytes -= size
        self.nbytes -= size
        if not queue.payloads:
            del self._queues[identity]

    def forget(self, identity: bytes) -> int:
        """Drop all replies of a client; return their number."""
        queue = self._queues.pop(identity, None)
        if queue is None:
            return 0
        self.nbytes -= queue.nbytes
        return len(queue.payloads)

    def _largest(self, excess: int) -> list[bytes]:
        """Return the clients with the most bytes that together free `excess`."""
        chosen = []
        for identity in sorted(self._queues, key=lambda i: -self._queues[i].nbytes):
            if excess <= 0:
                break
            chosen.append(identity)
            excess -= self._queues[identity].nbytes
        return chosen


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
        self._dropped_messages = LogLimiter()
        self._dropped_events = 0
        self._stalled: dict[bytes, float] = {}
        self._disconnected_clients = 0

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
            (zmq.ZAP_DOMAIN, ZAP_DOMAIN),
            (zmq.ZAP_ENFORCE_DOMAIN, 1),  # else no handler would mean no check
        ):
            self._socket.set(option, value)
        for uid in {os.getuid(), ROOT_UID}:  # others are refused before their greeting is read
            self._socket.set(zmq.IPC_FILTER_UID, uid)
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
        """Send now or, unless `droppable`, as soon as the client reads, if it still exists."""
        if droppable and (identity in self._backlog or self._is_stalled(identity)):
            self._dropped_events += 1
            return
        payload = encode_bounded(reply)
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

    def forget(self, identity: bytes) -> None:
        """Note that a client has ended."""
        self._stalled.pop(identity, None)

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
                "rejected_frames",
                "Messages of several frames, which were dropped.",
                self._dropped_messages.total,
            ),
            counter(
                "dropped_events",
                "Events not sent to clients that didn't read.",
                self._dropped_events,
            ),
            counter(
                "disconnected_clients",
                "Clients disconnected because they didn't read.",
                self._disconnected_clients,
            ),
            gauge("unread_replies_bytes", "Unsent replies.", self.backlog_bytes()),
        ]

    def close(self) -> None:
        """Close the socket, after a short wait for the last replies; remove it if it is ours."""
        self._loop.remove_reader(self._socket)
        deadline = time.monotonic() + LAST_REPLIES_SECONDS
        while (unread := self._flush()) and time.monotonic() < deadline:
            time.sleep(RETRY_SECONDS[0])
        if unread:
            log.warning("stopping with %d replies that clients didn't read", unread)
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
                self._on_frame(*message)
            if time.monotonic() > end:
                return

    def _next_message(self) -> tuple[bytes, bytes, Peer] | None:
        """Return a client, its frame and its process; None for a message of several frames."""
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
        try:
            self._socket.send(identity, _MORE_FOLLOWS)
            self._socket.send(payload, zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
        finally:
            self._loop.recheck(self._socket)  # a send that failed may have consumed the event, too
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
