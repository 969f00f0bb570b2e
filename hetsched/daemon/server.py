"""The daemon's sockets, on the engine's loop: passes events to the core and executes its commands.

No client can stop or block the loop, or make a queue grow without bound, whatever it sends and
whether or not it reads.
"""

from __future__ import annotations

import functools
import logging
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import zmq

from hetsched.daemon import commands
from hetsched.daemon.access.roles import Role, role_of
from hetsched.daemon.access.zap import ZapHandler
from hetsched.daemon.core import Core
from hetsched.daemon.inspector import Inspector
from hetsched.daemon.job_executor import JobExecutor, JobJournal, QueueingEngine
from hetsched.daemon.jobs.open_checkpoints import OpenCheckpoint
from hetsched.daemon.limits.descriptor_budget import DescriptorBudget
from hetsched.daemon.limits.heap import trim_heap
from hetsched.daemon.limits.log_limiter import LogLimiter
from hetsched.daemon.queue_executor import QueueEngine, QueueExecutor
from hetsched.daemon.router import Router
from hetsched.daemon.service.systemd import NO_SOCKETS, ListeningSockets
from hetsched.daemon.sockets.session_listener import SessionListener
from hetsched.device import DeviceInfo
from hetsched.errors import (
    DataError,
    ErrorRecord,
    HetschedError,
    InternalError,
    ProtocolError,
    UsageError,
    to_record,
)
from hetsched.explain import Explanation
from hetsched.explain.thinning import thinned
from hetsched.store.journal.records import JournalContents
from hetsched.transport.arena import Arena
from hetsched.transport.codec import Decoder, encode
from hetsched.transport.loop import Loop
from hetsched.transport.messages import (
    Answer,
    DeviceActivity,
    DeviceList,
    Discarded,
    Drop,
    Envelope,
    Explained,
    Refused,
    Reply,
    SessionRequest,
)
from hetsched.transport.sockets import Peer, close_all, receive_message, send_message, socket_peer

log = logging.getLogger(__name__)

MAX_SESSION_REQUEST = 4096
"""Largest request on a session's socket, bytes; all are small."""
MAX_EXPLAINED_CHUNKS = 3000
"""Largest number of chunks in an explanation's timelines: at about 200 bytes each they fit a
frame."""


