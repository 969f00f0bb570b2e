"""The pipeline, on a device that only records its calls."""

from __future__ import annotations

from typing import Any

import pytest
from device_bench import cut

from hetsched.device import Chunk, ChunkTimes, DeviceInfo, Slot
from hetsched.device_process.prepared_job import Pipeline, StepFailed
from hetsched.plans.slots import SlotAllocator


class Notebook:
    """A device that notes each call; `bad`: (call, chunk) that raises."""

    def __init__(self, bad: tuple[str, int] | None = None) -> None:
        self.calls: list[tuple[str, int]] = []
        self.slots: list[int] = []
        self._bad = bad

    def describe(self) -> DeviceInfo:
        return DeviceInfo(name="n", kind="note", identity="")

    def prepare(self, job: Any) -> None:
        pass

    def copy_in(self, chunk: Chunk, slot: Slot) -> None:
        self.slots.append(slot.index)
        self._note("copy_in", chunk)

    def compute(self, chunk: Chunk, slot: Slot) -> None:
        self._note("compute", chunk)

    def copy_out(self, chunk: Chunk, slot: Slot) -> None:
        self._note("copy_out", chunk)

    def wait(self, chunk: Chunk) -> ChunkTimes:
        self._note("wait", chunk)
        return ChunkTimes(compute=(0.0, 1.0))

    def _note(self, call: str, chunk: Chunk) -> None:
        self.calls.append((call, chunk.id))
        if self._bad == (call, chunk.id):
            raise ZeroDivisionError(call)

    def order(self, *names: str) -> list[tuple[str, int]]:
        return [call for call in self.calls if call[0] in names]


def pipeline(device: Notebook, depth: int, done: list[int], ring: bool = True) -> Pipeline:
    layout = SlotAllocator(lambda units: 512, 1024, 2, ring, 5)
    return Pipeline(device, layout, depth, lambda chunk, times: done.append(chunk.id))


def run(flow: Pipeline) -> None:
    while flow.pending:
        flow.step()


def test_phases_run_in_order_and_chunks_are_reported_in_order() -> None:
    device, done = Notebook(), list[int]()
    flow = pipeline(device, 1, done)

    flow.add(cut([1, 1]))
    run(flow)

    assert device.calls == [
        (name, i) for i in range(2) for name in ("copy_in", "compute", "copy_out", "wait")
    ]
    assert done == [0, 1]


def test_a_synchronous_device_finishes_a_chunk_in_one_step() -> None:
    device, done = Notebook(), list[int]()
    flow = pipeline(device, 1, done)

    flow.add(cut([1, 1]))
    flow.step()

    assert done == [0]


def test_no_more_chunks_are_in_flight_than_the_depth() -> None:
    device = Notebook()
    flow = pipeline(device, 3, [])

    flow.add(cut([1] * 5))
    run(flow)

    assert device.order("copy_in", "wait") == [
        ("copy_in", 0), ("copy_in", 1), ("copy_in", 2), ("wait", 0), ("copy_in", 3), ("wait", 1),
        ("copy_in", 4), ("wait", 2), ("wait", 3), ("wait", 4),
    ]  # fmt: skip
    assert device.slots == [0, 1, 0, 1, 0]


def test_a_barrier_empties_the_device_first() -> None:
    device = Notebook()
    flow = pipeline(device, 3, [])

    flow.add(cut([1, 1, 1], barriers=[2]))
    run(flow)

    assert device.order("copy_in", "wait") == [
        ("copy_in", 0), ("copy_in", 1), ("wait", 0), ("wait", 1), ("copy_in", 2), ("wait", 2),
    ]  # fmt: skip


def test_memory_that_is_full_empties_the_device_first() -> None:
    device = Notebook()
    flow = pipeline(device, 5, [], ring=False)

    flow.add(cut([1, 1, 1]))
    run(flow)

    assert device.order("copy_in", "wait")[2:4] == [("wait", 0), ("wait", 1)]


@pytest.mark.parametrize("call", ["copy_in", "compute", "copy_out", "wait"])
def test_a_chunk_that_fails_ends_the_run_and_the_others_are_reported(call: str) -> None:
    device, done = Notebook((call, 1)), list[int]()
    flow = pipeline(device, 3, done)
    flow.add(cut([1, 1, 1, 1]))

    with pytest.raises(StepFailed) as failed:
        run(flow)

    assert failed.value.chunk.id == 1
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    assert done == ([0, 2, 3] if call == "wait" else [0])
    assert not flow.pending


def test_it_expects_more_until_the_last_chunk_is_known() -> None:
    flow = pipeline(Notebook(), 4, [])
    first, second = cut([1, 1])

    flow.add([first])
    flow.step()
    expected_then = flow.expects_more
    flow.add([second])
    flow.step()

    assert expected_then
    assert not flow.expects_more
