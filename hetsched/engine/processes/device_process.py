"""The engine's side of one device process: start, messages, end and its reason."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hetsched.devices.process_spec import ProcessSpec
from hetsched.engine.processes.stderr_tail import StderrTail
from hetsched.errors import InternalError, ProtocolError
from hetsched.transport.codec import Decoder, encode
from hetsched.transport.device_messages import Command, Event, Stop
from hetsched.transport.large_messages import MARKER, MAX_INLINE, MAX_LARGE, in_memfd, unpack
from hetsched.transport.sockets import close_all, receive_message, send_message

ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # MKL's OpenMP leaves files in shared memory after a kill, and its idle threads spin.
    "MKL_THREADING_LAYER": "SEQUENTIAL",
    "KMP_BLOCKTIME": "0",
}
"""A device is one core: threads of the libraries would compete for it."""
SOCKET_BUFFER_BYTES = 1 << 20
"""Socket buffer in each direction."""
MAX_QUEUED_BYTES = 64 << 20
"""Bytes queued for a process that doesn't read, which a deadline ends much sooner. Arbitrary."""
QUEUED_BYTES = 200
"""Memory of a queued message besides its payload."""
MAX_EVENTS_PER_CALL = 256
"""Maximum messages per `receive`, so that other sources are served too."""
STOP_SECONDS = 5.0
"""Grace period after Stop before the process is killed, then for its end."""
STDERR_SECONDS = 0.2
"""Time to wait for the last lines of a dead process."""


class DeviceProcess:
    """A running device process. Belongs to one thread.

    Poll `fileno()` for events and `pidfd` for the end of the process.

    Attributes
    ----------
    spec : ProcessSpec
    pid, pidfd : int
    stderr : StderrTail
    ended : bool
        End of file on its socket: no more events will come.
    """

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        self.ended = False
        self._decode: Decoder[Event] = Decoder(Event, MAX_LARGE)
        self._queued: deque[tuple[bytes, list[int], int]] = deque()
        """Payload, descriptors, and the bytes that they occupy."""
        self._queued_bytes = 0
        engine_end, process_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (engine_end, process_end):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
        engine_end.setblocking(False)
        self._sock = engine_end
        with process_end:
            self._process = _spawn(spec, process_end.fileno())
        self.pid = self._process.pid
        self.pidfd = os.pidfd_open(self.pid)
        assert self._process.stderr is not None
        self.stderr = StderrTail(self._process.stderr)

    def fileno(self) -> int:
        """Return the socket's descriptor, readable when there are events."""
        return self._sock.fileno()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, command: Command, fds: Sequence[int] = ()) -> None:
        """Send, or queue until the process reads again; never block. Skip a dead process.

        Raises
        ------
        InternalError
            MAX_QUEUED_BYTES are queued: the process hangs and should be killed.
        OSError
            No descriptors are left; nothing was sent.
        """
        if self._queued_bytes >= MAX_QUEUED_BYTES:
            raise InternalError(
                f"device process {self.pid} hasn't read {self._queued_bytes} bytes of commands"
            )
        payload = encode(command)
        nbytes = QUEUED_BYTES + len(payload)
        if len(payload) > MAX_INLINE:
            assert not fds, "only small commands have descriptors"
            self._queued.append((MARKER, [in_memfd(payload)], nbytes))
        else:
            self._queued.append((payload, [os.dup(fd) for fd in fds], nbytes))
        self._queued_bytes += nbytes
        self.flush()

    def flush(self) -> bool:
        """Send as many queued messages as the socket accepts; return whether none remain."""
        while self._queued:
            payload, fds, nbytes = self._queued[0]
            try:
                send_message(self._sock, payload, fds)
            except BlockingIOError:
                return False
            except OSError:  # it has died, as pidfd reports
                self._drop_queued()
                return True
            close_all(fds)
            self._queued.popleft()
            self._queued_bytes -= nbytes
        return True

    def receive(self) -> list[Event]:
        """Return the events that have arrived; an undecodable message kills the process."""
        events: list[Event] = []
        self.flush()
        while not self.ended and len(events) < MAX_EVENTS_PER_CALL:
            try:
                event = self._receive_event()
            except BlockingIOError:
                self.ended = not self.is_alive  # a child process may hold the socket open
                break
            except ProtocolError as error:
                self.stderr.append(str(error))
                self.kill()
                event = None
            if event is None:
                self.ended = True
            else:
                events.append(event)
        return events

    def _receive_event(self) -> Event | None:
        """Return the next event; None at the end. Raises BlockingIOError, ProtocolError."""
        try:
            payload, fds = receive_message(self._sock, MAX_INLINE)
        except BlockingIOError:
            raise
        except OSError:
            return None
        payload = unpack(payload, fds)
        close_all(fds)
        return self._decode(payload) if payload else None

    def stop(self) -> None:
        """Ask the process to end, or kill it if it hangs; `join` waits for the end."""
        try:
            self.send(Stop())
        except InternalError:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL, if it runs."""
        if self.is_alive:
            self._process.send_signal(signal.SIGKILL)

    def join(self, grace: float = STOP_SECONDS, kill_grace: float = STOP_SECONDS) -> int | None:
        """Wait for the end and return the exit status. Idempotent.

        Kill the process after `grace` seconds. Return None if it doesn't end in `kill_grace`
        seconds after that: its driver hangs in the kernel.
        """
        if not self._has_ended(grace):
            self.kill()
            if not self._has_ended(kill_grace):
                return None
        self.stderr.join(STDERR_SECONDS)  # a child process may hold stderr open
        return self._reap()

    def processor_ticks(self) -> int:
        """Return the processor time used so far, in clock ticks; 0 once it has ended."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return 0
        return int(fields[11]) + int(fields[12])  # utime and stime, the 14th and 15th field

    def exit_reason(self) -> str:
        """Return how the process ended, with its last line on stderr so far; after its end."""
        status = self._reap()
        if status < 0:
            reason = f"ended by {signal.Signals(-status).name}"
        else:
            reason = f"exit status {status}"
        summary = self.stderr.summary()
        return f"{reason} ({summary})" if summary else reason

    def _has_ended(self, seconds: float) -> bool:
        """Return whether the process ends within `seconds`."""
        if self.pidfd < 0:
            return True
        poller = select.poll()
        poller.register(self.pidfd, select.POLLIN)
        return bool(poller.poll(int(seconds * 1000)))

    def _reap(self) -> int:
        status = self._process.wait()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
            self._drop_queued()
            self._sock.close()
            self.ended = True
        return status

    def _drop_queued(self) -> None:
        for _, fds, _ in self._queued:
            close_all(fds)
        self._queued.clear()
        self._queued_bytes = 0


def _spawn(spec: ProcessSpec, fd: int) -> subprocess.Popen[bytes]:
    # -P: no file of the working folder may shadow a module.
    command = [sys.executable, "-P", "-m", "hetsched.device_process.main"]
    command += ["--fd", str(fd), "--parent", str(os.getpid())]
    command += ["--spec", msgspec.json.encode(spec).decode()]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # libraries print; keep that out of our output
        stderr=subprocess.PIPE,
        pass_fds=(fd,),
        env={**os.environ, **ONE_THREAD, **spec.env, "PYTHONPATH": _import_path()},
        process_group=0,  # the engine alone handles Ctrl-C, also while this process starts
    )


def _import_path() -> str:
    return os.pathsep.join(filter(None, sys.path))
