"""The fleet, on a loop that calls only what a test says."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from typing import Any, cast

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.probe import Probe, ProcessSpec
from hetsched.engine.processes.fleet import Fleet, Listener

SPEC = ProcessSpec(
    kind="cpu",
    devices=(DeviceInfo(name="cpu0", kind="cpu", identity="test"),),
    config=DeviceConfig(kind="cpu"),
)


class Still:
    """A loop that keeps what it should call."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], None]] = {}
        self.delayed: list[Callable[[], None]] = []

    def reader(self, fd: int, call: Callable[[], None]) -> None:
        self.readers[fd] = call

    def forget(self, fd: int) -> None:
        self.readers.pop(fd, None)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.delayed.append(call)

    soon = later


def test_what_a_process_said_before_it_died_is_heard_before_its_death() -> None:
    loop, heard = Still(), list[str]()
    listener = Listener(
        event=lambda device, event: heard.append("event"),
        lost=lambda devices, why: heard.append("lost"),
        joined=lambda devices: heard.append("joined"),
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
    assert heard == ["joined", "lost"]
