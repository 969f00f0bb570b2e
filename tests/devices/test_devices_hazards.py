"""Each wait and guard between a chunk's phases is needed: some seeds reveal its absence.

A device without one of them computes wrong numbers, raises, or says times at which one engine did
two things or one slot held two chunks: with every seed.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from accelerator_toys import AffineParams
from accelerator_toys import Bench as CudaBench
from device_bench import VIRTUAL, Bench, affine_bench, cut, drive, info_of, update_bench

from hetsched.device import Chunk, ChunkTimes, DeviceInfo, Slot
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.simulated import SimulatedRuntime
from hetsched.devices.base import Device, DeviceJob
from hetsched.devices.emulated.device import open_device
from hetsched.plans.slots import slot_bytes

SEEDS = pytest.mark.parametrize("seed", range(20))
UNITS = 72
CUDA = DeviceInfo(name="gpu0", kind="cuda", identity="simulated GPU", link=True)
ROUNDING = 1e-12
"""Seconds: times are sums of differences."""
STRIDE = 512
"""Bytes of the slot of a small chunk."""


class Placed:
    """A device that remembers where the chunks lay."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.spans: dict[int, range] = {}

    def prepare(self, job: DeviceJob) -> None:
        self.demand = job.demand
        self.device.prepare(job)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    def copy_in(self, chunk: Chunk, slot: Slot) -> None:
        size = slot_bytes(self.demand, chunk.count)
        self.spans[chunk.id] = range(slot.offset, slot.offset + size)
        self.device.copy_in(chunk, slot)


def virtual(seed: int, **changes: Any) -> Placed:
    """Phases that stall at random, and copies that slow each other down."""
    settings = {"stalls": 0.3, "seed": seed, "duplex": (0.9, 0.8), **changes}
    config = msgspec.structs.replace(VIRTUAL, **settings)
    return Placed(open_device(info_of(config), config))


def fake_gpu(seed: int) -> Accelerator:
    return Accelerator(CUDA, SimulatedRuntime(memory=8 << 10, seed=seed), pinned=1 << 30)


class Late:
    """A device whose host always comes late: all that was started has ended before it waits."""

    def __init__(self, seed: int) -> None:
        self.runtime = SimulatedRuntime(memory=8 << 10, seed=seed)
        self.device = Accelerator(CUDA, self.runtime, pinned=1 << 30)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    def wait(self, chunk: Chunk) -> ChunkTimes:
        self.runtime.synchronize()
        return self.device.wait(chunk)


def check(
    device: Any,
    job: DeviceJob,
    chunks: Sequence[Chunk],
    ring: bool = True,
    sizes: Sequence[int] = (),
) -> None:
    times = drive(device, job, chunks, ring, sizes=sizes)
    if isinstance(device, Placed):
        check_engines(device, times)
        check_slots(device, times)
        check_barriers(chunks, times)


def check_engines(device: Placed, times: dict[int, ChunkTimes]) -> None:
    """Each does one thing at a time, and a chunk's phases come in order."""
    engines = device.describe().engines
    names = {2: ("in", "compute", "out"), 1: ("copy", "compute", "copy"), 0: ("all",) * 3}
    busy: dict[str, list[tuple[float, float]]] = {}
    for chunk_times in times.values():
        assert chunk_times.copy_in is not None and chunk_times.copy_out is not None
        assert (
            chunk_times.copy_in[1] <= chunk_times.compute[0]
            and chunk_times.compute[1] <= chunk_times.copy_out[0]
        )
        phases = zip(
            names[engines],
            (chunk_times.copy_in, chunk_times.compute, chunk_times.copy_out),
            strict=True,
        )
        for engine, span in phases:
            busy.setdefault(engine, []).append(span)
    for spans in busy.values():
        assert all(a[1] <= b[0] + ROUNDING for a, b in itertools.pairwise(sorted(spans)))


def check_slots(device: Placed, times: dict[int, ChunkTimes]) -> None:
    """A chunk comes into memory when all that lay there have left it."""
    for a, b in itertools.combinations(sorted(times), 2):
        first, second = device.spans[a], device.spans[b]
        if first.start < second.stop and second.start < first.stop:
            assert times[b].start >= times[a].end - ROUNDING


def check_barriers(chunks: Sequence[Chunk], times: dict[int, ChunkTimes]) -> None:
    for chunk in chunks:
        earlier = [times[before].end for before in range(chunk.id)]
        assert not chunk.barrier or times[chunk.id].start >= max(earlier) - ROUNDING


def check_bench(device: Any, bench: Bench, slots: int, *cutting: Any, ring: bool = True) -> None:
    """Memory holds `slots` of the largest chunk."""
    chunks = cut(*cutting)
    job = bench.job(device.describe().kind, max(chunk.count for chunk in chunks), slots)
    check(device, job, chunks, ring)
    name = next(iter(bench.outputs))
    np.testing.assert_allclose(bench.result(name), bench.expected(), rtol=1e-12)


