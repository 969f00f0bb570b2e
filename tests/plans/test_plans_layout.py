import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import DataError
from hetsched.memory import MemoryDemand
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