class JobEngine(QueueEngine, QueueingEngine, Protocol):
    """The engine's methods that the server uses (`engine/engine.py`)."""

    def explain(
        self, number: int, then: Callable[[Explanation | None, BaseException | None], None]
    ) -> None: ...

    def devices(self) -> tuple[tuple[DeviceInfo, ...], dict[str, str]]: ...

    def restricted_devices(self) -> dict[str, str]: ...

    def switch_devices(self, enable: Sequence[str], disable: Sequence[str]) -> None: ...

    def probe_devices(self, on_done: Callable[[], None]) -> None: ...

    def activities(self) -> tuple[DeviceActivity, ...]: ...


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
        engine: JobEngine,
        journal: JobJournal,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: Path,
        session: Path,
    ) -> None:
        self._core = core
        self._loop = loop
        self._arena = arena
        self._engine = engine
        self._endpoint, self._session = endpoint, session
        self._zap = ZapHandler(context, loop, self._admits)
        self._router = Router(
            context, loop, self._on_frame, self._on_overflow, core.ledger.limits.unread
        )
        self._listener = SessionListener(loop, self._check_session, self._on_connection)
        self._budget: DescriptorBudget | None = None
        self._sessions: dict[int, socket.socket] = {}
        self._next_session = 1
        self._received_fds: list[int] = []
        """Of the session's request being handled; an executor that uses one removes it."""
        self._tick_due: float | None = None
        self._is_executing = False
        self._dropped_requests = LogLimiter()
        self._decode_request: Decoder[SessionRequest] = Decoder(SessionRequest)
        self._decode_envelope: Decoder[Envelope] = Decoder(Envelope)
        self.inspector = Inspector(engine, arena, loop, self._router, self._dropped_requests)
        self.queue = QueueExecutor(core, engine, self._execute, loop.call_soon)
        self._executors: dict[type, Callable[[Any], None]] = {
            commands.SendReply: self._send,
            commands.AnswerSession: self._answer,
            commands.CloseSession: lambda command: self._end_session(command.session),
            commands.AllocateSegment: self._allocate,
            commands.AdoptSegment: self._adopt,
            commands.RetainSegment: lambda command: arena.retain(command.segment),
            commands.ReleaseSegment: lambda command: arena.release(command.segment),
            commands.Trim: lambda command: _trim(arena),
            commands.ListDevices: self._list_devices,
            commands.ExplainJob: self._explain,
            **self.inspector.executors(),
            **self.queue.executors(),
            **JobExecutor(core, loop, arena, engine, journal, self._execute).executors(),
        }

    def open(self, passed: ListeningSockets = NO_SOCKETS) -> None:
        """Listen, on the sockets `passed` or on new ones.

        Passed sockets stay in the file system when they are closed: clients that connect in the
        meantime wait for the next daemon. Raises ConfigError if a socket can't be bound.
        """
        self._arena.on_discard(
            lambda segment: self._execute(self._core.on_segment_discarded(segment))
        )
        self._arena.on_pressure(
            lambda nbytes: self._execute(self._core.on_memory_pressure(nbytes, time.monotonic()))
        )
        self._router.bind(self._endpoint, passed.control)
        self._listener.open(self._session, passed.session)

    def limit_descriptors(self, budget: DescriptorBudget) -> None:
        """Refuse sessions and segments beyond `budget`."""
        self._budget = budget
        self._arena.max_segments = lambda: budget.max_segments(len(self._sessions))

    def restore(
        self,
        contents: JournalContents,
        publish_errors: Mapping[int, ErrorRecord | None],
        checkpoints: Mapping[int, OpenCheckpoint],
    ) -> None:
        """Take over the jobs of earlier daemons; the engine gets them later, a few at a time."""
        self._execute(self._core.restore(contents, publish_errors, time.monotonic(), checkpoints))

    def backlog(self) -> int:
        """Count the replies that wait for the slowest client."""
        return self._router.backlog()

    def backlog_bytes(self) -> int:
        """Return the bytes of all replies that wait for clients."""
        return self._router.backlog_bytes()

    def drain(self) -> None:
        """Accept no new jobs."""
        self._core.drain()

    def close(self) -> None:
        """Close and remove the sockets; the context's end sends the last replies."""
        self._router.close()
        self._zap.close()
        self._listener.close()

    def close_sessions(self) -> None:
        """End all sessions, after the context's end: clients then stop waiting for replies."""
        for number in list(self._sessions):
            self._end_session(number)

    def _execute(self, core_commands: Iterable[commands.Command]) -> None:
        """Execute commands; if that isn't part of executing others, schedule the next tick."""
        is_outermost, self._is_executing = not self._is_executing, True
        try:
            for command in core_commands:
                self._executors[type(command)](command)
        finally:
            if is_outermost:
                self._is_executing = False
                self._schedule_tick()

    def _admits(self, peer: Peer) -> bool:
        """Whether a process may connect at all; what it may do there: `roles.py`."""
        return role_of(peer.uid, self._core.ledger.daemon.uid) is not Role.STRANGER

    # sessions

    def _check_session(self) -> None:
        """Raise TryAgain if there are no descriptors for another session."""
        if self._budget is None:
            return
        sessions = len(self._sessions)
        if self._arena.segment_count > self._budget.max_segments(sessions + 1):
            self._arena.trim()
        self._budget.check_session(sessions, self._arena.segment_count)

    def _on_connection(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        peer = socket_peer(connection)
        if not self._admits(peer):
            log.warning("refused a session of uid %d (pid %d)", peer.uid, peer.pid)
            connection.close()
            return
        number, self._next_session = self._next_session, self._next_session + 1
        self._sessions[number] = connection
        self._execute(self._core.on_connect(number, peer))
        self._loop.add_reader(
            connection.fileno(), functools.partial(self._on_session_readable, number)
        )

    def _on_session_readable(self, number: int) -> None:
        connection = self._sessions.get(number)
        if connection is None:
            return
        try:
            payload, self._received_fds = receive_message(connection, MAX_SESSION_REQUEST)
        except BlockingIOError:
            return
        except ProtocolError as error:
            self._execute(self._core.on_invalid_message(number, error))
            return
        except OSError:
            payload = b""
        try:
            self._on_session_payload(number, payload)
        finally:
            close_all(self._received_fds)
            self._received_fds = []

    def _on_session_payload(self, number: int, payload: bytes) -> None:
        if not payload:
            self._end_session(number)
            return
        try:
            request = self._decode_request(payload)
        except ProtocolError as error:
            self._execute(self._core.on_invalid_message(number, error))
            return
        try:
            self._execute(self._core.on_session_request(number, request))
        except Exception as error:  # the client must not wait forever because of our bug
            log.exception("unexpected error in a session's request")
            if not isinstance(request, Drop):  # which isn't answered
                self._answer(commands.AnswerSession(number, Refused(to_record(error))))

    def _answer(self, command: commands.AnswerSession) -> None:
        connection = self._sessions.get(command.session)
        if connection is None:
            return
        fds = [] if command.segment is None else [self._arena.segment(command.segment).fd]
        session = self._core.ledger.sessions[command.session] if command.with_socket else None
        try:
            with self._router.sockets.opened(session) as request_fds:
                send_message(connection, encode(command.answer), fds + request_fds)
        except OSError:  # the client has ended, or sends without ever reading
            if not isinstance(command.answer, Discarded):
                self._end_session(command.session)

    def _end_session(self, number: int) -> None:
        connection = self._sessions.pop(number, None)
        if connection is not None:
            self._loop.remove_reader(connection.fileno())
            connection.close()
            session = self._core.ledger.sessions.get(number)
            if session is not None:
                self._router.forget(session.identities)
            self._execute(self._core.on_disconnect(number, time.monotonic()))

    def _allocate(self, command: commands.AllocateSegment) -> None:
        try:
            segment = self._arena.allocate(command.nbytes)
        except HetschedError as error:
            self._execute(self._core.on_allocation_failed(command.session, error))
            return
        self._execute(self._core.on_allocated(command.session, segment.id, segment.nbytes))

    def _adopt(self, command: commands.AdoptSegment) -> None:
        try:
            if not self._received_fds:
                raise DataError("adopt: the segment's descriptor is missing")
            segment = self._arena.adopt(self._received_fds.pop(0))
        except HetschedError as error:
            self._execute(self._core.on_allocation_failed(command.session, error))
            return
        self._execute(self._core.on_adopted(command.session, segment.id, segment.nbytes))

    # requests and replies

    def _on_overflow(self, identity: bytes) -> None:
        self._loop.call_soon(lambda: self._execute(self._core.on_unread_replies(identity)))

    def _on_frame(self, identity: bytes, frame: bytes, peer: Peer) -> None:
        try:
            envelope = self._decode_envelope(frame)
        except ProtocolError as error:
            suffix = self._dropped_requests.admit(time.monotonic())
            if suffix is not None:
                log.warning("dropped a request: %s%s", error, suffix)
            self._execute(self._core.on_undecodable_request(identity, error))
            return
        try:
            with self._router.holding():
                self._execute(self._core.on_request(identity, peer, envelope, time.monotonic()))
        except Exception as error:
            log.exception("unexpected error in a request")
            self._router.send(identity, Reply(envelope.number, Refused(to_record(error))))

    def _send(self, command: commands.SendReply) -> None:
        self._router.send(command.identity, command.reply, command.droppable)

    # the engine

    def _list_devices(self, command: commands.ListDevices) -> None:
        def answer() -> None:
            devices, absent = self._engine.devices()
            listed = DeviceList(devices, absent, self._engine.restricted_devices())
            self._router.send(command.identity, Reply(command.number, listed))

        if command.enable or command.disable:
            try:
                self._engine.switch_devices(command.enable, command.disable)
            except UsageError as error:
                refusal = Reply(command.number, Refused(to_record(error)))
                self._router.send(command.identity, refusal)
                return
        if command.probe:
            self._engine.probe_devices(answer)
        else:
            answer()

    def _explain(self, command: commands.ExplainJob) -> None:
        def explained(explanation: Explanation | None, error: BaseException | None) -> None:
            if explanation is None:
                answer: Answer = Refused(to_record(error or InternalError("no answer")))
            else:
                answer = Explained(thinned(explanation, MAX_EXPLAINED_CHUNKS))
            self._router.send(command.identity, Reply(command.number, answer))

        self._engine.explain(command.job, explained)

    # time

    def _schedule_tick(self) -> None:
        due = self._core.next_tick()
        if due is None or (self._tick_due is not None and self._tick_due <= due):
            return
        self._tick_due = due
        self._loop.call_later(
            max(0.0, due - time.monotonic()), functools.partial(self._on_tick, due)
        )

    def _on_tick(self, due: float) -> None:
        if self._tick_due == due:
            self._tick_due = None
        self._execute(self._core.on_tick(time.monotonic()))


def _trim(arena: Arena) -> None:
    """Return free memory to the system."""
    arena.trim()
    trim_heap()
