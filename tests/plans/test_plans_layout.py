from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.device import DeviceInfo
from hetsched.errors import DataError
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.planner.assignment import Participant, linked_assignment
from hetsched.planner.records import Assignment, Candidate
from hetsched.plans import DevicePlan, Overlap, best_plan, check
from hetsched.plans.slots import ALIGNMENT, SlotAllocator, aligned, slot_bytes, slotted


def bytes_of(units: int) -> int:
    return 1000 * units


def test_a_chunk_of_another_device_goes_on_to_a_slot_that_holds_it() -> None:
    layout = SlotAllocator(bytes_of, memory=6 * 1024, slots=3, ring=True, chunk=3, sizes=(3, 2, 1))
    places = [layout.allocate(units, False)[0].index for units in (2, 3, 2, 2, 3, 1, 1)]
    assert places == [0, 0, 1, 0, 0, 1, 2]


def odd_batches(units: int) -> int:
    return 1000 * units + (3000 * units if units % 2 else 0)


def test_a_smaller_chunk_that_needs_more_than_any_slot_is_an_error() -> None:
    layout = SlotAllocator(odd_batches, memory=2 * 4096, slots=2, ring=True, chunk=4)
    with pytest.raises(DataError, match=r"3 units needs 12 KiB .* more than the 4 KiB"):
        layout.allocate(3, False)


def test_a_slot_holds_a_work_area_unless_all_chunks_share_one() -> None:
    private = MemoryDemand(input_bytes=100, work_bytes=500, output_bytes=100)
    shared = MemoryDemand(input_bytes=100, work_bytes=500, output_bytes=100, work="max")
    assert slot_bytes(private, 1) == 1024
    assert slot_bytes(shared, 1) == 512
    assert slotted(shared).need([1, 2]) == 512 + 512 + 1000


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
    st.lists(st.tuples(st.integers(1, 50), st.booleans()), max_size=30),
    st.integers(0, 5000),
)
def test_no_two_live_slots_overlap(
    sizes: list[int], has_sizes: bool, ring: bool, places: list[tuple[int, bool]], spare: int
) -> None:
    chunk = max(sizes)
    holds = sizes if has_sizes and ring else [chunk] * len(sizes)
    memory = sum(aligned(bytes_of(size)) for size in holds) + spare
    layout = SlotAllocator(
        bytes_of, memory, len(sizes), ring, chunk, sizes if has_sizes and ring else ()
    )
    live: dict[int, tuple[int, int]] = {}
    for units, barrier in places:
        size = min(units, chunk)
        slot, empty = layout.allocate(size, barrier)
        assert empty or not barrier
        if empty:
            live.clear()
        live.pop(slot.index, None)  # the device orders chunks of one slot
        end = slot.offset + bytes_of(size)
        assert slot.offset % ALIGNMENT == 0
        assert end <= memory
        assert all(end <= low or high <= slot.offset for low, high in live.values())
        live[slot.index] = (slot.offset, end)


ENGINES = {Overlap.NONE: 0, Overlap.SINGLE: 1, Overlap.FULL: 2}


def case(seed: int) -> tuple[int, DeviceModel, MemoryDemand, Overlap]:
    """A share, a device, a demand for `room` units of about 1000 bytes, small rooms mostly."""
    rng = random.Random(seed)
    share, room = rng.randint(1, 150), round(1.5 ** rng.uniform(1, 13))
    curves = [Affine(rng.uniform(0, 30e-6), 10 ** rng.uniform(-6, -4)) for _ in range(3)]
    model = DeviceModel(PiecewiseLinear(), curves[0], curves[1], curves[2])
    unit, work = rng.choice([512, 1000, 700]), rng.choice([0, 0, 300])
    demand = MemoryDemand(
        input_bytes=unit, work_bytes=work, output_bytes=rng.choice([0, unit]),
        resident_bytes=rng.choice([0, 4096]), work=rng.choice(["sum", "max"]),
    )  # fmt: skip
    unit_bytes = slotted(demand).need([1]) - demand.resident_bytes
    limit = demand.resident_bytes + unit_bytes * room + rng.randint(0, unit_bytes - 1)
    return (
        share, model, MemoryDemand(**{**vars(demand), "limit": limit}),
        rng.choice([Overlap.SINGLE, Overlap.FULL, Overlap.FULL, Overlap.NONE]),
    )  # fmt: skip


def assigned(
    model: DeviceModel, demand: MemoryDemand, overlap: Overlap, plan: DevicePlan
) -> Assignment:
    info = DeviceInfo(
        name="g", kind="emulated", identity="g", link=True, memory=demand.limit,
        engines=ENGINES[overlap],
    )  # fmt: skip
    candidate = Candidate(info, demand, {"v": model}, {"v": 3})
    participant = Participant(candidate, "v", model, None)
    return linked_assignment(participant, plan, 0, itertools.count())


def in_memory(assignment: Assignment, demand: MemoryDemand) -> Iterator[int]:
    """Bytes from the first to the last that is in use, whenever a chunk comes.

    Asserts that none waits for more than the chunk that the plan says.
    """
    layout = SlotAllocator(
        lambda units: slot_bytes(demand, units),
        assignment.slot_memory,
        assignment.slots,
        assignment.plan.slots > 0,
        assignment.max_chunk,
        assignment.slot_sizes,
    )
    live: dict[int, tuple[int, int, int]] = {}
    for number, chunk in enumerate(assignment.chunks):
        slot, waits = layout.allocate(chunk.count, chunk.barrier)
        assert waits == chunk.barrier
        if waits:
            live.clear()
        former = live.pop(slot.index, None)
        if former is not None:
            assert number - former[0] == assignment.plan.slots
        end = slot.offset + slot_bytes(demand, chunk.count)
        assert all(end <= low or high <= slot.offset for _, low, high in live.values())
        live[slot.index] = (number, slot.offset, end)
        yield max(high for _, _, high in live.values())


@pytest.mark.parametrize("seeds", [range(first, first + 50) for first in range(0, 300, 50)])
def test_best_plans_lie_in_memory_as_planned(seeds: range) -> None:
    for seed in seeds:
        share, model, demand, overlap = case(seed)
        rounded = slotted(demand)
        plan = best_plan(share, model, rounded, overlap=overlap)
        check(plan, rounded)
        assignment = assigned(model, demand, overlap, plan)
        shared = demand.workspace(assignment.max_chunk) if demand.work == "max" else 0
        assert demand.limit is not None
        assert assignment.slot_memory + shared + demand.resident_bytes <= demand.limit, seed
        assert max(in_memory(assignment, demand)) <= assignment.slot_memory, seed
        assert assignment.window > assignment.slots, seed


def test_an_odd_memory_is_laid_out_as_its_pattern() -> None:
    link = Affine(0.2e-3, 0.3e-3)
    model = DeviceModel(PiecewiseLinear(), Affine(0.3e-3, 1e-3), link, link)
    demand = MemoryDemand(input_bytes=512, work_bytes=0, output_bytes=512, limit=5 * 1024)
    plan = best_plan(100, model, slotted(demand), overlap=Overlap.SINGLE)
    assignment = assigned(model, demand, Overlap.SINGLE, plan)
    assert sorted(assignment.slot_sizes) == [2, 3]
    assert assignment.slot_memory == 5 * 1024
