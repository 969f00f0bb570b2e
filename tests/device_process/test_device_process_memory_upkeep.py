"""When a device releases what it keeps between jobs."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from hetsched.device import DeviceInfo
from hetsched.device_process.device_loop import DeviceLoop
from hetsched.transport.device_messages import (
    Channel,
    Command,
    CommandFailed,
    DeviceEvent,
    Hello,
    MemoryReading,
    Stop,
)


class Keeper:
    """A device that keeps memory until it is released, which fails `failures` times."""

    def __init__(self, is_short: bool, failures: int = 0) -> None:
        self._keeps, self._is_short, self._failures = True, is_short, failures

    def describe(self) -> DeviceInfo:
        return DeviceInfo(name="gpu0", kind="emulated", identity="test")

    def keeps_memory(self) -> bool:
        return self._keeps

    def is_memory_short(self) -> bool:
        return self._is_short

    def usable_memory(self) -> int:
        return 7

    def forget_host_memory(self) -> None: ...

    def release_memory(self) -> None:
        self._failures -= 1
        if self._failures >= 0:
            raise RuntimeError("the driver refuses")
        self._keeps = False


@contextlib.contextmanager
def events_of(keeper: object, warm_for: float) -> Iterator[Channel]:
    """Yield the engine's end of the channel to a loop that is idle."""
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    loop = DeviceLoop(Channel(other, list[Command]), keeper, warm_for)  # type: ignore[arg-type]
    thread = threading.Thread(target=loop.run)
    with own, other:
        thread.start()
        engine = Channel(own, DeviceEvent)
        assert isinstance(engine.receive()[0], Hello)
        yield engine
        engine.send([Stop()])
        thread.join()


@pytest.mark.parametrize(("warm_for", "is_short"), [(0.0, False), (1e9, True)])
def test_memory_is_released_after_a_time_without_jobs_or_when_others_need_it(
    warm_for: float, is_short: bool
) -> None:
    with events_of(Keeper(is_short), warm_for) as engine:
        assert engine.receive()[0] == MemoryReading(7, released=True)


def test_memory_that_can_t_be_released_is_tried_again() -> None:
    with events_of(Keeper(True, failures=1), 1e9) as engine:
        assert isinstance(engine.receive()[0], CommandFailed)
        assert engine.receive()[0] == MemoryReading(7, released=True)
