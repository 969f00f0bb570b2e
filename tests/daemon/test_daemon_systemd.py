"""What systemd passes, in any shape, and the last resort of a stop that hangs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from service_manager import listening

from hetsched.daemon.service import ServiceManager
from hetsched.errors import ConfigError

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
