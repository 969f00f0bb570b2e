"""systemd for tests: a notification socket, and a command line that passes descriptors."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

TIMEOUT = 60.0
MAX_FDS = 16

PASS_DESCRIPTORS = """
import fcntl, os, sys
fds = [int(word) for word in sys.argv[1].split(",")]
high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in fds]
for number, fd in enumerate(high, 3):
    os.dup2(fd, number, inheritable=True)
os.environ["LISTEN_PID"] = str(os.getpid())
os.environ["LISTEN_FDS"] = str(len(fds))
os.environ["LISTEN_FDNAMES"] = sys.argv[2]
os.execv(sys.argv[3], sys.argv[3:])
"""


def passing(descriptors: Mapping[int, str], command: list[str]) -> list[str]:
    """A command line that runs `command` with these descriptors (fd -> name), as systemd does.

    The caller passes them to the new process with `pass_fds`.
    """
    numbers = ",".join(map(str, descriptors))
    names = ":".join(descriptors.values())
    return [sys.executable, "-c", PASS_DESCRIPTORS, numbers, names, *command]


@dataclass
class NotifySocket:
    """Collects the notifications of a service."""

    sock: socket.socket
    address: str
    lines: list[str] = field(default_factory=list)

    def receive(self) -> list[str]:
        """The lines of the next notification."""
        lines = self.sock.recv(4096).decode().split("\n")
        self.lines += lines
        return lines

    def until(self, line: str) -> None:
        """Wait for a notification with this line."""
        while line not in self.receive():
            continue


@contextlib.contextmanager
def notify_socket(folder: Path) -> Iterator[NotifySocket]:
    path = str(folder / "notify.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.settimeout(TIMEOUT)
        yield NotifySocket(sock, path)


def listening(path: Path, kind: int) -> socket.socket:
    """A socket of a socket unit."""
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(str(path))
    sock.listen(16)
    return sock
