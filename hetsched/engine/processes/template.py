"""The template of device processes: a warm process that forks one in milliseconds."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from hetsched.devices.probe import ProcessSpec
from hetsched.transport import sockets

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


class TemplateLost(Exception):
    """The template has died, or hangs: it was killed, and its children with it."""


class Template:
    """A running template. Belongs to one thread. Poll `fileno()` until `is_ready`: it can fork."""

    def __init__(self) -> None:
        """Start the process. Raises OSError."""
        self.is_ready = False
        self._sock, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with other:
                self._process = spawn([], other.fileno(), {}, subprocess.PIPE)
        except OSError:
            self._sock.close()
            raise

    def fileno(self) -> int:
        return self._sock.fileno()

    def on_readable(self) -> bool:
        """Note that it is ready; return False if it has ended instead."""
        try:
            payload, fds = sockets.receive_message(self._sock, MAX_ANSWER)
        except OSError:
            return False
        sockets.close_all(fds)
        self.is_ready = bool(payload)
        return self.is_ready

    def fork(self, spec: ProcessSpec, channel: int, stderr: int) -> tuple[int, int]:
        """Fork a process with these descriptors, which stay the caller's: its pid and pidfd.

        Raises TemplateLost.
        """
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
        """Return the exit status of a dead child, as subprocess does; None: nobody knows it.

        The child is a zombie until the template is told that its status has been read.
        """
        fields = stat_fields(pid)
        with contextlib.suppress(OSError):  # the template has died, so init reaps the child
            sockets.send_message(self._sock, str(pid).encode(), [])
        return os.waitstatus_to_exitcode(int(fields[49])) if fields else None  # exit_code

    def kill_unready(self) -> None:
        """Kill it if it still starts."""
        if not self.is_ready:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL; its children end with it. Safe from any thread."""
        self._process.send_signal(signal.SIGKILL)

    def end_reason(self) -> str:
        """Kill it and return how it has ended, with the last line that it has written."""
        self.kill()
        assert self._process.stderr is not None, "it has a pipe"
        os.set_blocking(self._process.stderr.fileno(), False)
        text = (self._process.stderr.read() or b"").decode("utf-8", "replace")
        status = self._process.wait()
        return f"the template of device processes has ended: {last_line(text) or status}"

    def close(self) -> None:
        """End the template and wait for its end."""
        self.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._sock.close()


def spawn(
    arguments: Sequence[str], fd: int, env: Mapping[str, str], stderr: int
) -> subprocess.Popen[bytes]:
    """Start `hetsched.device_process.main` with socket `fd`. Raises OSError."""
    # -P: no file of the working folder may shadow a module.
    command = [sys.executable, "-P", "-m", "hetsched.device_process.main"]
    command += ["--fd", str(fd), "--parent", str(os.getpid()), *arguments]
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # libraries print; keep that out of our output
        stderr=stderr,
        pass_fds=(fd,),
        env={**os.environ, **ONE_THREAD, **env, "PYTHONPATH": path},
        process_group=0,  # the engine alone handles Ctrl-C, also while this process starts
    )


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the third on; none if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def last_line(text: str) -> str:
    """Return the last line with anything on it, "" if there is none."""
    return text.strip().rpartition("\n")[2].strip()
