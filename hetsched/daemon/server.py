"""The daemon's sockets, on the engine's loop: feeds the core, carries out what it wants.

Nothing that a client sends or fails to read may stop the loop, block it, or grow without bound.
"""

from __future__ import annotations

import functools
import logging
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import zmq

from hetsched.daemon import commands as do
from hetsched.daemon.core import Core
from hetsched.daemon.ledger import refs
from hetsched.daemon.router import Router
from hetsched.device import DeviceInfo
from hetsched.errors import ErrorRecord, HetschedError, InternalError, ProtocolError, to_record
from hetsched.explain import Explanation
from hetsched.explain.thinning import thinned
from hetsched.job import JobSpec, JobState
from hetsched.transport.arena import Arena
from hetsched.transport.codec import Decoder, encode
from hetsched.transport.loop import Loop
from hetsched.transport.messages import (
    Answer,
    DeviceList,
    Discarded,
    Drop,
    Envelope,
    Explained,
    Refused,
    Reply,
    SessionRequest,
)
from hetsched.transport.sockets import close_all, listen, receive_message, send_message

log = logging.getLogger(__name__)

SESSION_LIMIT = 4096
"""Bytes of a request on a session's socket; all of them are small."""
MOST_CHUNKS = 3000
"""Chunks in an explanation's timelines: at about 200 bytes each they fit a frame."""


class Engine(Protocol):
    """What the server needs of `executor.engine.Engine`."""

    def submit(
        self,
        spec: JobSpec,
        reply: Callable[[int | ErrorRecord], None],
        listen: Callable[[JobState], None],
    ) -> None: ...

    def cancel(self, job: int) -> None: ...

    def explain(
        self, number: int, then: Callable[[Explanation | None, BaseException | None], None]
    ) -> None: ...

    def devices(self) -> tuple[tuple[DeviceInfo, ...], dict[str, str]]: ...


