"""The accelerator on the simulated runtime: right results in any order of queues, and faults."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from accelerator_toys import Affine, AffineParams, Bench, FailedPlan, computed_sizes, failing_plans
from hypothesis import given
from hypothesis import strategies as st

from hetsched.device import Chunk, Slot
from hetsched.device_process.arrays import ArenaArray
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.runtime import DeviceFacts, Fault
from hetsched.devices.accelerator.simulated import (
    RealTime,
    SimulatedError,
    SimulatedRuntime,
    VirtualTime,
)
from hetsched.devices.base import DeviceFault, DeviceOutOfMemory
from hetsched.errors import InternalError, JobFailed, Unavailable, UsageError

MIB = 1 << 20
SEEDS = range(20)


def runs_right(bench: Bench) -> bool:
    """An event that is read before it has passed is as good a sign as a wrong result."""
    try:
        bench.run()
    except JobFailed:
        return False
    return bench.is_right()


@given(
    seed=st.integers(0, 10**6),
    units=st.integers(1, 40),
    chunk=st.integers(1, 7),
    slots=st.integers(1, 5),
    in_place=st.booleans(),
)
def test_results_are_right_in_every_order_of_queues(
    seed: int, units: int, chunk: int, slots: int, in_place: bool
) -> None:
    params = AffineParams(units, 16, in_place)
    bench = Bench(SimulatedRuntime(seed=seed), params=params, chunk=chunk, slots=slots)

    bench.run()

    assert bench.is_right()


@pytest.mark.parametrize("place", ["arena", "file", "plain"])
@pytest.mark.parametrize("in_place", [False, True])
def test_results_are_right_from_every_place(place: str, in_place: bool, tmp_path: Path) -> None:
    for seed in SEEDS:
        bench = Bench(SimulatedRuntime(seed=seed), place, tmp_path, AffineParams(21, 16, in_place))
        bench.run()
        assert bench.is_right()
        bench.close()


@pytest.mark.parametrize("stream", [0, 1, 2], ids=["slot reuse", "copy in", "compute"])
def test_a_dropped_wait_is_seen(stream: int) -> None:
    wrong = 0
    for seed in SEEDS:
        wrong += not runs_right(
            Bench(SimulatedRuntime(seed=seed, ignores_waits=frozenset({stream})), slots=2)
        )

    assert wrong >= 15


def test_reading_into_a_buffer_too_early_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = "hetsched.devices.accelerator.device._wait_for_copy_in"
    monkeypatch.setattr(target, lambda previous: None)
    wrong = 0
    for seed in SEEDS:
        bench = Bench(SimulatedRuntime(seed=seed), "file", tmp_path, slots=1)
        bench.run()
        wrong += not bench.is_right()
        bench.close()

    assert wrong >= 15


@given(
    seed=st.integers(0, 10**6),
    units=st.integers(1, 40),
    chunk=st.integers(1, 7),
    slots=st.integers(1, 4),
    barriers=st.integers(0, 3),
)
def test_results_are_right_with_one_copy_engine(
    seed: int, units: int, chunk: int, slots: int, barriers: int
) -> None:
    runtime = SimulatedRuntime(seed=seed, time=VirtualTime(1))
    bench = Bench(runtime, params=AffineParams(units, 16), chunk=chunk, slots=slots)

    bench.run(barriers=barriers)

    assert bench.is_right()


@pytest.mark.parametrize("engines", [1, 2])
def test_the_next_chunk_is_copied_in_while_a_chunk_is_computed(engines: int) -> None:
    """With one engine, the copy out that waits for the computation must not be before it."""
    runtime = SimulatedRuntime(
        costs=lambda phase, units, nbytes: 1.0, time=VirtualTime(engines), needs_warm_up=False
    )
    runtime.history = []

    Bench(runtime, slots=2).run()

    first, *_ = [op for op in runtime.history if op.phase == "compute"]
    _, _, second, *_ = [op for op in runtime.history if op.phase == "h2d"]  # after b
    assert second.started == first.started


def test_times_are_in_order_and_follow_each_other() -> None:
    bench = Bench(SimulatedRuntime(), params=AffineParams(40))

    times = bench.run()

    for chunk_times in times:
        assert chunk_times.copy_in is not None
        assert chunk_times.copy_out is not None
        ends = [*chunk_times.copy_in, *chunk_times.compute, *chunk_times.copy_out]
        assert ends == sorted(ends)
    assert [t.start for t in times] == sorted(t.start for t in times)


def test_times_are_the_hosts() -> None:
    runtime = SimulatedRuntime(time=RealTime(2, (1.0, 1.0)))
    bench = Bench(runtime, params=AffineParams(40))

    before = time.monotonic()
    times = bench.run()
    after = time.monotonic()

    runtime.close()
    assert before <= times[0].start
    assert times[-1].end <= after


def test_a_barrier_waits_for_everything_before_it() -> None:
    times = Bench(SimulatedRuntime(seed=3), params=AffineParams(40)).run(barriers=3)

    for number in range(3, len(times), 3):
        # float32 milliseconds of the events may differ by their rounding
        assert times[number].start >= max(t.end for t in times[:number]) - 1e-6


def test_no_copy_is_pageable_and_nothing_is_allocated_once_prepared() -> None:
    runtime = SimulatedRuntime()
    bench = Bench(runtime, params=AffineParams(40))
    bench.run()
    blocks, pins, pageable = set(runtime.blocks), dict(runtime.pins), runtime.pageable

    bench.run()

    assert (set(runtime.blocks), runtime.pins) == (blocks, pins)
    assert runtime.pageable == pageable + 1  # the resident array


def test_a_pin_that_is_refused_only_costs_speed() -> None:
    runtime = SimulatedRuntime(pinnable=0)
    bench = Bench(runtime)
    messages: list[str] = []

    bench.run(say=messages.append)

    assert bench.is_right()
    assert runtime.pins == {}
    assert messages[0].startswith("can't pin x (memory fault in pinning)")


def test_copies_are_cut_where_registrations_meet() -> None:
    bench = Bench(SimulatedRuntime(), params=AffineParams(40, 1000), chunk=4, slice_bytes=4096)

    bench.run()

    assert bench.is_right()
    assert len(bench.runtime.pins) > 10


def test_a_resident_array_may_lie_across_registrations_of_an_earlier_job() -> None:
    bench = Bench(SimulatedRuntime(), params=AffineParams(40, 1024), slice_bytes=4096)
    bench.run()

    (spec,) = (spec for spec in Affine().arrays(bench.params) if spec.name == "b")
    bench.b = bench.x[:2].reshape(-1).view("float64")
    bench.hosts["b"] = ArenaArray(spec, bench.b)
    bench.run()

    assert bench.is_right()


def test_a_kernel_computes_each_planned_size_once_before_the_job_on_defined_memory() -> None:
    bench = Bench(SimulatedRuntime())
    job = replace(bench.job(), variant="strict", chunk=2, chunk_sizes=(2, 1))
    computed_sizes.clear()

    bench.device.prepare(job)
    assert computed_sizes == [2, 1]

    bench.device.prepare(job)
    assert computed_sizes == [2, 1]


def test_a_second_job_uses_the_block_and_the_kernel_again() -> None:
    bench = Bench(SimulatedRuntime())
    bench.run()
    blocks = list(bench.runtime.blocks)

    bench.y[...] = np.nan
    bench.run()

    assert bench.is_right()
    assert list(bench.runtime.blocks) == blocks


def test_more_than_the_device_has_is_out_of_memory_and_not_fatal() -> None:
    bench = Bench(SimulatedRuntime(memory=4096), params=AffineParams(12, 1024))

    with pytest.raises(DeviceOutOfMemory, match="gpu0: out of device memory"):
        bench.device.prepare(bench.job())
    bench.device.prepare(None)


def test_a_sticky_fault_ends_the_device() -> None:
    bench = Bench(SimulatedRuntime(faults={9: Fault.STICKY}))

    with pytest.raises(DeviceFault, match="unusable after a fault"):
        bench.run()
    with pytest.raises(DeviceFault):
        bench.device.prepare(None)


def test_a_usage_error_fails_the_job_and_keeps_the_device() -> None:
    bench = Bench(SimulatedRuntime(faults={9: Fault.USAGE}))

    with pytest.raises(JobFailed, match="usage fault in operation 9"):
        bench.run()
    bench.run()

    assert bench.is_right()


def test_an_absent_device_is_unavailable() -> None:
    class Absent(SimulatedRuntime):
        @property
        def facts(self) -> DeviceFacts:
            raise SimulatedError(Fault.ABSENT, "opening")

    with pytest.raises(Unavailable, match="gpu0 can't be used"):
        Bench(Absent())


def test_an_unknown_variant_is_a_usage_error() -> None:
    bench = Bench(SimulatedRuntime())
    job = bench.job()
    object.__setattr__(job, "variant", "cufft")

    with pytest.raises(UsageError, match="no cpu variant 'cufft'"):
        bench.device.prepare(job)


def test_a_slot_beyond_the_memory_set_aside_is_our_bug() -> None:
    bench = Bench(SimulatedRuntime())
    bench.device.prepare(bench.job())

    with pytest.raises(InternalError, match="bytes"):
        bench.device.copy_in(Chunk(0, 0, 2), Slot(9, bench.job().memory))


def test_a_job_given_up_in_the_middle_leaves_the_device_usable() -> None:
    bench = Bench(SimulatedRuntime(seed=5))
    bench.device.prepare(bench.job())
    bench.device.copy_in(Chunk(0, 0, 2), Slot(0, 0))

    bench.run()

    assert bench.is_right()


def test_describe_says_what_is_left_after_the_reserve() -> None:
    device: Accelerator = Bench(
        SimulatedRuntime(memory=4 << 30, reserve=MIB, time=VirtualTime(1))
    ).device

    info = device.describe()

    assert (info.memory, info.engines) == ((4 << 30) - MIB, 1)


def test_a_variant_that_can_not_be_made_is_a_usage_error() -> None:
    bench = Bench(SimulatedRuntime())
    job = bench.job()
    object.__setattr__(job, "variant", "broken")

    with pytest.raises(UsageError, match="variant broken can't be made here: ValueError: not to"):
        bench.device.prepare(job)
    bench.run()

    assert bench.is_right()


def test_out_of_memory_while_a_variant_is_made_is_no_fault_of_its() -> None:
    bench = Bench(SimulatedRuntime(memory=1 << 16))
    job = bench.job()
    bench.device.prepare(job)

    with pytest.raises(DeviceOutOfMemory):
        bench.device.prepare(replace(job, variant="greedy"))


def test_a_job_without_a_work_area_gives_the_last_one_back() -> None:
    bench = Bench(SimulatedRuntime())
    bench.run()
    before = len(bench.runtime.blocks)
    job = bench.job()
    demand = replace(job.demand, work="sum", work_bytes=0)

    bench.device.prepare(replace(job, demand=demand, variant="modest"))

    assert len(bench.runtime.blocks) == before - 1


def test_memory_of_earlier_jobs_is_freed_when_a_kernel_needs_it() -> None:
    """The block of the last job is large enough for the next, but leaves too little for plans."""
    runtime = SimulatedRuntime(memory=3 << 20)
    bench = Bench(runtime, params=AffineParams(12, 32768), slots=4)
    bench.run()
    small = replace(bench.job(), chunk=1, slots=1, memory=256 << 10)

    bench.device.prepare(replace(small, variant="hungry"))

    assert len(runtime.blocks) == 3


def test_a_plan_without_a_reason_for_its_failure_is_one_of_memory_first() -> None:
    """cuFFT reports low memory as an internal error too."""
    bench = Bench(SimulatedRuntime())
    job = replace(bench.job(), variant="fickle")

    failing_plans[:] = [FailedPlan()]
    bench.device.prepare(job)  # the memory of earlier jobs was enough

    for _ in range(2):
        failing_plans[:] = [FailedPlan(), FailedPlan()]
        with pytest.raises(DeviceOutOfMemory, match="memory may be low"):
            bench.device.prepare(replace(job, chunk=1))


def test_plans_that_fail_now_and_then_are_short_of_memory_each_time() -> None:
    bench = Bench(SimulatedRuntime())
    job = replace(bench.job(), variant="fickle")

    for _ in range(4):
        failing_plans[:] = [FailedPlan(), FailedPlan()]
        with pytest.raises(DeviceOutOfMemory):
            bench.device.prepare(job)
        bench.device.prepare(replace(job, variant="plain"))  # succeeds at once


def test_plans_that_fail_whatever_their_size_end_the_process() -> None:
    bench = Bench(SimulatedRuntime())
    job = replace(bench.job(), variant="fickle")
    failing_plans[:] = [FailedPlan()] * 6

    for _ in range(2):
        with pytest.raises(DeviceOutOfMemory):
            bench.device.prepare(job)
    with pytest.raises(DeviceFault, match="ever smaller plans"):
        bench.device.prepare(job)


def test_a_plan_that_fails_because_the_context_is_lost_ends_the_process() -> None:
    runtime = SimulatedRuntime()
    bench = Bench(runtime)
    bench.device.prepare(bench.job())
    failing_plans[:] = [FailedPlan()]

    def synchronize() -> None:
        runtime.is_lost = not failing_plans
        runtime.check()

    runtime.synchronize = synchronize  # type: ignore[method-assign]
    with pytest.raises(DeviceFault, match="unusable"):
        bench.device.prepare(replace(bench.job(), variant="fickle"))
