"""The engine's side of a device process: start it, talk to it, see it die, say why it died."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from typing import IO

import msgspec

from hetsched.devices.probe import ProcessSpec
from hetsched.errors import InternalError, ProtocolError
from hetsched.transport.codec import Decoder, encode
from hetsched.transport.device_messages import Command, Event, Stop
from hetsched.transport.messages import MAX_FRAME
from hetsched.transport.sockets import close_all, receive_message, send_message

ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # MKL's OpenMP leaves files in shared memory after a kill, and its idle threads spin.
    "MKL_THREADING_LAYER": "SEQUENTIAL",
    "KMP_BLOCKTIME": "0",
}
"""A device is one core: the libraries' own threads would fight over it."""
BUFFER = 1 << 20
"""Bytes of messages that may be under way each way."""
MOST_QUEUED = 10_000
"""Messages kept for a process that doesn't read; one that far behind hangs. Arbitrary."""
AT_ONCE = 256
"""Events that one call of `receive` takes, so that others get their turn."""
LAST_LINES = 8
GRACE = 5.0
LINGER = 0.2
"""Seconds to wait for the last lines of a dead process."""


class DeviceProcess:
    """A device process, from its start on. Belongs to one thread.

    Watch `fileno()` for events and `pidfd` for its death, with any poller.

    Attributes
    ----------
    spec : ProcessSpec
    pid, pidfd : int
    ended : bool
        Its socket is at its end: no event will come.
    """

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        self.ended = False
        self._decode: Decoder[Event] = Decoder(Event)
        self._queued: deque[tuple[bytes, list[int]]] = deque()
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        ours.setblocking(False)
        self._sock = ours
        with theirs:
            self._process = _spawn(spec, theirs.fileno())
        self.pid = self._process.pid
        self.pidfd = os.pidfd_open(self.pid)
        assert self._process.stderr is not None
        self._reader = threading.Thread(
            target=_keep_lines, args=(self._process.stderr, self._lines), daemon=True
        )
        self._reader.start()

    def fileno(self) -> int:
        """The socket: readable when there are events."""
        return self._sock.fileno()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, command: Command, fds: Sequence[int] = ()) -> None:
        """Send, or keep until the process reads again; never blocks. To a dead one: nothing.

        Raises
        ------
        InternalError
            It hasn't read for long: it hangs, and should be killed.
        """
        if len(self._queued) >= MOST_QUEUED:
            raise InternalError(f"device process {self.pid} has stopped reading commands")
        self._queued.append((encode(command), [os.dup(fd) for fd in fds]))
        self.flush()

    def flush(self) -> bool:
        """Send what was kept, as far as it goes; whether all is sent."""
        while self._queued:
            payload, fds = self._queued[0]
            try:
                send_message(self._sock, payload, fds)
            except BlockingIOError:
                return False
            except OSError:  # it died; its pidfd says so
                self._drop_queued()
                return True
            close_all(fds)
            self._queued.popleft()
        return True

    def receive(self) -> list[Event]:
        """The events that have come. A process that sends what can't be decoded is killed."""
        events: list[Event] = []
        self.flush()
        while not self.ended and len(events) < AT_ONCE:
            try:
                payload, _ = receive_message(self._sock, MAX_FRAME)
            except BlockingIOError:
                self.ended = not self.alive  # a child of its own may hold the socket open
                break
            except OSError:
                payload = b""
            if not payload:
                self.ended = True
                break
            try:
                events.append(self._decode(payload))
            except ProtocolError as error:
                self._lines.append(str(error))
                self.kill()
                self.ended = True
        return events

    def stop(self) -> None:
        """Ask it to end; `join` waits for it. One that has stopped reading is killed."""
        try:
            self.send(Stop())
        except InternalError:
            self.kill()

    def kill(self) -> None:
        if self.alive:
            self._process.send_signal(signal.SIGKILL)

    def join(self, grace: float = GRACE) -> int:
        """Wait until it has ended, kill it after `grace` seconds; its exit status. Idempotent."""
        if self.pidfd >= 0:
            poller = select.poll()
            poller.register(self.pidfd, select.POLLIN)
            if not poller.poll(int(grace * 1000)):
                self.kill()
        return self._reap()

    def obituary(self) -> str:
        """How it ended, with the last line it wrote to stderr. To be called once it is dead."""
        status = self._reap()
        signalled = status < 0
        how = f"ended by {signal.Signals(-status).name}" if signalled else f"exit status {status}"
        last = [line for line in self._lines if line.strip()]
        return f"{how} ({last[-1].strip()})" if last else how

    def last_lines(self) -> list[str]:
        """What it last wrote to stderr."""
        return list(self._lines)

    def _reap(self) -> int:
        status = self._process.wait()
        if self.pidfd >= 0:
            self._reader.join(LINGER)  # a child of its own may hold its stderr open
            os.close(self.pidfd)
            self.pidfd = -1
            self._drop_queued()
            self._sock.close()
            self.ended = True
        return status

    def _drop_queued(self) -> None:
        for _, fds in self._queued:
            close_all(fds)
        self._queued.clear()


def _spawn(spec: ProcessSpec, fd: int) -> subprocess.Popen[bytes]:
    # -P: a file of the working folder must not stand for a module. It imports what we import.
    command = [sys.executable, "-P", "-m", "hetsched.device_process.main"]
    command += ["--fd", str(fd), "--parent", str(os.getpid())]
    command += ["--spec", msgspec.json.encode(spec).decode()]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # what a library prints must not spoil our own output
        stderr=subprocess.PIPE,
        pass_fds=(fd,),
        env={**os.environ, **ONE_THREAD, **spec.env, "PYTHONPATH": _import_path()},
        process_group=0,  # Ctrl-C is the engine's to handle, while it starts, too
    )


def _import_path() -> str:
    return os.pathsep.join(filter(None, sys.path))


def _keep_lines(stream: IO[bytes], lines: deque[str]) -> None:
    with contextlib.closing(stream):
        for line in stream:
            lines.append(line.decode("utf-8", "replace").rstrip())
