"""The daemon's ZeroMQ socket: who may connect, frames in, replies out, a bounded backlog.

ZAP (ZeroMQ RFC 27): libzmq asks before it reads a message of a new connection, and refuses one
without an answer. Processes without a session are refused, since libzmq keeps all frames of a
message until the last one has come, which no option limits.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import msgspec
import zmq
from msgspec.structs import replace

from hetsched import errors
from hetsched.daemon.requests import Requests
from hetsched.daemon.sessions import ROOT_UID, LimitedLog
from hetsched.job import Ended
from hetsched.transport import messages, sockets
from hetsched.transport.loop import Loop

log = logging.getLogger(__name__)

MAX_SLOW_CLIENTS = 8
"""Clients whose unsent replies may reach their limit at the same time."""
SEND_QUEUE = 32
"""Replies to one client that libzmq may hold; it counts messages, and each may have MAX_FRAME
bytes. The others wait in the backlog, where bytes count."""
RECEIVE_QUEUE = 64
"""Requests of one client that libzmq may hold, of at most MAX_FRAME bytes each."""
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.001, 0.02
"""Seconds until sending to clients that don't read is retried: at first, and at most."""
LAST_REPLIES_SECONDS = 2.0
"""Seconds that clients have to read their last replies, before the socket is closed."""
MAX_TURN_SECONDS = 0.01
"""For requests, before other handlers on the loop run: large ones take milliseconds each."""
ZAP_ENDPOINT = "inproc://zeromq.zap.01"
MESSAGE_OVERHEAD = 128
"""Bytes added to each reply for the objects that hold it: tiny replies count too."""
_MORE_FOLLOWS = int(zmq.NOBLOCK | zmq.SNDMORE)  # each operation on flags takes several calls


@dataclass
class _Unsent:
    """Replies that wait until their client reads, oldest first. `nbytes`: overheads included."""

    payloads: deque[bytes] = field(default_factory=deque)
    nbytes: int = 0


