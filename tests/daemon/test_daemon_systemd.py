"""The whole daemon as systemd runs it: units, passed sockets, notifications, signals."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from served import CORES, HETSCHED, Place, serving

import hetsched
from hetsched.cli.commands.service import unit_texts
from hetsched.daemon.lifecycle import ServiceManager
from hetsched.errors import ConfigError

WAIT = 60.0


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="hs-") as folder:  # sockets need short paths
        place = Place(Path(folder))
        (place.folder / "run").mkdir(mode=0o700)
        yield place


PASS_DESCRIPTORS = """
import fcntl, os, sys
high = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 100) for fd in sys.argv[1].split(",")]
for number, fd in enumerate(high, 3):
    os.dup2(fd, number, inheritable=True)
names = ":".join(["hetsched.socket"] * len(high))
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(high))}
os.environ["LISTEN_FDNAMES"] = names
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Runs a command with descriptors, as systemd does."""


def listening(path: Path, kind: int) -> socket.socket:
    """A socket of a socket unit."""
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(str(path))
    sock.listen(16)
    return sock


@contextlib.contextmanager
def activated(place: Place, sockets: list[socket.socket]) -> Iterator[Callable[[], list[str]]]:
    """A daemon that systemd has started for a client; yields what waits for its next news."""
    fds = [sock.fileno() for sock in sockets]
    passed = [sys.executable, "-c", PASS_DESCRIPTORS, ",".join(map(str, fds))]
    path = place.folder / "notify.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news:
        news.bind(str(path))
        news.settimeout(WAIT)
        more = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "100000"}
        command, environment = [*passed, HETSCHED, "serve"], place.environment | more
        process = subprocess.Popen(command, env=environment, pass_fds=fds)
        try:
            yield lambda: news.recv(4096).decode().split("\n")
        finally:
            process.terminate()
            assert process.wait(WAIT) == 0
    path.unlink()


@pytest.mark.skipif(
    shutil.which("systemd-socket-activate") is None,
    reason="systemd-socket-activate is missing (Debian: apt-get install systemd)",
)
def test_systemd_itself_starts_the_daemon_for_a_client(place: Place) -> None:
    options = [f"-E{name}={value}" for name, value in place.environment.items()]
    session = place.folder / "run" / "session.sock"
    command = ["systemd-socket-activate", "--seqpacket", f"--listen={session}", *options]
    process = subprocess.Popen([*command, HETSCHED, "serve"], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert "Listening" in process.stderr.readline()
        with hetsched.Client(session.parent) as client:
            assert client.ping().pid == process.pid
    finally:
        process.terminate()
        _, rest = process.communicate(timeout=WAIT)
    assert (process.returncode, session.exists()) == (0, True), rest


def test_passed_sockets_outlive_a_daemon_that_notifies_its_manager(place: Place) -> None:
    run = place.folder / "run"
    sockets = [
        listening(run / "control.sock", socket.SOCK_STREAM),
        listening(run / "session.sock", socket.SOCK_SEQPACKET),
    ]
    inodes = {path.name: path.stat().st_ino for path in run.glob("*.sock")}
    for _ in range(2):
        with activated(place, sockets) as news, hetsched.Client(run) as client:
            assert client.ping().pid
            said: list[str] = []
            while "READY=1" not in said or said.count("WATCHDOG=1") < 2:
                said += news()
        assert f"STATUS=listening in {run}" in said

    assert {path.name: path.stat().st_ino for path in run.glob("*.sock")} == inodes
    for sock in sockets:
        sock.close()


PID = str(os.getpid())


def passed(*descriptors: int) -> ServiceManager:
    manager = ServiceManager({})
    manager.descriptors = descriptors
    return manager


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": PID}, 30.0),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_for_one_process(variables: dict[str, str], seconds: float | None) -> None:
    variables["HOME"] = "/"
    assert ServiceManager(variables).watchdog == seconds
    assert variables == {"HOME": "/"}  # child processes aren't the service


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"LISTEN_PID": "1", "LISTEN_FDS": "2"},
        {"LISTEN_PID": PID, "LISTEN_FDS": "many"},
        {"LISTEN_PID": PID, "LISTEN_FDS": "-1"},
    ],
)
def test_descriptors_of_another_process_are_left_alone(variables: dict[str, str]) -> None:
    assert not ServiceManager(variables).descriptors


def test_a_socket_at_another_path_is_refused(tmp_path: Path) -> None:
    fd = listening(tmp_path / "elsewhere", socket.SOCK_SEQPACKET).detach()
    with pytest.raises(ConfigError, match=r"listens at .*elsewhere.*, clients use .*/session"):
        passed(fd).listening_sockets(Path("/control"), Path("/session"))


def test_a_step_that_hangs_ends_the_process_and_shows_where() -> None:
    script = (
        "import threading\n"
        "from hetsched.daemon.lifecycle import guarded\n"
        "guarded(lambda: None, 60)\n"
        "guarded(threading.Event().wait, 0.01)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)

    assert run.returncode == 1
    assert b"in guarded" in run.stderr and b"in wait" in run.stderr


MAX_EXPOSURE = 62
"""In tenths. Most of the rest needs privileges that a user's service manager doesn't have."""
SECONDS = 120

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is missing (Debian: apt-get install systemd)",
)

UNDER_FILTER = """
import ctypes, os, sys
allowed, program = sys.argv[1].split(","), sys.argv[2:]
library = ctypes.CDLL("libseccomp.so.2")
library.seccomp_init.restype = ctypes.c_void_p
rules = ctypes.c_void_p(library.seccomp_init(0x00050000 | {errno}))
for name in allowed:
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number >= 0:
        assert library.seccomp_rule_add(rules, 0x7FFF0000, number, 0) == 0
