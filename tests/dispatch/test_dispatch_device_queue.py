from __future__ import annotations

import tracemalloc

from dispatch_steps import finish, lose
from hypothesis import given
from hypothesis import strategies as st

from hetsched.device import EvenChunks
from hetsched.dispatch import Dispatcher, total_units
from hetsched.plans.recipes import evenly

MIB = 1 << 20


@given(st.integers(0, 5), st.integers(0, 9), st.integers(1, 200), st.data())
def test_even_chunks_are_those_of_the_plan(
    first_id: int, first: int, units: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, units))
    chunks = EvenChunks(first_id, first, units, count)
    assert tuple(chunk.count for chunk in chunks) == evenly(units, count)
    ends = [first, *(chunk.first + chunk.count for chunk in chunks)]
    assert [chunk.first for chunk in chunks] == ends[:-1] and ends[-1] == first + units
    assert [chunk.id for chunk in chunks] == list(range(first_id, first_id + count))
    assert [chunk.last for chunk in chunks] == [False] * (count - 1) + [True]
    assert total_units(chunks) == units
    assert chunks[:2] == tuple(chunks)[:2]


def test_an_hour_on_64_cores_takes_little_memory_and_progress_is_cheap() -> None:
    tracemalloc.start()
    try:
        dispatcher = hour_long_run(64)
        dispatcher.commands(0.0)
        finish(dispatcher, "cpu0", 0, 0.1)
        lose(dispatcher, "cpu1", 0.2)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < MIB and peak < 2 * MIB
    progress = {device.device: device for device in dispatcher.progress()}
    assert (progress["cpu0"].done, progress["cpu0"].share) == (10, 360_000)
    assert sum(device.share for device in progress.values()) == 64 * 360_000


def hour_long_run(cores: int) -> Dispatcher:
    queues = {
        f"cpu{core}": EvenChunks(core * 36_000, core * 360_000, 360_000, 36_000)
        for core in range(cores)
    }
    return Dispatcher(queues, dict.fromkeys(queues, 2), dict.fromkeys(queues, 10))
