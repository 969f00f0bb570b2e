"""What systemd passes, in any shape, and the last resort of a stop that hangs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from service_manager import listening, notify_socket

from hetsched.daemon import service
from hetsched.daemon.service import (
    EXIT_STUCK,
    ListeningSockets,
    ServiceManager,
    StopLadder,
)
from hetsched.errors import ConfigError

PID = str(os.getpid())


def test_an_abstract_address_works_as_well() -> None:
    address = f"hetsched-test-{PID}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + address)
        ServiceManager("@" + address).notify("READY=1")
        assert sock.recv(100) == b"READY=1"


def test_a_full_queue_of_the_manager_blocks_nothing(tmp_path: Path) -> None:
    with notify_socket(tmp_path) as notified:
        manager = ServiceManager(notified.address)
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
    assert ServiceManager.from_environment(variables).watchdog == seconds
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
    assert ServiceManager.from_environment(variables).descriptors == ()


def test_a_socket_at_another_path_is_refused(tmp_path: Path) -> None:
    fd = listening(tmp_path / "elsewhere", socket.SOCK_SEQPACKET).detach()
    with pytest.raises(ConfigError, match=r"listens at .*elsewhere.*, clients use .*/session"):
        ServiceManager(descriptors=(fd,)).listening_sockets("/control", "/session")


def test_other_descriptors_are_closed() -> None:
    connected, peer = socket.socketpair()
    descriptors = (os.memfd_create("test"), connected.detach())
    sockets = ServiceManager(descriptors=descriptors).listening_sockets("/c", "/s")

    peer.close()
    assert sockets == ListeningSockets()
    for fd in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_chunks_that_never_end_are_killed_at_the_deadline() -> None:
    steps: list[str] = []
    timers: dict[float, Callable[[], None]] = {}

    class Loop:
        def call_later(self, seconds: float, callback: Callable[..., None], *args: str) -> None:
            timers[seconds] = lambda: callback(*args)

        def stop(self) -> None:
            steps.append("stop")

    ladder = StopLadder(
        Loop(),  # type: ignore[arg-type]
        ServiceManager(),
        lambda on_drained: steps.append("drain"),
        lambda: steps.append("kill"),
        7.0,
    )
    for _ in range(2):  # a closed terminal never escalates
        ladder.start()
    timers[7.0]()
    timers[service.KILL_SECONDS]()

    assert steps == ["drain", "kill", "stop"]


def test_a_step_that_hangs_ends_the_process_and_the_log_names_it() -> None:
    script = (
        "import logging, sys, threading; logging.basicConfig(stream=sys.stderr)\n"
        "from hetsched.daemon.service import ExitGuard\n"
        "guard = ExitGuard(lambda: print('devices killed', flush=True))\n"
        "guard.guarded('a step that ends', lambda: None, 0.01)()\n"
        "guard.guarded('the planner', threading.Event().wait, 0.01)()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )

    assert (run.returncode, run.stdout) == (EXIT_STUCK, "devices killed\n")
    assert "the planner hasn't ended after 0.01 s; exiting without it" in run.stderr
