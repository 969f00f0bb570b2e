"""The thread of a device, without the process around it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any

import msgspec
import numpy as np
import pytest
from device_bench import VIRTUAL, cut, info_of
from device_toys import AffineParams

from hetsched.device import DeviceInfo
from hetsched.device_process import device_thread
from hetsched.device_process.attachments import Attachments
from hetsched.device_process.device_thread import FAULT_EXIT, THREAD_EXIT, DeviceThread
from hetsched.device_process.pipeline import Pipeline
from hetsched.devices.base import DeviceFault
from hetsched.devices.emulated.device import EmulatedDevice, open_device
from hetsched.devices.emulated.virtual_clock import VirtualClock
from hetsched.transport.arena import Arena
from hetsched.transport.device_messages import (
    Attach,
    ChunkDone,
    CommandFailed,
    DeviceNote,
    Fence,
    Fenced,
    MemoryReading,
    Prepare,
    Prepared,
    Release,
    Run,
    StoredArray,
)

UNITS = 24
PATIENCE = 60.0


class Bench:
    """A virtual device with the affine workload's arrays as segments 1 and 2."""

    def __init__(self) -> None:
        self.arena = Arena(1 << 20)
        self.events: Queue[Any] = Queue()
        attachments = Attachments()
        for key in (1, 2):
            segment = self.arena.allocate(UNITS * 32)
            segment.array((UNITS, 4), "float64")[...] = np.arange(UNITS)[:, None]
            attachments.attach(Attach(key, "segment", segment.nbytes), os.dup(segment.fd))
        self.thread = DeviceThread(
            0,
            info_of(VIRTUAL),
            lambda info: open_device(info, VIRTUAL),
            attachments,
            self.events.put,
            lambda *result: None,
        )

    def order(self, *commands: Any) -> None:
        for command in commands:
            self.thread.commands.put(command)

    def start(self) -> None:
        """What was ordered before is there at once."""
        self.thread.start()

    def answers(self, *expected: type) -> list[Any]:
        """The next events, notes apart: one of each of these kinds."""
        found = []
        while len(found) < len(expected):
            event = self.events.get(timeout=PATIENCE)
            found += [] if isinstance(event, DeviceNote) else [event]
        assert [type(event) for event in found] == list(expected)
        return found

    def close(self) -> None:
        self.order(None)
        self.thread.join()
        self.arena.close()


def prepare(**changes: Any) -> Prepare:
    settings: dict[str, Any] = {"chunk": 4, "slots": 6, "window": 2, "memory": 6 * 512, **changes}
    return Prepare(
        job=1,
        device=0,
        workload="device_toys:Affine",
        params=msgspec.json.encode(AffineParams(UNITS)),
        variant="numpy",
        arrays=(
            StoredArray(array="x", key=1, shape=(UNITS, 4), dtype="<f8"),
            StoredArray(array="y", key=2, shape=(UNITS, 4), dtype="<f8", output=True),
        ),
        **settings,
    )


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Bench]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(device_thread, "VIRTUAL_CLOCK_WAIT", 1000.0)
    made = Bench()
    with contextlib.closing(made):
        yield made


def test_no_more_chunks_are_waited_for_than_are_sent_ahead(bench: Bench) -> None:
    """With six slots, on a clock whose times must not depend on when chunks arrive."""
    bench.order(prepare(), Run(1, 0, tuple(cut([4] * 6)[:2])))

    bench.start()

    bench.answers(Prepared, ChunkDone, ChunkDone)


def test_a_fence_drops_what_has_not_been_started(bench: Bench) -> None:
    bench.order(prepare(), Run(1, 0, tuple(cut([4] * 6)[:4])), Fence(1, 0))

    bench.start()

    bench.answers(Prepared, Fenced)


