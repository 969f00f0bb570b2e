"""What systemd passes, in any shape, and the last resort of a stop that hangs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from service_manager import listening, notify_socket

from hetsched.daemon.service import ServiceManager
from hetsched.errors import ConfigError

PID = str(os.getpid())


def passed(*descriptors: int) -> ServiceManager:
    manager = ServiceManager({})
    manager.descriptors = descriptors
    return manager


def test_an_abstract_address_works_as_well() -> None:
    address = f"hetsched-test-{PID}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + address)
        ServiceManager({"NOTIFY_SOCKET": "@" + address}).notify("READY=1")
        assert sock.recv(100) == b"READY=1"


def test_a_full_queue_of_the_manager_blocks_nothing(tmp_path: Path) -> None:
    with notify_socket(tmp_path) as notified:
        manager = ServiceManager({"NOTIFY_SOCKET": notified.address})
        for _ in range(2000):
            manager.notify("WATCHDOG=1")
    manager.notify("READY=1")  # it is gone


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


def test_other_descriptors_are_closed() -> None:
    connected, peer = socket.socketpair()
    descriptors = (os.memfd_create("test"), connected.detach())
    sockets = passed(*descriptors).listening_sockets(Path("/c"), Path("/s"))

    peer.close()
    assert sockets == {}
    for fd in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


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
