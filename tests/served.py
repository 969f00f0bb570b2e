"""The daemon and the commands as users have them: processes, signals, exit codes."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import hetsched

HETSCHED = str(Path(sys.executable).parent / "hetsched")
PLUG_INS = str(Path(__file__).parent)
PATIENCE = 60.0
"""Seconds for anything that happens soon: a machine under load is slow."""

CORES = """
[[device]]
kind = "cpu"
hardware_threads = true
team = false
"""
needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
SLOW = '[[device]]\nkind = "emulated"\ncompute = { unit = "20ms" }\n'
"""Units, and so chunks, of 20 ms."""
VIRTUAL = """
[[device]]
kind = "emulated"
name = "core0"
clock = "virtual"
compute = { gap = "30us", rate = "0.5Gflop/s" }

[[device]]
kind = "emulated"
name = "emu0"
clock = "virtual"
memory = "1MiB"
compute = { gap = "40us", rate = "1.5Gflop/s" }
h2d = { gap = "10us", rate = "1GB/s" }
d2h = { gap = "10us", rate = "1GB/s" }
"""
"""A core and a device behind a link, whose clocks are computed: jobs take no time to speak of."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended. `error`: its one line of error, the last one, or ""."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        lines = self.err.splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        assert errors in ([], lines[-1:]), self.err
        assert "bug in hetsched" not in self.err
        return errors[0].removeprefix("error: ") if errors else ""

    @property
    def json(self) -> Any:
        return json.loads(self.out.splitlines()[-1])


class Place:
    """A folder with sockets, state and configuration of its own."""

    def __init__(self, folder: Path, config: str = CORES) -> None:
        self.folder = folder
        self.config = folder / "config.toml"
        self.config.write_text(config, encoding="utf-8")
        self.environment = os.environ | {
            "HETSCHED_RUNTIME_DIR": str(folder / "run"),
            "HETSCHED_STATE_DIR": str(folder / "state"),
            "HETSCHED_CONFIG": str(self.config),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PYTHONPATH": PLUG_INS,
            "COLUMNS": "200",
        }

    @contextlib.contextmanager
    def started(self, *words: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
        """A command in the background, which is killed at the end if it still runs."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            [HETSCHED, *words], text=True, **{"env": self.environment, **pipes, **options}
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def call(self, *words: str, **options: Any) -> Ended:
        """Run a command to its end."""
        with self.started(*words, **options) as process:
            return ended(process)


class Daemon(Place):
    """`hetsched serve`. It can be killed and started again."""

    process: subprocess.Popen[bytes]
    prefix: Sequence[str] = ()
    """What runs it."""

    def start(self) -> Daemon:
        """Start it, and wait until clients can connect."""
        path = self.folder / "notify.sock"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(str(path))
            ready.settimeout(PATIENCE)
            environment = self.environment | {"NOTIFY_SOCKET": str(path)}
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    [*self.prefix, HETSCHED, "serve"], env=environment, stderr=log
                )
            assert b"READY=1" in ready.recv(100), self.log.read_text()
        return self

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def family(self) -> list[psutil.Process]:
        """All processes that it has started."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; return the exit status. No process may be left."""
        family = self.family()
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE)
        assert psutil.wait_procs(family, PATIENCE)[1] == []
        return status

    def kill(self) -> None:
        assert self.stop(signal.SIGKILL) == -signal.SIGKILL

    def client(self, **options: Any) -> hetsched.Client:
        return hetsched.Client(self.folder / "run", **{"timeout": PATIENCE, **options})

    def script(self, code: str, *words: str) -> subprocess.Popen[str]:
        """Python code in a process; sys.argv[1] is what Client takes."""
        return subprocess.Popen(
            [sys.executable, "-c", code, str(self.folder / "run"), *words],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )

    def works(self) -> bool:
        with self.client() as client:
            x = np.ones((4, 4))
            return bool((client.submit("toys:Toy", x, units=4).result(PATIENCE) == 3).all())

    def memory(self) -> float:
        """Bytes of shared arrays that somebody holds."""
        gc.collect()
        with self.client() as client:
            return metric(client, 'arena_bytes{kind="used"}')


