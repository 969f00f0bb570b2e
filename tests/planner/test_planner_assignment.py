from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner_devices import FAST, MIB, PLANE, core, demand, gpu, units

from hetsched.models import DeviceModel
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import Assignment, Candidate
from hetsched.plans import (
    MemoryDemand,
    Overlap,
    timeline,
)
from hetsched.plans.device_plan import check
from hetsched.plans.slots import SlotAllocator, slot_bytes, slotted


def test_a_measured_device_with_a_link_gets_a_ring() -> None:
    plan = plan_job(256, [gpu(FAST), *(core(i, 2.1e-3) for i in range(8))])
    assignment = plan.assignments[0]
    assert assignment.is_ring
    assert assignment.slots == assignment.plan.slots >= 2
    assert assignment.window == assignment.slots + 1
    assert assignment.slot_memory == sum(assignment.slot_sizes) * 2 * PLANE <= 64 * MIB
    assert assignment.predicted_seconds is not None
    cost = timeline(assignment.plan, FAST, Overlap.FULL).makespan
    assert assignment.predicted_seconds == pytest.approx(cost, rel=0.05)
    assert plan.predicted_seconds == pytest.approx(39.9e-3, rel=0.02)


def test_chunks_from_files_are_small() -> None:
    (assignment,) = plan_job(100, [replace(core(0, 1e-5), is_staged=True)]).assignments
    assert assignment.max_chunk * 2 * PLANE <= 16 * MIB
    big = replace(core(0), is_staged=True, demand=demand(plane=100 * MIB))
    assert plan_job(5, [big]).assignments[0].max_chunk == 1


candidates = st.lists(
    st.one_of(
        st.builds(core, st.integers(0, 99), st.floats(1e-4, 1e-2)),
        st.builds(core, st.integers(100, 199), st.none()),
        st.just(gpu(FAST)),
        st.just(gpu(None, memory=9 * 2 * PLANE)),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda candidate: candidate.info.name,
)


@given(st.integers(1, 700), candidates)
def test_every_unit_is_in_exactly_one_chunk_and_every_plan_fits(
    load: int, devices: list[Candidate]
) -> None:
    plan = plan_job(load, devices)
    assert units(plan) == list(range(load))
    ids = [chunk.id for a in plan.assignments for chunk in a.chunks]
    assert len(ids) == len(set(ids))
    by_name = {candidate.info.name: candidate for candidate in devices}
    for assignment in plan.assignments:
        assert tuple(chunk.count for chunk in assignment.chunks) == assignment.plan.chunks
        assert assignment.max_chunk == max(assignment.plan.chunks)
        assert assignment.slots <= len(assignment.chunks)
        candidate = by_name[assignment.device]
        if candidate.info.link:
            check(assignment.plan, slotted(candidate.demand))
            assert_layout_follows(assignment, candidate.demand)


def assert_layout_follows(assignment: Assignment, memory: MemoryDemand) -> None:
    """The slots that the device process hands out are those that the plan counted on."""
    layout = SlotAllocator(
        lambda x: slot_bytes(memory, x),
        assignment.slot_memory,
        assignment.slots,
        assignment.is_ring,
        assignment.max_chunk,
    )
    waits = [layout.allocate(chunk.count, chunk.barrier)[1] for chunk in assignment.chunks]
    assert waits == [chunk.barrier for chunk in assignment.chunks]


@pytest.mark.parametrize("model", [None, FAST])
@pytest.mark.parametrize("plane", [1000, PLANE, 100 * MIB])
def test_files_pass_through_host_buffers_of_64_mib(model: DeviceModel | None, plane: int) -> None:
    load = (2 << 30) // plane
    candidate = replace(gpu(model, memory=64 << 30, plane=plane), is_staged=True)
    (assignment,) = plan_job(load, [candidate]).assignments
    assert assignment.plan.share == load
    assert assignment.slots * assignment.max_chunk * 2 * plane <= max(64 * MIB, 2 * plane)


def test_the_first_chunks_of_a_core_have_64_mib_at_most() -> None:
    (assignment,) = plan_job(50, [replace(core(), demand=demand(plane=16 * MIB))]).assignments
    assert assignment.max_chunk == 2
    (assignment,) = plan_job(5, [replace(core(), demand=demand(plane=160 * MIB))]).assignments
    assert assignment.max_chunk == 1
