"""The loops of devices as the engine sees them: in a process or a thread of their own.

Most processes are forked from the template, a warm one.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hetsched.device_process.device_loop import DeviceLoop
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.probe import ProcessSpec, open_device
from hetsched.errors import InternalError, text_of
from hetsched.transport import device_messages, sockets
from hetsched.transport.arena import Segment

SOCKET_BUFFER_BYTES = 1 << 20
"""Socket buffer in each direction."""
MAX_QUEUED_BYTES = 64 << 20
"""Bytes queued for a loop that doesn't read, which a deadline ends much sooner."""
MAX_EVENTS_PER_CALL = 256
"""Maximum messages per `receive`, so that other sources are served too."""
MAX_STDERR_BYTES = 16_000
"""What is kept of the end of stderr, or from the report of a crash on."""
_CRASH_BEGINS = b"Current thread 0x"
_CRASH = re.compile(r'Current thread 0x.*?\n\s+(File ".*", line \d+ in .*)')
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # MKL's OpenMP leaves files in shared memory after a kill, and its idle threads spin.
    "MKL_THREADING_LAYER": "SEQUENTIAL",
    "KMP_BLOCKTIME": "0",
}
"""A device is one core: threads of the libraries would compete for it."""
FORK_SECONDS = 5.0
"""Within which the template forks: it takes one or two milliseconds."""
MAX_ANSWER = 64


class DeviceLink(ABC):
    """A running device loop, for one thread but for `kill`. Poll `fileno()` and `end_fd`."""

    name: str  # What runs the loop, for messages
    pid: int
    end_fd: int
    stat: str  # Path of the kernel's figures of what runs the loop

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
        now, fields = time.monotonic(), _stat_fields(self.stat)
        ticks = int(fields[11]) + int(fields[12]) if fields else 0  # of the user and the system
        if ticks != self._ticks:
            self._ticks, self._alive_at = ticks, now
        return now - max(self._alive_at, since)

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

    def join(self, grace: float, kill_grace: float) -> bool:
        """Wait for the end, kill it after `grace` seconds; return whether it has ended."""
        if not self._has_ended(grace):
            self.kill()
            if not self._has_ended(kill_grace):
                return False
        self.close()
        return True

    def _has_ended(self, seconds: float) -> bool:
        return self.end_fd < 0 or sockets.is_readable(self.end_fd, seconds)

    def close(self) -> None:
        """Release what is left after the end. Idempotent."""
        with self._end_lock:  # so that nobody kills another process of this number
            if self.end_fd < 0:
                return
            self._reap()
            os.close(self.end_fd)
            self.end_fd = -1
        self._drop_queued()
        self._sock.close()
        self.ended = True

    @abstractmethod
    def _reap(self) -> None:
        """Wait for the end, which has come, and release what is left besides the socket."""

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