class Server:
    """Sockets and sessions of one daemon. Lives on the loop's thread.

    Parameters
    ----------
    context : zmq.Context
        Closed by its owner, after `close`.
    endpoint, session : Path
        Where to listen. The caller holds the lock of their folder.
    """

    def __init__(
        self,
        core: Core,
        loop: Loop,
        arena: Arena,
        engine: Engine,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: Path,
        session: Path,
    ) -> None:
        self._core = core
        self._loop = loop
        self._arena = arena
        self._engine = engine
        self._endpoint, self._session = endpoint, session
        self._router = Router(context, loop, self._request)
        self._listener: socket.socket | None = None
        self._sessions: dict[int, socket.socket] = {}
        self._next_session = 1
        self._scheduled: float | None = None
        self._decode_request: Decoder[SessionRequest] = Decoder(SessionRequest)
        self._decode_envelope: Decoder[Envelope] = Decoder(Envelope)
        self._carry_out: dict[type, Callable[[Any], None]] = {
            do.Send: self._send,
            do.Tell: self._tell,
            do.HangUp: self._hang_up,
            do.Allocate: self._allocate,
            do.Retain: lambda command: arena.retain(command.segment),
            do.Release: lambda command: arena.release(command.segment),
            do.Trim: lambda command: arena.trim(),
            do.Start: self._start,
            do.Stop: lambda command: engine.cancel(command.job),
            do.ListDevices: self._list_devices,
            do.Explain: self._explain,
        }

    def open(self) -> None:
        """Listen. Raises ConfigError when a socket can't be bound."""
        self._arena.on_discard(lambda segment: self._perform(self._core.discarded(segment)))
        self._arena.on_pressure(
            lambda nbytes: self._perform(self._core.pressure(nbytes, time.monotonic()))
        )
        self._router.bind(self._endpoint)
        self._listener = listen(self._session)
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def backlog(self) -> int:
        """Replies that wait for the slowest client."""
        return self._router.backlog()

    def drain(self) -> None:
        """Take no new jobs."""
        self._core.drain()

    def close(self) -> None:
        """Close and remove the sockets; the last replies leave until the context's end."""
        self._router.close()
        if self._listener is not None:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._session.unlink(missing_ok=True)

    def hang_up(self) -> None:
        """End all sessions. After the context's end, or clients take replies for lost."""
        for number in list(self._sessions):
            self._end_session(number)

    def _perform(self, wanted: Iterable[do.Command]) -> None:
        for command in wanted:
            self._carry_out[type(command)](command)
        self._schedule()

    # sessions

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except OSError as error:  # gone already, or no descriptors left
            log.warning("session not accepted: %s", error.strerror)
            return
        connection.setblocking(False)
        number, self._next_session = self._next_session, self._next_session + 1
        self._sessions[number] = connection
        self._perform(self._core.connected(number))
        self._loop.add_reader(connection.fileno(), functools.partial(self._readable, number))

    def _readable(self, number: int) -> None:
        connection = self._sessions.get(number)
        if connection is None:
            return
        try:
            payload, fds = receive_message(connection, SESSION_LIMIT)
            close_all(fds)  # nobody sends us any
        except BlockingIOError:
            return
        except ProtocolError as error:
            self._perform(self._core.garbled(number, error))
            return
        except OSError:
            payload = b""
        if not payload:
            self._end_session(number)
            return
        try:
            request = self._decode_request(payload)
        except ProtocolError as error:
            self._perform(self._core.garbled(number, error))
            return
        try:
            self._perform(self._core.told(number, request))
        except Exception as error:  # whoever asked must not wait for ever for our bug
            log.exception("unexpected error in a session's request")
            if not isinstance(request, Drop):  # which nobody expects an answer to
                self._tell(do.Tell(number, Refused(to_record(error))))

    def _tell(self, command: do.Tell) -> None:
        connection = self._sessions.get(command.session)
        if connection is None:
            return
        fds = [] if command.segment is None else [self._arena.segment(command.segment).fd]
        try:
            send_message(connection, encode(command.answer), fds)
        except OSError:  # the client is gone, or asks without ever reading
            if not isinstance(command.answer, Discarded):
                self._end_session(command.session)

    def _hang_up(self, command: do.HangUp) -> None:
        self._end_session(command.session)

    def _end_session(self, number: int) -> None:
        connection = self._sessions.pop(number, None)
        if connection is not None:
            self._loop.remove_reader(connection.fileno())
            connection.close()
            self._perform(self._core.gone(number, time.monotonic()))

    def _allocate(self, command: do.Allocate) -> None:
        try:
            segment = self._arena.allocate(command.nbytes)
        except HetschedError as error:
            self._perform(self._core.not_allocated(command.session, error))
            return
        self._perform(self._core.allocated(command.session, segment.id, segment.nbytes))

    # requests and replies

    def _request(self, identity: bytes, frame: bytes) -> None:
        try:
            envelope = self._decode_envelope(frame)
        except ProtocolError as error:
            log.warning("dropped a request: %s", error)
            self._perform(self._core.undecodable(identity, error))
            return
        try:
            self._perform(self._core.asked(identity, envelope, time.monotonic()))
        except Exception as error:
            log.exception("unexpected error in a request")
            self._router.send(identity, Reply(envelope.number, Refused(to_record(error))))

    def _send(self, command: do.Send) -> None:
        self._router.send(command.identity, command.reply, command.droppable)

    # the engine

    def _start(self, command: do.Start) -> None:
        ticket = command.ticket
        try:
            self._engine.submit(
                command.spec,
                functools.partial(self._replied, ticket),
                functools.partial(self._state, ticket),
            )
        except Exception as error:
            log.exception("unexpected error in the engine")
            self._perform(self._core.not_started(ticket, to_record(error)))

    def _replied(self, ticket: int, answer: int | ErrorRecord) -> None:
        self._perform(self._core.replied(ticket, answer, time.monotonic()))

    def _state(self, ticket: int, state: JobState) -> None:
        sizes = {ref.segment: self._arena.segment(ref.segment).nbytes for ref in refs(state)}
        self._perform(self._core.state(ticket, state, sizes, time.monotonic()))

    def _list_devices(self, command: do.ListDevices) -> None:
        devices, absent = self._engine.devices()
        self._router.send(command.identity, Reply(command.number, DeviceList(devices, absent)))

    def _explain(self, command: do.Explain) -> None:
        def explained(explanation: Explanation | None, error: BaseException | None) -> None:
            if explanation is None:
                answer: Answer = Refused(to_record(error or InternalError("no answer")))
            else:
                answer = Explained(thinned(explanation, MOST_CHUNKS))
            self._router.send(command.identity, Reply(command.number, answer))

        self._engine.explain(command.job, explained)

    # time

    def _schedule(self) -> None:
        due = self._core.due()
        if due is None or (self._scheduled is not None and self._scheduled <= due):
            return
        self._scheduled = due
        self._loop.call_later(max(0.0, due - time.monotonic()), functools.partial(self._tick, due))

    def _tick(self, due: float) -> None:
        if self._scheduled == due:
            self._scheduled = None
        self._perform(self._core.tick(time.monotonic()))
