"""The fleet, on a loop whose callbacks only the test calls."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from typing import Any, cast

import pytest

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.process_spec import Probe, ProcessSpec
from hetsched.engine.processes.fleet import Fleet, FleetListener
from hetsched.engine.processes.hosted_process import HostedProcess
from hetsched.errors import InternalError
from hetsched.transport.device_messages import Attach, Release

SPEC = ProcessSpec(
    package="hetsched.devices.cpu",
    devices=(DeviceInfo(name="cpu0", kind="cpu", identity="test"),),
    config=DeviceConfig(kind="cpu"),
)


class ManualLoop:
    """A loop that records its callbacks and calls none."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], None]] = {}
        self.delayed: list[Callable[[], None]] = []

    def add_reader(self, fd: int, call: Callable[[], None]) -> None:
        self.readers[fd] = call

    def remove_reader(self, fd: int) -> None:
        self.readers.pop(fd, None)

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.delayed.append(call)

    call_soon = call_later


def test_events_sent_before_a_death_are_handled_before_it() -> None:
    loop, calls = ManualLoop(), list[str]()
    listener = FleetListener(
        on_event=lambda device, event: calls.append("event"),
        on_lost=lambda devices, reason: calls.append("lost"),
        on_ready=lambda devices: calls.append("ready"),
    )
    fleet = Fleet(Probe((SPEC,), {}), cast(Any, loop), listener)
    fleet.start()
    socket, pidfd = loop.readers
    died = loop.readers[pidfd]
    select.select([socket], [], [], 60)  # it has said hello
    os.kill(fleet.pids()["cpu0"], signal.SIGKILL)
    select.select([pidfd], [], [], 60)

    died()

    fleet.close()
    assert calls == ["ready", "lost"]


class RefusingProcess:
    """A device process that raises `error` for each message, until it is None."""

    is_alive = True

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error
        self.sent: list[Any] = []

    def send(self, command: Any, fds: Any = ()) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append(command)

    def kill(self) -> None:
        self.is_alive = False


def hosted(process: RefusingProcess) -> HostedProcess:
    return HostedProcess(SPEC, cast(Any, process), is_ready=True)


def test_an_attachment_that_could_not_be_sent_is_sent_for_the_next_job() -> None:
    process = RefusingProcess(OSError("no descriptors are left"))
    host = hosted(process)
    with pytest.raises(OSError, match="no descriptors"):
        host.attach(3, 0, 64, "segment")

    process.error = None
    host.attach(3, 0, 64, "segment")

    assert process.sent == [Attach(3, "segment", 64)]


def test_a_process_that_has_stopped_reading_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    process = RefusingProcess(InternalError("it has stopped reading commands"))
    host = hosted(process)
    host.outbox.append(Release(1, 0))

    host.flush()
    host.attach(3, 0, 64, "segment")
    host.detach([3])

    assert not process.is_alive
    assert caplog.text.count("cpu0: it has stopped reading commands; killing it") == 1
