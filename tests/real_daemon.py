"""`hetsched serve` in a process of its own, on folders of the test's own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

SERVE = [sys.executable, "-m", "hetsched.cli.main", "serve"]


@dataclass
class RealDaemon:
    """`folder` is what Client(endpoint=...) takes."""

    folder: Path
    process: subprocess.Popen[bytes]
    log: Path

    def __post_init__(self) -> None:
        self.ps = psutil.Process(self.process.pid)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


def environment(folder: Path) -> dict[str, str]:
    """Variables for every process of the test: nothing of the user's own is touched."""
    return os.environ | {
        "HETSCHED_RUNTIME_DIR": str(folder),
        "HETSCHED_STATE_DIR": str(folder / "state"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }


@contextlib.contextmanager
def serving(folder: Path, config: str) -> Iterator[RealDaemon]:
    """Start a daemon with `config` (TOML); it says by sd_notify when clients can connect."""
    folder.chmod(0o700)
    (folder / "test.toml").write_text(config)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.bind(str(folder / "notify.sock"))
        ready.settimeout(60)
        variables = environment(folder) | {"NOTIFY_SOCKET": str(folder / "notify.sock")}
        log = folder / "log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [*SERVE, "--config", str(folder / "test.toml")], env=variables, stderr=stderr
            )
        try:
            assert ready.recv(100) == b"READY=1", log.read_text()
            yield RealDaemon(folder, process, log)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(60)
