"""Once a job is prepared nothing more is allocated: chunks use existing memory."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from device_bench import LINKED, Bench, cut, info_of

from hetsched.config import Cost
from hetsched.device import DeviceInfo
from hetsched.device_process.prepared_job import Pipeline
from hetsched.devices.base import Device
from hetsched.devices.cpu.device import CpuDevice
from hetsched.devices.emulated.device import EmulatedGpu, open_device
from hetsched.plans.slots import SlotAllocator, slot_bytes

CHUNK, CHUNKS, SLOTS = 4096, 10, 3
"""128 KiB in, as many out."""
WARM = 6
NOTHING = 64 << 10
"""Bytes of the records of a window, and of lists that double: less than half of one array."""


def linked() -> Device:
    brief = Cost(unit="1ns")
    config = msgspec.structs.replace(LINKED, compute=brief, h2d=brief, d2h=brief, memory="2MiB")
    return open_device(info_of(config), config)


def core() -> Device:
    return CpuDevice(DeviceInfo(name="cpu0", kind="cpu", identity="test"))


DEVICES = {"linked": linked, "core": core}


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    opened = DEVICES[request.param]()
    with contextlib.ExitStack() as stack:
        if isinstance(opened, EmulatedGpu):
            stack.callback(opened.close)
        yield opened


def begun(device: Device, bench: Bench) -> Pipeline:
    """A pipeline that has done a few chunks; the rest waits."""
    link = device.describe().link
    job = bench.job(CHUNK, SLOTS)
    device.prepare(job)
    layout = SlotAllocator(
        lambda units: slot_bytes(job.demand, units), job.memory if link else 0, SLOTS, True, CHUNK
    )
    flow = Pipeline(device, layout, SLOTS + 1 if link else 1, lambda chunk, times: None)
    chunks = cut([CHUNK] * CHUNKS)
    flow.add(chunks[:WARM])
    while flow.pending:
        flow.step()
    flow.add(chunks[WARM:])
    return flow


@pytest.mark.parametrize("stored", ["memory", "files"])
def test_no_chunk_takes_new_memory(device: Device, stored: str, tmp_path: Path) -> None:
    bench = Bench(CHUNK * CHUNKS, folder=tmp_path if stored == "files" else None)
    flow = begun(device, bench)

    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        while flow.pending:
            flow.step()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak - before < NOTHING
    assert (bench.result() == bench.expected()).all()
