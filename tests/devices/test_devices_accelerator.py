from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.device_process.arrays import ArenaArray
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.runtime import DeviceFacts, Fault
from hetsched.devices.accelerator.simulated import VirtualTime
from hetsched.devices.base import DeviceFault, DeviceJob, DeviceOutOfMemory, MemoryKeeper
from hetsched.errors import DataError, Unavailable, UsageError
from hetsched.testing.devices import cut, drive
from hetsched.testing.simulated import StrictError, StrictRuntime
from hetsched.testing.toys import Affine, Make, ToyJob, ToyParams, Update
from hetsched.workload import Arrays, Kernel, KernelContext

MIB = 1 << 20
RESERVE = 512 * MIB
GPU = DeviceInfo(name="gpu0", kind="cuda", identity="simulated GPU", link=True)


class Bench(ToyJob):
    """A job in chunks of `chunk` units, and its device."""

    def __init__(
        self,
        runtime: StrictRuntime | None = None,
        units: int = 12,
        chunk: int = 2,
        slots: int = 3,
        make: Make | None = None,
        folder: Path | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(Affine(make), ToyParams(units), folder)
        self.runtime = runtime or StrictRuntime()
        self.chunk, self.slots = chunk, slots
        self.device = Accelerator(GPU, self.runtime, **settings)

    def job(self, **settings: Any) -> DeviceJob:
        return self.described("cpu", self.chunk, self.slots, **settings)

    def run(self, job: DeviceJob | None = None) -> list[ChunkTimes]:
        whole, rest = divmod(self.load, self.chunk)
        chunks = cut([self.chunk] * whole + [rest] * (rest > 0))
        times = drive(self.device, job or self.job(), chunks)
        return [times[number] for number in sorted(times)]


# ---- order and times


@pytest.mark.parametrize("seed", range(8))
def test_a_staging_buffer_is_filled_when_its_last_copy_has_ended(
    seed: int, tmp_path: Path
) -> None:
    """Also by a host that comes late: all that was started has ended before it waits."""
    bench = Bench(StrictRuntime(seed=seed), 72, 3, slots=1 + seed % 2, folder=tmp_path)
    if seed % 4 > 1:
        wait = bench.device.wait
        bench.device.wait = lambda chunk: (bench.runtime.synchronize(), wait(chunk))[1]  # type: ignore[method-assign]

    bench.run()

    assert bench.is_right()


@pytest.mark.parametrize("engines", [1, 2])
def test_the_next_chunk_is_copied_in_while_a_chunk_is_computed(engines: int) -> None:
    """With one engine, the copy out that waits for the computation must not be before it."""
    runtime = StrictRuntime(
        costs=lambda phase, units, nbytes: 1.0, time=VirtualTime(engines), needs_warm_up=False
    )
    runtime.history = []

    Bench(runtime, slots=2).run()

    first, *_ = [op for op in runtime.history if op.phase == "compute"]
    _, second, *_ = [op for op in runtime.history if op.phase == "h2d"]
    assert second.started == first.started


# ---- steady state, pinned and staged memory


def test_once_prepared_no_copy_is_pageable_and_nothing_is_allocated_or_pinned() -> None:
    bench = Bench(units=40)
    bench.run()
    runtime = bench.runtime
    before = set(runtime.blocks), dict(runtime.pins), runtime.pageable

    bench.run()

    assert (set(runtime.blocks), runtime.pins, runtime.pageable) == before
    assert runtime.pageable == 0


def test_a_pin_that_is_refused_only_costs_speed() -> None:
    bench = Bench(StrictRuntime(pinnable=0))
    notes: list[str] = []

    bench.run(replace(bench.job(), say=notes.append))

    assert bench.is_right()
    assert bench.runtime.pins == {}
    assert notes[0].startswith("can't pin x (memory fault in pinning)")


def test_a_resident_array_may_lie_across_registrations_of_an_earlier_job() -> None:
    bench = Bench(units=1000, chunk=300, slice_bytes=4096)
    bench.run()
    update, across = ToyJob(Update(), ToyParams(4)), bench.inputs["x"].direct(0, 1000)
    assert across is not None
    update.values["b"] = across.reshape(-1)[511:514]
    update.inputs["b"] = ArenaArray(update.inputs["b"].spec, update.values["b"])

    drive(bench.device, update.described("cpu", 4), cut([4]))

    assert update.is_right()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("slots", [1, 3])
def test_the_rest_of_an_array_beyond_the_quota_is_staged(seed: int, slots: int) -> None:
    quota, notes = 200 << 10, list[str]()
    bench = Bench(
        StrictRuntime(seed=seed), 5120, 250, slots, pinned=quota, slice_bytes=4096
    )  # two arrays of 40 pages

    bench.run(replace(bench.job(), say=notes.append))

    assert bench.is_right()
    assert 0 < sum(bench.runtime.pins.values()) <= quota
    assert any(note.startswith("can't pin all of ") for note in notes)
    assert bench.runtime.pageable == 0


def test_a_child_process_has_no_staging_buffers(tmp_path: Path) -> None:
    """Or the parent's next write would move pages that the GPU copies from and to."""
    bench = Bench(folder=tmp_path)
    bench.run()
    address = next(iter(bench.runtime.pins))

    child = os.fork()
    if child == 0:
        lines = Path("/proc/self/maps").read_text().splitlines()
        spans = [line.split()[0].split("-") for line in lines]
        has = any(int(start, 16) <= address < int(end, 16) for start, end in spans)
        os._exit(int(has))

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# ---- kernels


def strict(p: Any, chunk: int, context: KernelContext) -> Kernel:
    """Refuses what a kernel may not see: memory that nobody has written."""
    plain = Affine().variants("cpu")[0].make(p, chunk, context)

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        computed.append(len(inputs["x"]))
        if not (inputs["x"] < 1e100).all():
            raise DataError("x must be finite")
        plain(inputs, outputs)

    return kernel


computed: list[int] = []
"""Sizes of the chunks that kernels of `strict` have computed."""


def test_a_kernel_computes_each_planned_size_once_before_the_job_on_defined_memory() -> None:
    bench = Bench(make=strict)
    computed.clear()

    for _ in range(2):
        bench.device.prepare(replace(bench.job(), chunk_sizes=(2, 1)))

    assert computed == [2, 1]


def choosy(p: Any, chunk: int, context: KernelContext) -> Kernel:
    kernel = Affine().variants("cpu")[0].make(p, chunk, context)

    def refusing(inputs: Arrays, outputs: Arrays) -> None:
        if not inputs["x"].any():
            raise DataError("x is 0")
        kernel(inputs, outputs)

    return refusing


def test_a_kernel_may_refuse_the_zeros_on_which_it_is_warmed_up() -> None:
    bench = Bench(make=choosy)

    bench.run()

    assert bench.is_right()


def greedy(p: Any, chunk: int, context: KernelContext) -> Kernel:
    assert context.allocate is not None
    context.allocate(1 << 40)
    raise AssertionError("there is no such memory")


def impossible(p: Any, chunk: int, context: KernelContext) -> Kernel:
    raise ValueError("not to be made")


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (greedy, DeviceOutOfMemory, "gpu0: out of device memory"),
        (impossible, UsageError, "variant plain can't be made here: ValueError: not to be made"),
    ],
)
def test_a_kernel_that_can_not_be_made_says_whether_memory_is_the_reason(
    make: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        Bench(make=make).run()


def test_memory_of_earlier_jobs_is_freed_when_a_kernel_needs_it() -> None:
    """The block of the last job is large enough for the next, but leaves too little for plans."""

    def hungry(p: Any, chunk: int, context: KernelContext) -> Kernel:
        assert context.allocate is not None
        plans = context.allocate(2 * MIB)
        plain = Affine().variants("cpu")[0].make(p, chunk, context)
        return lambda inputs, outputs: plain(inputs, outputs) if plans.nbytes else None

    runtime = StrictRuntime(memory=3 * MIB)
    Bench(runtime, 40_000, 10_000).run()
    small = Bench(runtime, make=hungry)

    small.run()

    assert small.is_right()


class FailedPlan(StrictError):
    """Like an internal error of cuFFT, which low memory may cause."""

    def __init__(self) -> None:
        super().__init__(Fault.PLAN, "a plan")


def fickle(failures: list[Exception]) -> Any:
    """Make plans while there are no failures."""

    def make(p: Any, chunk: int, context: KernelContext) -> Kernel:
        if failures:
            raise failures.pop()
        return Affine().variants("cpu")[0].make(p, chunk, context)

    return make


def test_a_plan_that_fails_for_no_reason_is_one_of_memory_if_the_context_lives() -> None:
    failures: list[Exception] = [FailedPlan()]
    bench = Bench(make=fickle(failures))
    bench.run()  # the memory of earlier jobs was enough
    assert bench.is_right()

    failures[:] = [FailedPlan(), FailedPlan()]
    with pytest.raises(DeviceOutOfMemory, match="memory may be low"):
        bench.device.prepare(replace(bench.job(), chunk=1))


# ---- faults


def test_a_sticky_fault_ends_the_device() -> None:
    bench = Bench(StrictRuntime(faults={9: Fault.STICKY}))

    with pytest.raises(DeviceFault, match="unusable after a fault"):
        bench.run()
    with pytest.raises(DeviceFault):
        bench.device.prepare(None)


def test_an_absent_device_is_unavailable() -> None:
    class Absent(StrictRuntime):
        @property
        def facts(self) -> DeviceFacts:
            raise StrictError(Fault.ABSENT, "opening")

    with pytest.raises(Unavailable, match="gpu0 can't be used"):
        Bench(Absent())


# ---- what is kept between jobs


@pytest.mark.parametrize("in_files", [False, True])
def test_what_is_kept_for_the_next_job_can_be_released(in_files: bool, tmp_path: Path) -> None:
    bench = Bench(folder=tmp_path if in_files else None)
    bench.run()
    bench.device.prepare(None)
    assert isinstance(bench.device, MemoryKeeper)
    assert bench.device.keeps_memory()

    bench.device.release_memory()

    assert not bench.device.keeps_memory()
    assert not bench.runtime.blocks
    assert len(bench.runtime.pins) == (0 if in_files else 2)
    bench.run()
    assert bench.is_right()


def test_what_is_kept_counts_as_usable_and_what_others_take_does_not() -> None:
    runtime = StrictRuntime(memory=2 << 30, reserve=RESERVE)
    bench = Bench(runtime, 40_000, 10_000)
    info = bench.device.describe()

    bench.run()

    assert runtime.memory().free < (2 << 30) - MIB
    assert bench.device.usable_memory() == info.memory == (2 << 30) - RESERVE
    runtime.used_by_others = 1 << 30
    assert bench.device.usable_memory() == RESERVE


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
    bench = Bench(StrictRuntime(memory=total, reserve=RESERVE))
    bench.run()  # what the device keeps doesn't count

    bench.runtime.used_by_others = others

    assert bench.device.is_memory_short() is is_short


def test_memory_that_was_detached_is_unpinned_without_a_job() -> None:
    bench = Bench()
    bench.run()
    bench.device.prepare(None)
    assert len(bench.runtime.pins) == 2

    bench.inputs.clear()
    bench.outputs.clear()
    bench.device.forget_host_memory()

    assert bench.runtime.pins == {}
