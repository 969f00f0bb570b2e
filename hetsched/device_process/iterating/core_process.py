"""The process of one core for iterative jobs, seen from the device process that hosts all cores.

Threads of one process share the interpreter's lock: two cores that meet after each stage would
spend most of a short iteration waiting for it. So each core computes iterative jobs in a process
of its own, which is a device process like any other; its engine is the hosting process, which
passes messages on. Cores meet in shared memory, without either.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

import msgspec

from hetsched.devices.process_spec import ProcessSpec
from hetsched.transport.codec import Decoder, encode
from hetsched.transport.device_messages import Command, Event
from hetsched.transport.large_messages import MARKER, MAX_INLINE, MAX_LARGE, in_memfd, unpack
from hetsched.transport.sockets import close_all, receive_message, send_message


class CoreProcess:
    """A running process of one core.

    Raises OSError if it can't be started, RuntimeError if there is no thread for its events.

    Parameters
    ----------
    on_event : callable
        Called with each event, on a thread of its own.
    on_end : callable
        Called on that thread with this object and the reason when the process has ended.
    may_end : callable
        Called on that thread with this object now and then while there are no events; returns
        whether the process isn't needed any more, and will get no more commands.
    idle_seconds : float
        Between two such calls.

    Attributes
    ----------
    attached : set of int
        Keys of the objects attached to the process. Of the main thread.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        on_event: Callable[[Event], None],
        on_end: Callable[[CoreProcess, str], None],
        may_end: Callable[[CoreProcess], bool],
        idle_seconds: float,
    ) -> None:
        self.attached: set[int] = set()
        self._decode: Decoder[Event] = Decoder(Event, MAX_LARGE)
        self._on_event = on_event
        self._on_end = on_end
        self._may_end = may_end
        self._idle_seconds = idle_seconds
        self._sock, process_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with process_end:
            try:
                self._process = _spawn(spec, process_end.fileno())
            except OSError:
                self._sock.close()
                raise
        self._reader = threading.Thread(
            target=self._read, name=f"{spec.devices[0].name} events", daemon=True
        )
        try:
            self._reader.start()
        except RuntimeError:
            self._sock.close()  # the process ends
            raise

    def send(self, command: Command, fds: Sequence[int] = ()) -> None:
        """Send a command; to a process that has ended it is lost, as `on_end` says."""
        payload, memfds = encode(command), []
        if len(payload) > MAX_INLINE:
            payload, memfds = MARKER, [in_memfd(payload)]
        try:
            send_message(self._sock, payload, [*fds, *memfds])
        except OSError:
            return
        finally:
            close_all(memfds)

    def end(self) -> None:
        """Have the process end: at the end of file on its socket."""
        self._sock.shutdown(socket.SHUT_RDWR)

    def join(self, seconds: float) -> None:
        """Wait for the end; kill the process after `seconds`."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _read(self) -> None:
        while payload := self._receive():
            self._on_event(self._decode(payload))
        status = self._process.wait()
        self._on_end(self, _reason(status))

    def _receive(self) -> bytes:
        """Return the next message; b"" at the end, or when the process isn't needed any more."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        while not poll.poll(self._idle_seconds * 1e3):
            if self._may_end(self):
                self.end()
        try:
            payload, fds = receive_message(self._sock, MAX_INLINE)
        except OSError:
            return b""
        payload = unpack(payload, fds)
        close_all(fds)
        return payload


def _spawn(spec: ProcessSpec, fd: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "hetsched.device_process.main"]
    command += ["--fd", str(fd), "--parent", str(os.getpid())]
    command += ["--spec", msgspec.json.encode(spec).decode()]
    # stderr is that of this process, which the engine reads.
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(fd,)
    )


def _reason(status: int) -> str:
    if status < 0:
        return signal.Signals(-status).name
    return f"exit status {status}"
