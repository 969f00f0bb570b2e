"""The whole daemon as systemd runs it: passed sockets, notifications, signals."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_daemon import SERVE, environment
from service_manager import NotifySocket, listening, notify_socket, passing

from hetsched.client.client import Client

CONFIG = """
[[device]]
kind = "cpu"
count = 1
"""
WAIT = 60.0


@contextlib.contextmanager
def activated(folder: Path, sockets: list[socket.socket]) -> Iterator[NotifySocket]:
    """A daemon that systemd has started because a client connected to one of `sockets`."""
    (folder / "test.toml").write_text(CONFIG)
    descriptors = {sock.fileno(): "hetsched.socket" for sock in sockets}
    command = passing(descriptors, [*SERVE, "--config", str(folder / "test.toml")])
    with notify_socket(folder) as notified, (folder / "log").open("wb") as log:
        variables = environment(folder) | {
            "NOTIFY_SOCKET": notified.address,
            "WATCHDOG_USEC": "100000",
        }
        process = subprocess.Popen(command, env=variables, stderr=log, pass_fds=[*descriptors])
        try:
            yield notified
        finally:
            process.terminate()
            assert process.wait(WAIT) == 0, (folder / "log").read_text()


def bound(folder: Path) -> list[socket.socket]:
    folder.chmod(0o700)
    return [
        listening(folder / "control.sock", socket.SOCK_STREAM),
        listening(folder / "session.sock", socket.SOCK_SEQPACKET),
    ]


@pytest.mark.skipif(
    shutil.which("systemd-socket-activate") is None,
    reason="systemd-socket-activate is missing (Debian: apt-get install systemd)",
)
def test_systemd_itself_starts_the_daemon_for_a_client(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "test.toml").write_text(CONFIG)
    kept = ("HETSCHED_RUNTIME_DIR", "HETSCHED_STATE_DIR", "XDG_CACHE_HOME")
    options = [f"-E{name}={environment(tmp_path)[name]}" for name in kept]
    session = tmp_path / "session.sock"
    command = ["systemd-socket-activate", "--seqpacket", f"--listen={session}", *options]
    command += [*SERVE, "--config", str(tmp_path / "test.toml")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert "Listening" in process.stderr.readline()
        with Client(tmp_path) as client:
            assert client.ping().pid == process.pid
    finally:
        process.terminate()
        _, rest = process.communicate(timeout=WAIT)
    assert (process.returncode, session.exists()) == (0, True), rest


def test_passed_sockets_outlive_the_daemon_and_serve_the_next(tmp_path: Path) -> None:
    sockets = bound(tmp_path)
    inodes = {path.name: path.stat().st_ino for path in tmp_path.glob("*.sock")}
    for _ in range(2):
        with activated(tmp_path, sockets), Client(tmp_path) as client:
            assert client.ping().pid
        (tmp_path / "notify.sock").unlink()

    assert {path.name: path.stat().st_ino for path in tmp_path.glob("*.sock")} == inodes
    for sock in sockets:
        sock.close()


def test_the_manager_is_notified_of_start_watchdog_and_stop(tmp_path: Path) -> None:
    sockets = bound(tmp_path)
    with activated(tmp_path, sockets) as notified:
        notified.until("READY=1")
        notified.until("WATCHDOG=1")
        notified.until("WATCHDOG=1")
    for sock in sockets:
        sock.close()

    assert f"STATUS=listening in {tmp_path}" in notified.lines