assert library.seccomp_load(rules) == 0
os.execv(program[0], program)
"""
"""Runs a program with a list of system calls; others fail, as SystemCallErrorNumber= wants it."""


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The unit files of this installation."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("HETSCHED_CONFIG", "cpu-only")
    paths = []
    for name, text in unit_texts(None).items():
        path = tmp_path / name
        path.write_text(text)
        paths.append(str(path))
    return paths


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@needs_systemd
def test_systemd_accepts_the_units_of_this_installation(units: list[str]) -> None:
    result = analyze("--user", "verify", *units)

    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


@needs_systemd
def test_the_exposure_of_the_service_is_low(units: list[str]) -> None:
    service = next(path for path in units if path.endswith(".service"))
    result = analyze("security", "--offline=true", f"--threshold={MAX_EXPOSURE}", service)

    assert result.returncode == 0, result.stdout.splitlines()[-1:]


@needs_systemd
def test_a_daemon_runs_with_the_system_calls_that_the_service_allows(
    tmp_path: Path, units: list[str]
) -> None:
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("libseccomp.so.2 is missing (Debian: apt-get install libseccomp2)")
    service = next(Path(path) for path in units if path.endswith(".service"))
    allowed = ",".join(sorted(allowed_calls(service.read_text())))
    prefix = [sys.executable, "-c", UNDER_FILTER.format(errno=errno.EPERM), allowed]
    x = np.arange(1024.0).reshape(4, 16, 16).astype("complex64")
    with serving(CORES, prefix) as daemon:
        with daemon.client() as client:
            volatile = client.submit("fft", x).result(SECONDS)
            path = tmp_path / "y.npy"
            client.submit("fft", batch="4x16x16", out=str(path)).result(SECONDS)
        assert daemon.stop() == 0
        assert " ERROR " not in daemon.log.read_text()

    assert np.allclose(volatile, np.fft.fft2(x), atol=1.0)
    assert np.load(path).shape == (4, 16, 16)


def allowed_calls(service: str) -> set[str]:
    """The system calls of the SystemCallFilter lines, and those that systemd always allows."""
    allowed: set[str] = set()
    for line in service.splitlines():
        words = line.removeprefix("SystemCallFilter=").split()
        if not line.startswith("SystemCallFilter="):
            continue
        if words[0].startswith("~"):
            allowed -= expanded([words[0][1:], *words[1:]])
        else:
            allowed |= expanded(words)
    assert allowed
    return allowed | expanded(["@default"])


def expanded(names: list[str]) -> set[str]:
    calls: set[str] = set()
    for name in names:
        if not name.startswith("@"):
            calls.add(name)
            continue
        lines = analyze("syscall-filter", name).stdout.splitlines()[1:]
        members = [line.strip() for line in lines]
        calls |= expanded([member for member in members if member and member[0] != "#"])
    return calls
