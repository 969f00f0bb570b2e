import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from service_manager import listening, notify_socket

from hetsched.daemon import systemd
from hetsched.daemon.systemd import ServiceManager
from hetsched.errors import ConfigError

PID = 4711


def test_a_ready_message_reaches_the_manager(tmp_path: Path) -> None:
    with notify_socket(tmp_path) as notified:
        ServiceManager(notified.address).notify("READY=1", "STATUS=listening")

        assert notified.receive() == ["READY=1", "STATUS=listening"]


def test_an_abstract_address_works_as_well() -> None:
    address = f"hetsched-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + address)
        ServiceManager("@" + address).notify("READY=1")

        assert sock.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "/nonexistent/notify.sock"])
def test_a_missing_manager_is_no_error(address: str) -> None:
    ServiceManager(address).notify("READY=1")


def test_a_full_queue_of_the_manager_blocks_nothing(tmp_path: Path) -> None:
    with notify_socket(tmp_path) as notified:
        manager = ServiceManager(notified.address)
        for _ in range(2000):
            manager.notify("WATCHDOG=1")


def test_variables_are_removed_for_child_processes() -> None:
    variables = {"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "1", "LISTEN_FDS": "0", "HOME": "/"}

    ServiceManager.from_environment(variables, PID)

    assert variables == {"HOME": "/"}


@pytest.mark.parametrize(
    ("variables", "interval"),
    [
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(PID)}, 15.0),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "10"}, systemd.MIN_WATCHDOG_SECONDS),
        ({}, None),
    ],
)
def test_the_watchdog_gets_two_signs_of_life_per_interval(
    variables: dict[str, str], interval: float | None
) -> None:
    loop = FakeLoop()
    ServiceManager.from_environment(variables, PID).send_signs_of_life(loop)  # type: ignore[arg-type]
    assert [timer[0] for timer in loop.timers] == ([] if interval is None else [interval])


class FakeLoop:
    """Runs nothing; the test calls the timers."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[Any], None], Any]] = []

    def call_later(self, seconds: float, callback: Callable[[Any], None], loop: Any) -> None:
        self.timers.append((seconds, callback, loop))


def test_signs_of_life_come_from_a_timer_of_the_loop(tmp_path: Path) -> None:
    with notify_socket(tmp_path) as notified:
        loop = FakeLoop()
        ServiceManager(notified.address, watchdog=30.0).send_signs_of_life(loop)  # type: ignore[arg-type]
        _, send_next, same = loop.timers.pop()
        send_next(same)

        assert (notified.receive(), notified.receive()) == (["WATCHDOG=1"], ["WATCHDOG=1"])
        assert len(loop.timers) == 1


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"LISTEN_PID": "1", "LISTEN_FDS": "2"},
        {"LISTEN_PID": str(PID), "LISTEN_FDS": "many"},
        {"LISTEN_PID": str(PID), "LISTEN_FDS": "-1"},
    ],
)
def test_descriptors_of_another_process_are_left_alone(variables: dict[str, str]) -> None:
    assert ServiceManager.from_environment(variables, PID).descriptors == ()


def test_descriptors_that_are_not_open_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "FIRST_DESCRIPTOR", 900_000)
    variables = {"LISTEN_PID": str(PID), "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b"}

    assert ServiceManager.from_environment(variables, PID).descriptors == ()


def test_descriptors_have_names_and_are_closed_on_exec(monkeypatch: pytest.MonkeyPatch) -> None:
    fd = os.memfd_create("test", 0)
    os.set_inheritable(fd, True)
    monkeypatch.setattr(systemd, "FIRST_DESCRIPTOR", fd)
    variables = {"LISTEN_PID": str(PID), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "session"}

    manager = ServiceManager.from_environment(variables, PID)

    assert manager.descriptors == (("session", fd),)
    assert not os.get_inheritable(fd)
    os.close(fd)


def test_sockets_are_told_apart_by_their_type(tmp_path: Path) -> None:
    control = listening(tmp_path / "control.sock", socket.SOCK_STREAM).detach()
    session = listening(tmp_path / "session.sock", socket.SOCK_SEQPACKET).detach()
    manager = ServiceManager(descriptors=(("hetsched.socket", session), ("other", control)))

    sockets = manager.listening_sockets(str(tmp_path / "control.sock"), session_path(tmp_path))

    assert sockets.control == control
    assert sockets.session is not None
    assert (sockets.session.fileno(), os.get_blocking(control)) == (session, False)
    sockets.session.close()
    os.close(control)


def session_path(folder: Path) -> str:
    return str(folder / "session.sock")


def test_a_socket_at_another_path_is_refused(tmp_path: Path) -> None:
    with listening(tmp_path / "elsewhere", socket.SOCK_SEQPACKET) as sock:
        manager = ServiceManager(descriptors=(("hetsched.socket", os.dup(sock.fileno())),))

        with pytest.raises(ConfigError, match=r"listens at .*elsewhere.*, clients use .*session"):
            manager.listening_sockets(str(tmp_path / "control.sock"), session_path(tmp_path))


def test_other_descriptors_are_closed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fd = os.memfd_create("test")
    connected, peer = socket.socketpair()
    descriptors = (("file", fd), ("connected", connected.detach()))

    sockets = ServiceManager(descriptors=descriptors).listening_sockets("/c", "/s")

    peer.close()
    assert sockets == systemd.NO_SOCKETS
    for _, number in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)