EVEN = [3] * (UNITS // 3)
ODD, EDGES = [8, 8, 8, 8, 16, 16] * 6, sorted([*range(4, 36, 6), *range(6, 36, 6)])
"""What lies in the same memory one after the other has different numbers of slots."""


@SEEDS
def test_virtual_ring(seed: int) -> None:
    check_bench(virtual(seed), affine_bench(UNITS), 2, EVEN)


@SEEDS
def test_virtual_one_engine(seed: int) -> None:
    check_bench(virtual(seed, engines=1), affine_bench(UNITS), 2, EVEN)


@SEEDS
def test_virtual_no_engine(seed: int) -> None:
    check_bench(virtual(seed, engines=0), affine_bench(UNITS), 2, EVEN)


@SEEDS
def test_virtual_one_slot(seed: int) -> None:
    check_bench(virtual(seed, engines=1), affine_bench(UNITS), 1, EVEN)


def check_odd(device: Any, seed: int) -> None:
    """Slots for 8 and for 16 units; among the chunks in turn are some of another device."""
    rng = random.Random(seed)
    sizes = [
        size for turn in range(12) for size in ([8, 16] if turn % 3 else [rng.randint(1, 16)])
    ]
    chunks = [
        msgspec.structs.replace(chunk, last=chunk.last or chunk.count not in (8, 16))
        for chunk in cut(sizes)
    ]
    bench = affine_bench(sum(sizes))
    kind = device.describe().kind
    demand = bench.workload.demand(bench.params, kind)
    memory = slot_bytes(demand, 8) + slot_bytes(demand, 16)
    check(device, bench.job(kind, 16, 2, memory), chunks, sizes=(8, 16))
    np.testing.assert_allclose(bench.result("y"), bench.expected(), rtol=1e-12)


@SEEDS
def test_virtual_odd_slots(seed: int) -> None:
    check_odd(virtual(seed, engines=2 - seed % 2), seed)


@SEEDS
def test_cuda_odd_slots(seed: int) -> None:
    check_odd(fake_gpu(seed), seed)


@SEEDS
def test_virtual_installments(seed: int) -> None:
    check_bench(virtual(seed), affine_bench(sum(ODD)), 2, ODD, ring=False)


@SEEDS
def test_virtual_barriers(seed: int) -> None:
    check_bench(virtual(seed), affine_bench(sum(ODD)), 3, ODD, EDGES, ring=False)


@SEEDS
def test_virtual_update(seed: int) -> None:
    check_bench(virtual(seed), update_bench(UNITS), 2, EVEN)


@SEEDS
def test_virtual_forgotten(seed: int) -> None:
    """What was started and not waited for ends before the job is forgotten."""
    device, bench = virtual(seed).device, affine_bench(6)
    device.prepare(bench.job("emulated", 3))
    for chunk, slot in zip(cut([3, 3]), (Slot(0, 0), Slot(1, STRIDE)), strict=True):
        for operation in (device.copy_in, device.compute, device.copy_out):
            operation(chunk, slot)

    device.prepare(None)

    np.testing.assert_array_equal(bench.result("y"), bench.expected())


@SEEDS
def test_cuda_ring(seed: int) -> None:
    check_bench(fake_gpu(seed), affine_bench(UNITS), 2, EVEN)


@SEEDS
def test_cuda_installments(seed: int) -> None:
    check_bench(fake_gpu(seed), affine_bench(8 * sum(ODD)), 2, 8 * ODD, ring=False)


@SEEDS
def test_cuda_barriers(seed: int) -> None:
    check_bench(fake_gpu(seed), affine_bench(sum(ODD)), 3, ODD, EDGES, ring=False)


@SEEDS
def test_cuda_update(seed: int) -> None:
    check_bench(fake_gpu(seed), update_bench(UNITS), 2, EVEN)


@SEEDS
def test_cuda_files(seed: int, tmp_path: Path) -> None:
    check_bench(fake_gpu(seed), affine_bench(UNITS, folder=tmp_path), 2, EVEN)


@SEEDS
def test_cuda_late_files(seed: int, tmp_path: Path) -> None:
    check_bench(Late(seed), affine_bench(UNITS, folder=tmp_path), 2, EVEN)


@SEEDS
def test_cuda_barrier_times(seed: int) -> None:
    times = CudaBench(SimulatedRuntime(seed=seed), params=AffineParams(40)).run(barriers=3)

    for number in range(3, len(times), 3):
        # float32 milliseconds of the events may differ by their rounding
        assert times[number].start >= max(t.end for t in times[:number]) - 1e-6


@SEEDS
def test_cuda_forgotten(seed: int) -> None:
    device, bench = fake_gpu(seed), affine_bench(6)
    device.prepare(bench.job("cuda", 3))
    for chunk, slot in zip(cut([3, 3]), (Slot(0, 0), Slot(1, STRIDE)), strict=True):
        for operation in (device.copy_in, device.compute, device.copy_out):
            operation(chunk, slot)

    device.prepare(None)

    np.testing.assert_array_equal(bench.result("y"), bench.expected())