class DeviceProcess(DeviceLink):
    """A running device process. `end_fd` is its pidfd; poll `stderr` for what it writes."""

    def __init__(self, spec: ProcessSpec, template: Template | None) -> None:
        """Fork from `template`, or spawn. Raises OSError, TemplateLost."""
        super().__init__()
        self._template = template
        self._popen: subprocess.Popen[bytes] | None = None  # Of one without a template
        self._output = b""
        self._status: int | None = None
        with contextlib.ExitStack() as on_error:
            on_error.callback(self._sock.close)
            with self._loop_end as other:
                self.stderr, stderr = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
                on_error.callback(os.close, self.stderr)
                try:
                    os.set_blocking(stderr, True)
                    if template is not None:
                        self.pid, self.end_fd = template.fork(spec, other.fileno(), stderr)
                    else:
                        arguments = [msgspec.json.encode(spec).decode()]
                        self._popen = _spawn(arguments, other.fileno(), spec.env, stderr)
                        self.pid = self._popen.pid
                        self.end_fd = os.pidfd_open(self.pid)
                finally:
                    os.close(stderr)
            on_error.pop_all()
        self.name, self.stat = f"device process {self.pid}", f"/proc/{self.pid}/stat"

    def attach_segment(self, segment: Segment) -> None:
        self.attach_file(segment.id, segment.fd, segment.nbytes, "segment")

    def kill(self) -> None:
        with self._end_lock, contextlib.suppress(ProcessLookupError):
            if self.end_fd >= 0:
                signal.pidfd_send_signal(self.end_fd, signal.SIGKILL)

    def _reap(self) -> None:
        if self._popen is not None:
            self._status = self._popen.wait()
        elif self._template is not None:
            self._status = self._template.reap(self.pid)
        self.read_stderr()
        os.close(self.stderr)

    def exit_reason(self) -> str:
        self.close()
        if self._status is None:
            reason = "its template has ended"
        elif self._status < 0:
            reason = f"ended by {signal.Signals(-self._status).name}"
        else:
            reason = f"exit status {self._status}"
        text = self._output.decode("utf-8", "replace")
        crash = _CRASH.search(text)
        summary = crash[1] if crash else _last_line(text)
        return f"{reason} ({summary})" if summary else reason

    def read_stderr(self) -> bool:
        """Read what it has written; return False at the end of file."""
        while True:
            try:
                data = os.read(self.stderr, MAX_STDERR_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            output = self._output + data
            crash = output.find(_CRASH_BEGINS)
            first = crash if crash >= 0 else max(0, len(output) - MAX_STDERR_BYTES)
            self._output = output[first:][:MAX_STDERR_BYTES]


class DeviceThread(DeviceLink):
    """A running device thread: its kernels work on the caller's own arrays.

    One that hangs can't be killed; it ends when it hears again. It isn't pinned: pools of threads
    that libraries start in it would be, too, for the rest of the caller's program.
    """

    def __init__(self, spec: ProcessSpec) -> None:
        super().__init__()
        self.pid = os.getpid()
        self._failure = ""
        self._handed: dict[int, Any] = {}  # Arrays by key that the loop has not taken over yet
        self.end_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.name = f"hetsched {spec.device.name}"
        self._thread = threading.Thread(
            target=self._run, args=(spec,), name=self.name, daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads
            self._loop_end.close()
            self._sock.close()
            os.close(self.end_fd)
            raise OSError(str(error)) from error
        self.stat = f"/proc/self/task/{self._thread.native_id}/stat"

    def _run(self, spec: ProcessSpec) -> None:
        try:
            channel = device_messages.Channel(self._loop_end, list[device_messages.Command])
            with np.errstate(all="ignore"):  # verification finds NaN; functions bring their own
                device = open_device(spec)
                DeviceLoop(channel, device, spec.warm_for, self._handed).run()
                if isinstance(device, Accelerator):  # which has pinned memory of this process
                    device.close()
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {text_of(error)}"
        finally:
            self._loop_end.close()
            os.eventfd_write(self.end_fd, 1)

    def attach_segment(self, segment: Segment) -> None:
        self.hand_over(segment.id, segment.memory())

    def hand_over(self, key: int, value: Any) -> None:
        self._handed[key] = value
        self.send(device_messages.Attach(key, "handed", 0))
        self.attached.add(key)

    def kill(self) -> None:
        with contextlib.suppress(OSError):  # closed
            self._sock.shutdown(socket.SHUT_RDWR)

    def _reap(self) -> None:
        self._thread.join()
        self._handed.clear()

    def exit_reason(self) -> str:
        self.close()
        return self._failure or "its thread has ended"


class TemplateLost(Exception):
    """The template has died, or hangs: it was killed, and its children with it."""


class Template:
    """A running template. Belongs to one thread. Poll `fileno()` until `is_ready`: it can fork."""

    def __init__(self) -> None:
        self.is_ready = False
        self._sock, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with other:
                self._process = _spawn([], other.fileno(), {}, subprocess.PIPE)
        except OSError:
            self._sock.close()
            raise

    def fileno(self) -> int:
        return self._sock.fileno()

    def on_readable(self) -> bool:
        try:
            payload, fds = sockets.receive_message(self._sock, MAX_ANSWER)
        except OSError:
            return False
        sockets.close_all(fds)
        self.is_ready = bool(payload)
        return self.is_ready

    def fork(self, spec: ProcessSpec, channel: int, stderr: int) -> tuple[int, int]:
        """Fork a process with these descriptors, the caller's; return its pid and pidfd."""
        try:
            sockets.send_message(self._sock, msgspec.json.encode(spec), [channel, stderr])
            if not sockets.is_readable(self._sock, FORK_SECONDS):
                raise TimeoutError(f"no answer for {FORK_SECONDS} s")
            payload, (pidfd,) = sockets.receive_message(self._sock, MAX_ANSWER)
            return int(payload), pidfd
        except (OSError, ValueError) as error:
            self.kill()
            raise TemplateLost(f"the template of device processes: {error}") from error

    def reap(self, pid: int) -> int | None:
        """Return the exit status of a dead child, and let the template reap it; None: unknown."""
        fields = _stat_fields(f"/proc/{pid}/stat")
        with contextlib.suppress(OSError):  # the template has died, so init reaps the child
            sockets.send_message(self._sock, str(pid).encode(), [])
        return os.waitstatus_to_exitcode(int(fields[49])) if fields else None  # exit_code

    def kill(self) -> None:
        """Send SIGKILL; its children end with it. Safe from any thread."""
        self._process.send_signal(signal.SIGKILL)

    def close(self) -> str:
        """Kill it, if it hasn't ended; return how it ended."""
        self.kill()
        status, pipe = self._process.wait(), self._process.stderr
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)  # its children may have it, too
        text = (pipe.read() or b"").decode("utf-8", "replace")
        pipe.close()
        self._sock.close()
        return f"the template of device processes has ended: {_last_line(text) or status}"


def _spawn(
    arguments: Sequence[str], fd: int, env: Mapping[str, str], stderr: int
) -> subprocess.Popen[bytes]:
    command = ["hetsched.device_process.main", str(fd), str(os.getpid())]
    return start_python([*command, *arguments], env, stderr=stderr, pass_fds=(fd,))


def start_python(
    arguments: Sequence[str], env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a module with these arguments, one thread per library. Raises OSError."""
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        # -P: no file of the working folder may shadow a module.
        [sys.executable, "-P", "-m", *arguments],
        env={**os.environ, **ONE_THREAD, **(env or {}), "PYTHONPATH": path},
        process_group=0,  # the engine alone handles Ctrl-C, also while this process starts
        # Libraries print; keep that out of our output.
        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, **options},
    )


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].strip()


def _stat_fields(path: str) -> list[bytes]:
    """Return the fields of a process's or thread's stat from the third on; none if it's gone."""
    try:
        return Path(path).read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []
