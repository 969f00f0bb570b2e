"""What a GPU keeps between jobs, and when it goes: device memory, pinned memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from accelerator_toys import AffineParams, Bench, shared

from hetsched.device import DeviceInfo
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.simulated import SimulatedRuntime
from hetsched.devices.base import DeviceFault, MemoryKeeper

MIB = 1 << 20
RESERVE = 512 * MIB


def ended(runtime: SimulatedRuntime, place: str = "arena") -> Bench:
    """A bench whose job has ended."""
    bench = Bench(runtime, place)
    bench.run()
    bench.device.prepare(None)
    return bench


@pytest.mark.parametrize("place", ["arena", "plain"])
def test_what_is_kept_for_the_next_job_can_be_released(place: str) -> None:
    runtime = SimulatedRuntime()
    bench = ended(runtime, place)
    assert isinstance(bench.device, MemoryKeeper)
    assert bench.device.keeps_memory()

    bench.device.release_memory()

    assert not bench.device.keeps_memory()
    assert runtime.blocks == {}
    arena = [array.ctypes.data for array in (bench.x, bench.y)] if place == "arena" else []
    assert list(runtime.pins) == arena
    bench.run()
    assert bench.is_right()


def test_what_is_kept_counts_as_usable() -> None:
    runtime = SimulatedRuntime(memory=1 << 30, reserve=RESERVE)
    bench = Bench(runtime, params=AffineParams(12, MIB >> 4))
    before = bench.device.usable_memory()

    bench.run()

    assert runtime.memory().free < (1 << 30) - MIB
    assert bench.device.usable_memory() == before == (1 << 30) - RESERVE


def test_memory_that_others_take_and_give_back_is_seen() -> None:
    runtime = SimulatedRuntime(memory=2 << 30, reserve=RESERVE)
    device = Bench(runtime).device

    runtime.used_by_others = 1 << 30
    assert device.usable_memory() == RESERVE
    runtime.used_by_others = 0
    assert device.usable_memory() == (2 << 30) - RESERVE


def test_the_configured_limit_stays_however_much_is_free() -> None:
    """But the memory that was free when the GPU was probed is no limit."""
    info = DeviceInfo(name="gpu0", kind="cuda", identity="x", link=True, memory=5 * MIB)

    device = Accelerator(info, SimulatedRuntime(memory=2 << 30), limit=100 * MIB)

    assert device.describe().memory == device.usable_memory() == 100 * MIB


@pytest.mark.parametrize(
    ("total", "others", "is_short"),
    [
        (4 << 30, 0, False),
        (4 << 30, RESERVE // 2, False),
        (4 << 30, RESERVE + MIB, True),
        (RESERVE - MIB, 0, True),
    ],
)
def test_memory_is_short_when_little_is_free_or_others_have_come(
    total: int, others: int, is_short: bool
) -> None:
    runtime = SimulatedRuntime(memory=total, reserve=RESERVE)
    device = Bench(runtime).device

    runtime.used_by_others = others

    assert device.is_memory_short() is is_short


def test_memory_is_not_short_because_of_what_the_device_keeps() -> None:
    runtime = SimulatedRuntime(memory=MIB, reserve=64)
    bench = Bench(runtime, params=AffineParams(12, 8192))
    bench.run()

    assert runtime.memory().free <= MIB // 2
    assert not bench.device.is_memory_short()


def test_memory_that_was_detached_is_unpinned_without_a_job() -> None:
    runtime = SimulatedRuntime()
    bench = ended(runtime)
    assert len(runtime.pins) == 2

    bench.hosts.clear()
    bench.x = bench.y = shared((1,), "float32")
    bench.device.forget_host_memory()

    assert runtime.pins == {}


def test_a_fault_is_noticed_by_an_idle_device() -> None:
    runtime = SimulatedRuntime()
    bench = ended(runtime)
    runtime.is_lost = True

    with pytest.raises(DeviceFault, match="unusable"):
        bench.device.usable_memory()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("slots", [1, 3])
def test_the_rest_of_an_array_beyond_the_quota_is_staged(seed: int, slots: int) -> None:
    runtime = SimulatedRuntime(seed=seed)
    params = AffineParams(40, 1024)  # two arrays of 40 pages
    notes: list[str] = []
    bench = Bench(runtime, params=params, chunk=3, slots=slots, pinned=200 << 10, slice_bytes=4096)

    bench.run(say=notes.append)

    assert bench.is_right()
    pins = bench.device._pins
    assert pins.used <= 200 << 10
    x = bench.x.ctypes.data
    assert sum(nbytes for at, nbytes in runtime.pins.items() if x <= at < x + bench.x.nbytes) > 0
    assert any(note.startswith("can't pin all of ") for note in notes)
    assert runtime.pageable == 1  # the resident array: no chunk is copied synchronously


def test_an_array_within_the_quota_needs_no_staging() -> None:
    bench = Bench(SimulatedRuntime(), params=AffineParams(40, 1024), pinned=320 << 10)

    bench.run()

    assert bench.is_right()
    assert bench.device._staging.nbytes == 0


def test_a_child_process_has_no_staging_buffers() -> None:
    """Or the parent's next write would move pages that the GPU copies from and to."""
    bench = Bench(SimulatedRuntime(), "plain")
    bench.run()
    (address, *_) = (memory.ctypes.data for memory in bench.device._staging._buffers.values())

    child = os.fork()
    if child == 0:
        lines = Path("/proc/self/maps").read_text().splitlines()
        spans = [line.split()[0].split("-") for line in lines]
        has = any(int(start, 16) <= address < int(end, 16) for start, end in spans)
        os._exit(int(has))

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