@contextlib.contextmanager
def serving(config: str = CORES, prefix: Sequence[str] = (), **variables: str) -> Iterator[Daemon]:
    """A daemon in a folder of its own, with more `variables`; sockets need short paths."""
    with tempfile.TemporaryDirectory(prefix="hs-") as folder:
        daemon = Daemon(Path(folder), config)
        daemon.environment |= variables
        daemon.prefix = prefix
        try:
            yield daemon.start()
        finally:
            if daemon.process.poll() is None:
                daemon.process.terminate()
                try:
                    daemon.process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    daemon.process.kill()
                    daemon.process.wait()
                    raise


def metric(client: hetsched.Client, name: str) -> float:
    """A sample by its name and labels; 0.0: there is none."""
    lines = (line.rpartition(" ") for line in client.metrics().splitlines())
    return next((float(value) for key, _, value in lines if key == f"hetsched_{name}"), 0.0)


def ended(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=2 * PATIENCE)
    return Ended(process.returncode, out, err)


def call_here(capfd: pytest.CaptureFixture[str], *words: str) -> Ended:
    """Run a command in this process: most of a short one's time is its start."""
    (script,) = entry_points(group="console_scripts", name="hetsched")
    capfd.readouterr()
    code = script.load()(words)
    return Ended(code, *capfd.readouterr())


def says(process: subprocess.Popen[str], word: str) -> str:
    """Wait for a line on standard error with `word`; return the lines up to it."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if word in line:
            return said
    raise AssertionError(f"never said {word!r}, but: {said}")


def until(condition: Callable[[], Any], pause: float = 0.01) -> Any:
    """Wait until `condition`, asked every `pause` seconds, is true; return its value."""
    waiting = threading.Event()
    for _ in range(int(PATIENCE / pause)):
        if value := condition():
            return value
        waiting.wait(pause)
    raise AssertionError("it never came to that")


def await_state(job: hetsched.Job, condition: Callable[[Any], Any]) -> Any:
    """Wait until the job has been in a state that fulfils `condition`; return that."""
    found: list[Any] = []
    reached = threading.Event()

    def listen(state: Any) -> None:
        if not found and condition(state):
            found.append(state)
            reached.set()

    job.follow(listen)
    assert reached.wait(PATIENCE), job.progress()
    return found[0]


def computes(job: hetsched.Job) -> Any:
    """Wait until the job's chunks run."""
    return await_state(job, lambda state: getattr(state, "stage", "") == "computing")


def word(job: hetsched.Job) -> str:
    """queued, running, done or failed."""
    return type(job.progress()).__name__.lower()


@contextlib.contextmanager
def refused(code: int, words: str = "") -> Iterator[pytest.ExceptionInfo[Exception]]:
    """What happens inside raises an error of one line with this exit code."""
    with pytest.raises(Exception) as caught:
        yield caught
    error: Any = caught.value
    assert getattr(error, "code", repr(error)) == code, error
    assert words in str(error)
    assert "\n" not in str(error)


class Gate:
    """A file that chunks of toys.Toy wait for until it is open. `pids`: the processes that do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __fspath__(self) -> str:
        return str(self.path)

    def pids(self) -> Sequence[int]:
        files = self.path.parent.glob(f"{self.path.name}.*")
        return sorted(int(path.suffix[1:]) for path in files)

    def open(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        self._file.close()


def open_descriptors() -> set[tuple[int, str]]:
    """Return number and target of each.

    Compare with ``<=``, not by counts: what earlier tests have left may be closed at any moment,
    as when the collector finds it.
    """
    gc.collect()
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add((int(number), os.readlink(f"/proc/self/fd/{number}")))
        except FileNotFoundError:  # the one of the listing itself
            continue
    return found