class Router:
    """A ROUTER socket that never blocks.

    A client with more than `max_unsent` bytes of unsent replies is disconnected.
    """

    def __init__(
        self,
        requests: Requests,
        loop: Loop,
        context: zmq.Context[zmq.Socket[bytes]],
        max_unsent: int,
    ) -> None:
        self._requests, self._sessions, self._loop = requests, requests.sessions, loop
        self._zap = context.socket(zmq.ROUTER)
        self._zap.bind(ZAP_ENDPOINT)  # before the socket that it protects
        loop.add_reader(self._zap, self._on_connection)
        self._socket = context.socket(zmq.ROUTER)
        self._decode: messages.Decoder[messages.Envelope] = messages.Decoder(messages.Envelope)
        self._max_unsent = max_unsent
        self._unsent: dict[bytes, _Unsent] = {}
        self._is_retrying = False
        self._bad_frames, self._bad_requests = LimitedLog(), LimitedLog()
        self._metrics = requests.metrics

    def open(self, listener: socket.socket) -> None:
        """Accept clients at `listener`, which libzmq owns from then on."""
        path = listener.getsockname()
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.MAXMSGSIZE, messages.MAX_FRAME),
            (zmq.ROUTER_MANDATORY, 1),  # else replies to a slow client are silently dropped
            (zmq.RCVHWM, RECEIVE_QUEUE),
            (zmq.SNDHWM, SEND_QUEUE),
            (zmq.HANDSHAKE_IVL, 2000),
            (zmq.ZAP_DOMAIN, b"hetsched"),
            (zmq.ZAP_ENFORCE_DOMAIN, 1),  # else no handler would mean no check
            (zmq.USE_FD, listener.detach()),
        ):
            self._socket.set(option, value)
        for uid in {os.getuid(), ROOT_UID}:  # others are refused before their greeting is read
            self._socket.set(zmq.IPC_FILTER_UID, uid)
        self._socket.bind(f"ipc://{path}")
        self._loop.add_reader(self._socket, self._receive)

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        deadline = time.monotonic() + LAST_REPLIES_SECONDS
        self._send_unsent()
        while self._unsent and time.monotonic() < deadline:
            time.sleep(MIN_RETRY_SECONDS)
            self._send_unsent()
        if self._unsent:
            log.warning("stopping with replies that %d clients didn't read", len(self._unsent))
        self._socket.close(linger=int(LAST_REPLIES_SECONDS * 1000))
        self._loop.remove_reader(self._zap)
        self._zap.close(linger=0)

    def _on_connection(self) -> None:
        while True:
            try:
                client, _, version, number, _, address, *_ = self._zap.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            peer = sockets.address_peer(address.decode("ascii", "replace"))
            status = [b"200", b"OK"]
            if all(session.peer != peer for session in self._sessions):
                log.warning("refused a connection of uid %d (pid %d)", peer.uid, peer.pid)
                status = [b"400", b"not permitted"]
            user = str(peer.uid).encode()
            self._zap.send_multipart([client, b"", version, number, *status, user, b""])

    # ---- requests

    def _receive(self) -> None:
        end = time.monotonic() + MAX_TURN_SECONDS
        while time.monotonic() < end:
            try:
                route, *frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            if len(frames) > 1:
                self._metrics.rejected_frames.inc()
                self._bad_frames.warn(f"dropped a message of {len(frames)} frames")
            else:
                self._on_frame(route.bytes, frames[0])

    def _on_frame(self, route: bytes, frame: zmq.Frame) -> None:
        payload = frame.bytes
        try:
            envelope = self._decode(payload)
        except errors.ProtocolError as error:
            self._metrics.rejected_requests.inc()
            self._bad_requests.warn(f"dropped a request: {error}")
            # Number 0, which no request has, explains a mismatch of versions.
            self.send(
                route,
                messages.Reply(0, messages.Refused(errors.to_record(error))),
                droppable=True,
            )
            return
        try:
            address = str(frame.get("Peer-Address"))
        except zmq.ZMQError:  # the transport has no such property
            address = ""
        peer = sockets.address_peer(address)
        self._requests.on_request(route, peer, envelope, len(payload), self.send)

    # ---- replies

    def send(self, route: bytes, reply: messages.Reply, droppable: bool = False) -> None:
        """Send now or, unless `droppable`, as soon as the client reads, if it still exists."""
        unsent = self._unsent.get(route)
        if unsent is None or not droppable:
            payload = _encode_bounded(reply)
            if unsent is None and self._try_send(route, payload):
                return
        if droppable:
            self._metrics.dropped_events.inc()
            return
        if unsent is None:
            unsent = self._unsent[route] = _Unsent()
        unsent.payloads.append(payload)
        unsent.nbytes += len(payload) + MESSAGE_OVERHEAD
        unsent_bytes = sum(unsent.nbytes for unsent in self._unsent.values())
        if unsent.nbytes > self._max_unsent:
            self._give_up(route)
        elif unsent_bytes > MAX_SLOW_CLIENTS * self._max_unsent:
            self._give_up(max(self._unsent, key=lambda each: self._unsent[each].nbytes))
        if not self._is_retrying:
            self._is_retrying = True
            self._loop.call_later(MIN_RETRY_SECONDS, self._retry, MIN_RETRY_SECONDS)

    def _try_send(self, route: bytes, payload: bytes) -> bool:
        """Return whether the message needs no retry: it was sent, or its client has ended."""
        try:
            self._socket.send(route, _MORE_FOLLOWS)
            self._socket.send(payload, zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
        finally:
            self._loop.recheck(self._socket)  # a send that failed may have consumed the event, too
        return True

    def _retry(self, waited: float) -> None:
        has_sent = self._send_unsent()
        self._is_retrying = bool(self._unsent)
        if self._is_retrying:
            wait = MIN_RETRY_SECONDS if has_sent else min(2 * waited, MAX_RETRY_SECONDS)
            self._loop.call_later(wait, self._retry, wait)

    def _send_unsent(self) -> bool:
        """Send what the clients' queues in libzmq take; return whether that was anything."""
        has_sent = False
        for route, unsent in list(self._unsent.items()):
            while unsent.payloads and self._try_send(route, unsent.payloads[0]):
                has_sent = True
                unsent.nbytes -= len(unsent.payloads.popleft()) + MESSAGE_OVERHEAD
            if not unsent.payloads:
                del self._unsent[route]
        return has_sent

    def _give_up(self, route: bytes) -> None:
        """Drop the replies to a client that doesn't read, and end its sessions."""
        count = len(self._unsent.pop(route).payloads)
        self._metrics.disconnected_clients.inc()
        log.warning("disconnected a client that doesn't read: dropped %d replies to it", count)
        self._loop.call_soon(self._sessions.end_client, route)


def _encode_bounded(reply: messages.Reply) -> bytes:
    """Encode `reply` in at most MAX_FRAME bytes: the client would drop a longer message.

    A list loses its oldest jobs, which are on its next page. The report of a job loses its lists
    of chunks, then its devices, parameters and notes. Other answers become an error.
    """
    while True:
        try:
            payload = messages.encode(reply)
        except UnicodeEncodeError:  # one such text must not cost all clients their lists
            payload = messages.encode(_escaped(msgspec.to_builtins(reply)))
        if len(payload) <= messages.MAX_FRAME:
            return payload
        reply = messages.Reply(reply.number, _shorter(reply.answer, len(payload)))


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return errors.encodable(value)
        case dict():
            return {_escaped(key): _escaped(each) for key, each in value.items()}
        case list() | tuple():
            return [_escaped(each) for each in value]
    return value


def _shorter(answer: messages.Answer, nbytes: int) -> messages.Answer:
    if isinstance(answer, messages.JobList) and len(answer.jobs) > 1:
        return messages.JobList(answer.jobs[len(answer.jobs) // 2 :], has_earlier=True)
    if isinstance(answer, messages.JobList | messages.DaemonOverview) and answer.jobs:
        bare = tuple(replace(line, params={}, shapes={}) for line in answer.jobs)
        is_bare = bare == answer.jobs
        return replace(answer, jobs=bare[: len(bare) // 2] if is_bare else bare)
    if isinstance(answer, messages.State) and isinstance(answer.state, Ended):
        report = answer.state.report
        if any(device.chunks for device in report.devices):
            devices = tuple(replace(device, chunks=()) for device in report.devices)
            report = replace(report, devices=devices)
            return replace(answer, state=replace(answer.state, report=report))
        note = "left out here: devices, parameters and notes, which are too long for a message"
        if report.notes != (note,):
            report = replace(report, devices=(), params={}, notes=(note,))
            return replace(answer, state=replace(answer.state, report=report))
    error = errors.DataError(f"the answer has {nbytes} bytes, the limit is {messages.MAX_FRAME}")
    return messages.Refused(errors.to_record(error))
