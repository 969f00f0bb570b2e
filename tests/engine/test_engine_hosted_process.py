"""When the commands to a device process are sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from timer_queue import TimerQueue

from hetsched.config import DeviceConfig
from hetsched.device import Chunk, DeviceInfo
from hetsched.devices.process_spec import ProcessSpec
from hetsched.engine.processes.hosted_process import LATE_SECONDS, HostedProcess
from hetsched.transport.device_messages import Attach, CommandBatch, Release, Run

RUN = Run(2, 0, (Chunk(0, 0, 1),))


class Process:
    """A device process that takes every message."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, command: Any, fds: Any = ()) -> None:
        self.sent.append(command)


class Turns:
    """A loop's calls, run on request."""

    def __init__(self) -> None:
        self._soon: list[Callable[[], None]] = []
        self._timers = TimerQueue()
        self.call_soon = self._soon.append

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Any:
        return self._timers.add(seconds, callback)

    def run(self, seconds: float = 0.0) -> None:
        while self._soon:
            self._soon.pop(0)()
        while (due := self._timers.pop_due(seconds)) is not None:
            due[1]()


def hosted() -> tuple[HostedProcess, Process, Any]:
    process = Process()
    info = DeviceInfo(name="cpu0", kind="cpu", identity="x")
    spec = ProcessSpec(package="cpu", devices=(info,), config=DeviceConfig(kind="cpu"))
    return HostedProcess(spec, cast(Any, process), is_ready=True), process, Turns()


def test_the_end_of_a_job_is_sent_with_the_next_one() -> None:
    host, process, loop = hosted()

    host.post_late(Release(1, 0), loop)
    loop.run(0.9 * LATE_SECONDS)
    host.post(RUN, loop)
    loop.run(2 * LATE_SECONDS)

    assert process.sent == [CommandBatch((Release(1, 0), RUN))]


def test_the_end_of_the_last_job_is_sent_after_a_while() -> None:
    host, process, loop = hosted()

    host.post_late(Release(1, 0), loop)
    host.post_late(Release(1, 1), loop)
    loop.run(LATE_SECONDS)
    host.post_late(Release(2, 0), loop)
    loop.run(LATE_SECONDS)

    assert process.sent == [CommandBatch((Release(1, 0), Release(1, 1))), Release(2, 0)]


def test_a_command_that_waits_for_others_is_sent_before_an_attachment() -> None:
    host, process, loop = hosted()

    host.post_late(Release(1, 0), loop)
    host.attach(3, 0, 64, "segment")

    assert process.sent == [Release(1, 0), Attach(3, "segment", 64)]
