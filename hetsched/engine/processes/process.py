"""The engine's side of a device process, and of the template: a warm process that forks most."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hetsched.devices.probe import ProcessSpec
from hetsched.engine.processes.link import DeviceLink, processor_ticks, stat_fields
from hetsched.transport import sockets
from hetsched.transport.arena import Segment

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
        self.name = f"device process {self.pid}"

    def attach_segment(self, segment: Segment) -> None:
        self.attach_file(segment.id, segment.fd, segment.nbytes, "segment")

    def _processor_ticks(self) -> int:
        return processor_ticks(f"/proc/{self.pid}/stat")

    def kill(self) -> None:
        with self._end_lock, contextlib.suppress(ProcessLookupError):
            if self.end_fd >= 0:
                signal.pidfd_send_signal(self.end_fd, signal.SIGKILL)

    def join(self, grace: float, kill_grace: float) -> bool:
        if not self._has_ended(grace):
            self.kill()
            if not self._has_ended(kill_grace):
                return False
        self.close()
        return True

    def _reap(self) -> None:
        if self._popen is not None:
            self._status = self._popen.wait()
        elif self._template is not None:
            self._status = self._template.reap(self.pid)

    def _release(self) -> None:
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

    def _has_ended(self, seconds: float) -> bool:
        if self.end_fd < 0:
            return True
        poller = select.poll()
        poller.register(self.end_fd, select.POLLIN)
        return bool(poller.poll(int(seconds * 1000)))


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
            if not select.select([self._sock], [], [], FORK_SECONDS)[0]:
                raise TimeoutError(f"no answer for {FORK_SECONDS} s")
            payload, (pidfd,) = sockets.receive_message(self._sock, MAX_ANSWER)
            return int(payload), pidfd
        except (OSError, ValueError) as error:
            self.kill()
            raise TemplateLost(f"the template of device processes: {error}") from error

    def reap(self, pid: int) -> int | None:
        """Return the exit status of a dead child, and let the template reap it; None: unknown."""
        fields = stat_fields(f"/proc/{pid}/stat")
        with contextlib.suppress(OSError):  # the template has died, so init reaps the child
            sockets.send_message(self._sock, str(pid).encode(), [])
        return os.waitstatus_to_exitcode(int(fields[49])) if fields else None  # exit_code

    def kill(self) -> None:
        """Send SIGKILL; its children end with it. Safe from any thread."""
        self._process.send_signal(signal.SIGKILL)

    def end_reason(self) -> str:
        self.kill()
        assert self._process.stderr is not None, "it has a pipe"
        os.set_blocking(self._process.stderr.fileno(), False)
        text = (self._process.stderr.read() or b"").decode("utf-8", "replace")
        status = self._process.wait()
        return f"the template of device processes has ended: {_last_line(text) or status}"

    def close(self) -> None:
        self.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._sock.close()


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
