"""What every device must do, whatever its kind."""

from __future__ import annotations

import functools
import gc
import itertools
import random
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hetsched.device import Chunk, ChunkTimes, Slot
from hetsched.device_process.prepared_job import Pipeline
from hetsched.devices.base import Device, DeviceJob, DeviceOutOfMemory
from hetsched.errors import UsageError
from hetsched.memory import MemoryDemand
from hetsched.plans.slots import SlotAllocator, slot_bytes
from hetsched.testing.toys import Affine, Make, ToyJob, ToyParams, Update

ROUNDING = 2e-6
"""Seconds: times of events may be float32 of milliseconds."""


class DeviceSuite:
    """The conformance suite of devices: derive a class of tests that pytest collects.

        class TestMyDevice(DeviceSuite):
            def open_device(self):
                return open_device(info, config)

    The device needs 8 KiB of memory. Kernels are those for `KernelContext.xp`; a device whose
    arrays belong to no such module has `makers`.
    """

    makers: Mapping[str, Make] = {}
    """Of kernels: "affine", y = 2 x + 1 in float64, and "update", c += a b, where a is float32."""

    def open_device(self) -> Device:
        raise NotImplementedError

    def test_computes_every_unit_of_chunks_of_any_size(self) -> None:
        for slots in (1, 2, 3):
            with self.opened() as device:
                self.compute(device, self.affine(36), range(1, 9), slots)
                self.compute(device, self.affine(72), [3] * 24, slots)

    def test_memory_is_reused_by_chunks_of_other_sizes(self) -> None:
        """After a barrier, or in slots of two sizes among chunks that others left."""
        sizes, rng = [8, 8, 8, 8, 16, 16] * 2, random.Random(1)
        mixed = [n for turn in range(9) for n in ([8, 16] if turn % 3 else [rng.randint(1, 16)])]
        with self.opened() as device:
            for barriers in ((4, 6), (4, 6, 10), ()):
                job = self.affine(sum(sizes))
                self.compute(device, job, sizes, 3, barriers=barriers, ring=False)
            self.compute(device, self.affine(sum(mixed)), mixed, 2, slots_of=(8, 16))

    def test_computes_from_file_to_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder, self.opened() as device:
            times = self.compute(device, self.affine(36, folder=Path(folder)), [3] * 12)
        phases = [(chunk.copy_in, chunk.copy_out) for chunk in times.values()]
        assert all(copy_in and copy_out for copy_in, copy_out in phases), "files are copied"

    def test_converts_what_is_stored_otherwise(self) -> None:
        with self.opened() as device:
            for dtype in (">f8", "<f4", "<i2"):
                self.compute(device, self.affine(20, dtypes={"x": dtype}), [4] * 5)

    def test_updates_inout_arrays_with_resident_data(self) -> None:
        with self.opened() as device:
            job = self.update(36)
            self.compute(device, job, [3] * 12)
            assert job.is_unchanged("c"), "the input is changed"

    def test_takes_one_job_after_another(self) -> None:
        with self.opened() as device:
            for job in (self.affine(12), self.update(24), self.affine(9)):
                self.compute(device, job, [3] * (job.load // 3))

    def test_forgets_a_job_and_its_memory(self) -> None:
        with self.opened() as device:
            job = self.affine(6)
            self.compute(device, job, [3, 3])
            memory = [weakref.ref(job.outputs["y"]), weakref.ref(job.inputs["x"])]
            device.prepare(None)
            del job
            gc.collect()
            assert [ref() for ref in memory] == [None, None], "a forgotten job is referred to"
            with expect(Exception, "job"):
                device.copy_in(cut([3])[0], Slot(0, 0))

    def test_a_job_given_up_in_the_middle_ends_before_it_is_forgotten(self) -> None:
        with self.opened() as device:
            job = self.affine(6)
            described = self.described(device, job, 3)
            device.prepare(described)
            stride = slot_bytes(described.demand, 3)
            for number, chunk in enumerate(cut([3, 3])):
                slot = Slot(number, number * stride) if device.describe().link else Slot(0, 0)
                for operation in (device.copy_in, device.compute, device.copy_out):
                    operation(chunk, slot)
            device.prepare(None)
            assert job.is_right(), "operations of a forgotten job were dropped or went on"
            self.compute(device, self.affine(9), [3, 3, 3])

    def test_refuses_a_variant_that_is_not_there(self) -> None:
        with self.opened() as device, expect(UsageError, "fastest"):
            device.prepare(self.described(device, self.affine(6), 3, variant="fastest"))

    def test_reports_what_a_kernel_raises_and_goes_on(self) -> None:
        with self.opened() as device:
            broken = self.described(device, self.affine(9), 3, variant="broken")
            with expect(Exception, "no such luck"):
                drive(device, broken, cut([3] * 3))
            device.prepare(None)
            gc.collect()
            kept = [o for o in gc.get_objects() if isinstance(o, ZeroDivisionError)]
            assert "no such luck" not in map(str, kept), "the error of a forgotten job is kept"
            self.compute(device, self.affine(6), [3, 3])

    def test_never_uses_more_memory_than_it_has(self) -> None:
        with self.opened() as device:
            info, job = device.describe(), self.affine(40)
            greedy = replace(self.described(device, job, 5), memory=1 << 50)
            assert (info.memory is not None) == info.link, "memory is what is behind a link"
            if info.link:
                with expect(DeviceOutOfMemory, "memory"):
                    device.prepare(greedy)
                self.compute(device, job, [5] * 8)

    # ---- for the tests

    @contextmanager
    def opened(self) -> Iterator[Device]:
        device = self.open_device()
        try:
            yield device
        finally:
            close = getattr(device, "close", None)
            if close is not None:
                close()

    def affine(self, units: int, **settings: Any) -> ToyJob:
        return ToyJob(Affine(self.makers.get("affine")), ToyParams(units), **settings)

    def update(self, units: int) -> ToyJob:
        return ToyJob(Update(self.makers.get("update")), ToyParams(units))

    def described(self, device: Device, job: ToyJob, *sizes: Any, **settings: Any) -> DeviceJob:
        return job.described(device.describe().variant_kind, *sizes, **settings)

    def compute(
        self, device: Device, job: ToyJob, sizes: Sequence[int], slots: int = 2, *,
        barriers: Sequence[int] = (), ring: bool = True, slots_of: Sequence[int] = (),
    ) -> dict[int, ChunkTimes]:  # fmt: skip
        """Compute the whole load in chunks of these sizes, and check the result and the times."""
        described = self.described(device, job, max(sizes), slots)
        placed = _Placed(device, described.demand)
        times = drive(placed, described, cut(sizes, barriers), ring, sizes=slots_of)
        assert job.is_right(), f"chunks of {', '.join(map(str, sizes))} units: a wrong result"
        check_order(times, barriers)
        if device.describe().link and job.is_direct:
            check_overlaps(device, times, placed.spans)
        return times


@contextmanager
def expect(kind: type[Exception], text: str) -> Iterator[None]:
    """Expect an exception in the body whose text, or its cause's, has `text` in it."""
    try:
        yield
    except kind as error:
        texts = f"{error} {error.__cause__} {error.__cause__ and error.__cause__.__cause__}"
        assert text in texts, f"{error!r} doesn't say {text!r}"
    else:
        raise AssertionError(f"no {kind.__name__} with {text!r}")


def cut(sizes: Sequence[int], barriers: Sequence[int] = ()) -> list[Chunk]:
    firsts = itertools.accumulate(sizes, initial=0)
    return [
        Chunk(number, first, size, number in barriers, number == len(sizes) - 1)
        for number, (size, first) in enumerate(zip(sizes, firsts, strict=False))
    ]


class _Placed:
    """A device that remembers where the chunks lay."""

    def __init__(self, device: Device, demand: MemoryDemand) -> None:
        self._device, self._demand = device, demand
        self.describe, self.prepare, self.wait = device.describe, device.prepare, device.wait
        self.compute, self.copy_out = device.compute, device.copy_out
        self.spans: dict[int, range] = {}

    def copy_in(self, chunk: Chunk, slot: Slot) -> None:
        end = slot.offset + slot_bytes(self._demand, chunk.count)
        self.spans[chunk.id] = range(slot.offset, end)
        self._device.copy_in(chunk, slot)


def drive(
    device: Device, job: DeviceJob, chunks: Sequence[Chunk],
    ring: bool = True, late_by: int = 0, sizes: Sequence[int] = (),
) -> dict[int, ChunkTimes]:  # fmt: skip
    """Prepare and run; the pipeline hears of a chunk only `late_by` steps after the last."""
    device.prepare(job)
    link = device.describe().link
    size, memory = functools.partial(slot_bytes, job.demand), job.memory if link else 0
    layout = SlotAllocator(size, memory, job.slots if link else 1, ring, job.chunk, sizes)
    times: dict[int, ChunkTimes] = {}
    ahead = job.slots + 1 if link else 1
    pipeline = Pipeline(device, layout, ahead, lambda c, found: times.update({c.id: found}))
    for chunk in chunks:
        pipeline.add([chunk])
        for _ in range(late_by):
            if not pipeline.expects_more:
                pipeline.step()
    while pipeline.pending:
        pipeline.step()
    return times


def check_order(times: dict[int, ChunkTimes], barriers: Sequence[int]) -> None:
    for number, found in times.items():
        phases = [phase for phase in (found.copy_in, found.compute, found.copy_out) if phase]
        edges = [edge for phase in phases for edge in phase]
        assert edges == sorted(edges), f"phases of chunk {number} aren't in order: {phases}"
    for number in barriers:
        earlier = max(times[before].end for before in range(number))
        assert times[number].start >= earlier - ROUNDING, f"chunk {number} passed a barrier"


def check_overlaps(
    device: Device, times: dict[int, ChunkTimes], spans: Mapping[int, range]
) -> None:
    """Check that an engine does one thing at a time, and that chunks share no memory.

    Not of copies that the host takes part in: theirs begin and end with it.
    """
    names = {2: ("in", "compute", "out"), 1: ("copy", "compute", "copy"), 0: ("all",) * 3}
    busy: dict[str, list[tuple[float, float]]] = {}
    for found in times.values():
        assert found.copy_in and found.copy_out, "with a link, each chunk is copied"
        phases = found.copy_in, found.compute, found.copy_out
        for engine, phase in zip(names[device.describe().engines], phases, strict=True):
            busy.setdefault(engine, []).append(phase)
    for engine, phases_of_engine in busy.items():
        for before, after in itertools.pairwise(sorted(phases_of_engine)):
            overlap = before[1] - after[0]
            assert overlap <= ROUNDING, f"engine {engine} does two things for {overlap:.3g} s"
    for one, other in itertools.combinations(sorted(times), 2):
        first, second = spans[one], spans[other]
        if first.start < second.stop and second.start < first.stop:
            has_left = times[other].start >= times[one].end - ROUNDING
            assert has_left, f"chunk {other} came before chunk {one} had left its memory"
