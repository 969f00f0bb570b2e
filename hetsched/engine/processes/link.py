"""The engine's end of the connection to the loop of one device, in a process or in a thread."""

from __future__ import annotations

import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection
from pathlib import Path

from hetsched.errors import InternalError
from hetsched.transport import device_messages, sockets
from hetsched.transport.arena import Segment

SOCKET_BUFFER_BYTES = 1 << 20
"""Socket buffer in each direction."""
MAX_QUEUED_BYTES = 64 << 20
"""Bytes queued for a loop that doesn't read, which a deadline ends much sooner."""
MAX_EVENTS_PER_CALL = 256
"""Maximum messages per `receive`, so that other sources are served too."""


class DeviceLink(ABC):
    """A running device loop, for one thread but for `kill`. Poll `fileno()` and `end_fd`."""

    name: str  # What runs the loop, for messages
    pid: int
    end_fd: int

    def __init__(self) -> None:
        self.attached: set[int] = set()  # Keys of its attached segments and files
        self.is_stopping = False  # It was asked to end
        self.ended = False  # End of file on its socket: no more events will come
        self._commands: list[device_messages.Command] = []
        self._fds: list[int] = []  # Of the commands that attach something, in their order
        # Packed messages: payload and descriptors
        self._queued: deque[tuple[bytes, list[int]]] = deque()
        self._queued_bytes = 0
        self._end_lock = threading.Lock()
        self._ticks = 0
        self._alive_at = time.monotonic()
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in pair:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
        self._sock, self._loop_end = pair
        self._sock.setblocking(False)
        self._channel = device_messages.Channel(self._sock, device_messages.DeviceEvent)

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, command: device_messages.Command) -> None:
        """Send with the next `flush`. Can't fail: each device must hear of an attempt's end."""
        self._commands.append(command)

    @abstractmethod
    def attach_segment(self, segment: Segment) -> None:
        """Attach a segment, which isn't attached yet. Raises as `flush`."""

    def attach_file(self, key: int, fd: int, nbytes: int = 0, kind: str = "file") -> None:
        """Send `fd` as attachment `key`, which isn't attached yet. Raises as `flush`."""
        if len(self._fds) == sockets.MAX_FDS - 1:  # one is left for a large message
            self._pack()
        self._fds.append(os.dup(fd))
        self.send(device_messages.Attach(key, kind, nbytes))
        self.attached.add(key)

    def detach(self, keys: Collection[int]) -> None:
        attached = tuple(self.attached.intersection(keys))
        self.attached.difference_update(attached)
        self.send(device_messages.Detach(attached))

    def flush(self) -> None:
        """Send all commands, or queue them until they are read. Raises InternalError, OSError."""
        if self._commands:
            self._pack()
        self._send_queued()

    def _send_queued(self) -> None:
        while self._queued:
            payload, fds = self._queued[0]
            try:
                sockets.send_message(self._sock, payload, fds)
            except BlockingIOError:
                return
            except OSError:  # it has died, as pidfd reports
                self._drop_queued()
                return
            if fds:
                sockets.close_all(fds)
            self._queued.popleft()
            self._queued_bytes -= len(payload)

    def _pack(self) -> None:
        if self._queued_bytes >= MAX_QUEUED_BYTES:
            raise InternalError(f"{self.name} hasn't read {self._queued_bytes} bytes of commands")
        payload, memfds = device_messages.packed(self._commands)
        self._queued.append((payload, [*self._fds, *memfds]))
        self._queued_bytes += len(payload)
        self._commands, self._fds = [], []

    def receive(self) -> list[device_messages.DeviceEvent]:
        """Return the events that have arrived. Raises ProtocolError."""
        events: list[device_messages.DeviceEvent] = []
        if self._queued:
            self._send_queued()
        while not self.ended and len(events) < MAX_EVENTS_PER_CALL:
            try:
                event, fds = self._channel.receive()
            except BlockingIOError:
                break
            except device_messages.ChannelClosed:
                self.ended = True
                break
            if fds:
                sockets.close_all(fds)
            self._alive_at = time.monotonic()
            events.append(event)
        return events

    def silent_seconds(self, since: float) -> float:
        """Return for how long since then it has neither sent a message nor used the processor."""
        now, ticks = time.monotonic(), self._processor_ticks()
        if ticks != self._ticks:
            self._ticks, self._alive_at = ticks, now
        return now - max(self._alive_at, since)

    @abstractmethod
    def _processor_ticks(self) -> int:
        """Return the processor time used so far, in clock ticks; 0 once it has ended."""

    def stop(self) -> None:
        self.is_stopping = True
        try:
            self.send(device_messages.Stop())
            self.flush()
        except (InternalError, OSError):
            self.kill()

    @abstractmethod
    def kill(self) -> None:
        """End it by force, if that is possible. Safe from any thread."""

    @abstractmethod
    def join(self, grace: float, kill_grace: float) -> bool:
        """Wait for the end, kill it after `grace` seconds; return whether it has ended."""

    def close(self) -> None:
        """Release what is left after the end. Idempotent."""
        with self._end_lock:
            if self.end_fd < 0:
                return
            self._reap()
            os.close(self.end_fd)
            self.end_fd = -1
        self._release()
        self._drop_queued()
        self._sock.close()
        self.ended = True

    @abstractmethod
    def _reap(self) -> None:
        """Wait for the end, which has come, while nobody can kill what runs the loop."""

    @abstractmethod
    def _release(self) -> None:
        """Release what is left besides the socket."""

    @abstractmethod
    def exit_reason(self) -> str:
        """Close it; return how it ended."""

    def _drop_queued(self) -> None:
        sockets.close_all(self._fds)
        self._commands, self._fds = [], []
        for _, fds in self._queued:
            sockets.close_all(fds)
        self._queued.clear()
        self._queued_bytes = 0


def stat_fields(path: str) -> list[bytes]:
    """Return the fields of a process's or thread's stat from the third on; none if it's gone."""
    try:
        return Path(path).read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def processor_ticks(path: str) -> int:
    """Return the user and system time in a stat file, in clock ticks."""
    fields = stat_fields(path)
    return int(fields[11]) + int(fields[12]) if fields else 0
