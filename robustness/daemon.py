"""A real daemon in a folder of its own, which can be killed and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

import hetsched

READY_SECONDS = 60.0
STOP_SECONDS = 60.0
CLI = "hetsched.cli.main"
ROOT = str(Path(__file__).parent.parent)
"""Where daemons find the workloads of `robustness`."""
CORES = '[[device]]\nkind = "cpu"\n'
"""The configuration of most scenarios: all cores, no GPU."""
_DEVICE = "hetsched "
"""Before the name of its device: how a device process calls itself."""


class Daemon:
    """`hetsched serve` in `folder`, with the configuration `config` (TOML).

    `start` may be called again after the process has ended. `environment` is for every process
    that is to find this daemon. `descriptors`: its RLIMIT_NOFILE. `prefix`: what runs it.
    `module`: its program, one with the commands of `hetsched`.
    """

    def __init__(
        self,
        folder: Path,
        config: str,
        variables: dict[str, str] | None = None,
        descriptors: int | None = None,
        module: str = CLI,
    ) -> None:
        self.folder = folder
        self._serve = [sys.executable, "-m", module, "serve"]
        self.log = folder / "log"
        self.environment = os.environ | {
            "PYTHONPATH": ROOT,
            "HETSCHED_RUNTIME_DIR": str(folder),
            "HETSCHED_STATE_DIR": str(folder / "state"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            **(variables or {}),
        }
        self.prefix = [] if descriptors is None else ["prlimit", f"--nofile={descriptors}"]
        self._config = folder / "robustness.toml"
        self._config.write_text(config, encoding="utf-8")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> float:
        """Start the daemon; return the seconds until READY=1. Raises RuntimeError with its log."""
        path = self.folder / "notify.sock"
        path.unlink(missing_ok=True)
        begin = time.monotonic()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(str(path))
            ready.settimeout(0.2)
            with self.log.open("ab") as stderr:
                self.process = subprocess.Popen(
                    [*self.prefix, *self._serve, "--config", str(self._config)],
                    env=self.environment | {"NOTIFY_SOCKET": str(path)},
                    stderr=stderr,
                )
            self._await_ready(ready, begin + READY_SECONDS)
        return time.monotonic() - begin

    def _await_ready(self, ready: socket.socket, deadline: float) -> None:
        while self.is_alive and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                if b"READY=1" in ready.recv(4096).split(b"\n"):
                    return
        self.kill()
        raise RuntimeError(f"the daemon didn't start:\n{self.log.read_text()[-2000:]}")

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait until the kernel has removed it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self, number: int = signal.SIGTERM, timeout: float = STOP_SECONDS) -> int | None:
        """Send a signal; return the exit status, or None (and kill it) if it doesn't end."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.wait(timeout)

    def wait(self, timeout: float = STOP_SECONDS) -> int | None:
        """Return the exit status, or None (and kill it) if it doesn't end in time."""
        assert self.process is not None
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def client(self, **options: float) -> hetsched.Client:
        return hetsched.Client(endpoint=str(self.folder), **options)

    def device_processes(self, device: str = "") -> list[psutil.Process]:
        """Wait until there are any of devices whose name begins with `device`; return them."""
        while True:
            processes = []
            for child in psutil.Process(self.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if child.name().startswith(_DEVICE + device):
                        processes.append(child)
            if processes:
                return processes
            time.sleep(0.01)

    def usage(self) -> dict[str, int]:
        """Return bytes of private memory, descriptors, threads and children of the process."""
        process = psutil.Process(self.pid)
        memory = process.memory_full_info()
        return {
            "private_bytes": memory.uss,
            "rss_bytes": memory.rss,
            "descriptors": process.num_fds(),
            "threads": process.num_threads(),
            "children": len(process.children()),
        }


@contextlib.contextmanager
def daemon(
    config: str,
    variables: dict[str, str] | None = None,
    *,
    start: bool = True,
    descriptors: int | None = None,
    module: str = CLI,
) -> Iterator[Daemon]:
    """Yield a daemon in a new folder; stop it and remove the folder at the end."""
    with tempfile.TemporaryDirectory(prefix="hs-") as folder:
        served = Daemon(Path(folder), config, variables, descriptors, module)
        try:
            if start:
                served.start()
            yield served
        finally:
            if served.is_alive:
                served.stop()
