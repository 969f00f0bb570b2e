"""The fleet, on a loop whose callbacks only the test calls."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from typing import Any, cast

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.process_spec import Probe, ProcessSpec
from hetsched.engine.processes.fleet import Fleet, FleetListener

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