def test_chunks_that_come_after_a_fence_are_dropped(bench: Bench) -> None:
    bench.order(prepare(), Fence(1, 0), Run(1, 0, tuple(cut([4] * 6)[:2])), Fence(1, 0))

    bench.start()

    bench.answers(Prepared, Fenced, Fenced)


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The exit statuses of the process, which goes on."""
    statuses: list[int] = []
    monkeypatch.setattr(os, "_exit", statuses.append)
    return statuses


def dividing_by_zero(*arguments: Any) -> None:
    raise ZeroDivisionError("by zero")


@pytest.mark.parametrize("stop", [Fence(1, 0), Release(1, 0)])
def test_a_device_that_cannot_stop_its_job_ends_its_process(
    stop: Fence | Release, bench: Bench, exits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the engine would wait for the fence forever."""
    bench.order(prepare())
    bench.start()
    bench.answers(Prepared)
    monkeypatch.setattr(EmulatedDevice, "prepare", dividing_by_zero)

    bench.order(stop)

    (failed,) = bench.answers(CommandFailed)
    bench.close()
    assert (failed.job, failed.cause, exits) == (1, "fault", [FAULT_EXIT])
    assert failed.error.message == "the job can't be stopped: ZeroDivisionError: by zero"


def test_an_error_that_is_not_of_a_chunk_ends_the_process(
    bench: Bench, exits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pipeline, "step", dividing_by_zero)
    bench.order(prepare(), Run(1, 0, tuple(cut([4]))))

    bench.start()

    _, failed = bench.answers(Prepared, CommandFailed)
    bench.close()
    assert (failed.cause, exits[0]) == ("fault", FAULT_EXIT)


@pytest.mark.parametrize("policy", [os.SCHED_OTHER, os.SCHED_IDLE])
@pytest.mark.parametrize("link", [False, True])
def test_the_thread_of_a_device_keeps_the_policy_that_the_user_chose(
    link: bool, policy: int
) -> None:
    """A batch thread would wake up late: it doesn't preempt what runs on its core."""
    info = DeviceInfo(name="x", kind="x", identity="x", link=link)

    def policy_of_thread() -> int:
        if os.sched_getscheduler(0) != policy:
            os.sched_setscheduler(0, policy, os.sched_param(0))
        device_thread._pin_threads(info)
        return os.sched_getscheduler(0)

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(policy_of_thread).result() == policy


def test_a_thread_that_ends_unexpectedly_ends_its_process(
    bench: Bench, exits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeviceThread, "_next_command", dividing_by_zero)

    bench.start()
    bench.thread.join(PATIENCE)

    assert exits == [THREAD_EXIT]


class KeepingDevice(EmulatedDevice):
    """An emulated device that keeps memory until it is released."""

    keeps = False
    forgotten = 0

    def prepare(self, job: Any) -> None:
        self.keeps = self.keeps or job is not None
        super().prepare(job)

    def usable_memory(self) -> int:
        return 100 if self.keeps else 200

    def keeps_memory(self) -> bool:
        return self.keeps

    def is_memory_short(self) -> bool:
        return False

    def release_memory(self) -> None:
        self.keeps = False

    def forget_host_memory(self) -> None:
        self.forgotten += 1


def keeping(bench: Bench, warm_for: float) -> KeepingDevice:
    device = KeepingDevice(
        info_of(VIRTUAL), VIRTUAL, VirtualClock(VIRTUAL.engines, VIRTUAL.duplex)
    )
    bench.thread._open_device = lambda info: device
    bench.thread._warm_for = warm_for
    return device


def test_a_device_without_jobs_releases_what_it_keeps(bench: Bench) -> None:
    keeping(bench, warm_for=0.0)
    bench.order(prepare(), Release(1, 0))

    bench.start()

    _, ended, released = bench.answers(Prepared, MemoryReading, MemoryReading)
    assert (ended.nbytes, ended.released) == (100, False)
    assert (released.nbytes, released.released) == (200, True)


def test_a_fault_of_an_idle_device_ends_its_process(
    bench: Bench, exits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping(bench, warm_for=0.0)
    monkeypatch.setattr(KeepingDevice, "release_memory", faulting)
    bench.order(prepare(), Release(1, 0))

    bench.start()

    failed = bench.answers(Prepared, MemoryReading, CommandFailed)[-1]
    bench.close()
    assert (failed.job, failed.cause, exits[0]) == (0, "fault", FAULT_EXIT)


def faulting(device: KeepingDevice) -> None:
    device.keeps = False  # once is enough
    raise DeviceFault("status 700")
