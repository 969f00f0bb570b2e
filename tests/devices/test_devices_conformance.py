"""Requirements that every kind of device must meet."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from device_bench import (
    LINKED,
    VIRTUAL,
    Bench,
    affine_bench,
    cut,
    drive,
    info_of,
    update_bench,
)

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo, Slot
from hetsched.devices.base import Device, DeviceOutOfMemory
from hetsched.devices.cpu.device import CpuDevice
from hetsched.devices.emulated.device import open_device
from hetsched.errors import UsageError

CORE = msgspec.structs.replace(LINKED, h2d=None, d2h=None, memory=None)


def emulated(config: DeviceConfig, **changes: Any) -> Callable[[], Device]:
    config = msgspec.structs.replace(config, **changes)
    return lambda: open_device(info_of(config), config)


def cpu() -> Device:
    return CpuDevice(DeviceInfo(name="cpu0", kind="cpu", identity="test"))


KINDS: dict[str, Callable[[], Device]] = {
    "cpu": cpu,
    "real": emulated(LINKED),
    "real-one-engine": emulated(LINKED, engines=1),
    "real-no-engine": emulated(LINKED, engines=0),
    "real-core": emulated(CORE),
    "virtual": emulated(VIRTUAL),
    "virtual-one-engine": emulated(VIRTUAL, engines=1, duplex=(0.5, 0.75)),
    "virtual-no-engine": emulated(VIRTUAL, engines=0),
    "virtual-stalls": emulated(VIRTUAL, stalls=0.3, seed=3, duplex=(0.9, 0.8)),
    "virtual-core": emulated(CORE, clock="virtual"),
}
"""Kind -> a function that opens one. Further kinds join here."""


@pytest.fixture(params=KINDS)
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    opened = KINDS[request.param]()
    yield opened
    close = getattr(opened, "close", None)
    if close is not None:
        close()


def kind(device: Device) -> str:
    return device.describe().kind


class TestEveryDevice:
    def test_computes_every_unit(self, device: Device) -> None:
        bench = affine_bench(40)

        drive(device, bench.job(kind(device), 5), cut([5] * 8))

        np.testing.assert_array_equal(bench.result("y"), bench.expected())

    @pytest.mark.parametrize("slots", [1, 2, 3])
    def test_takes_chunks_of_any_size_up_to_the_largest(self, device: Device, slots: int) -> None:
        bench = affine_bench(36)

        drive(device, bench.job(kind(device), 8, slots), cut([1, 2, 3, 4, 5, 6, 7, 8]))

        np.testing.assert_array_equal(bench.result("y"), bench.expected())

    def test_reuses_memory_after_a_barrier(self, device: Device) -> None:
        bench = affine_bench(40)
        job = bench.job(kind(device), 5, slots=3)

        drive(device, job, cut([5, 5, 2, 3, 5, 5, 5, 4, 4, 2], barriers=[3, 6]), ring=False)

        np.testing.assert_array_equal(bench.result("y"), bench.expected())

    def test_says_when_each_phase_was(self, device: Device) -> None:
        bench = affine_bench(12)

        times = drive(device, bench.job(kind(device), 3), cut([3] * 4))

        assert sorted(times) == [0, 1, 2, 3]
        for chunk_times in times.values():
            phases = [chunk_times.copy_in, chunk_times.compute, chunk_times.copy_out]
            edges = [edge for phase in phases if phase is not None for edge in phase]
            assert edges == sorted(edges)

    def test_has_copy_phases_if_and_only_if_it_has_a_link(self, device: Device) -> None:
        bench = affine_bench(6)

        times = drive(device, bench.job(kind(device), 3), cut([3, 3]))

        has_link = device.describe().link
        assert all((chunk_times.copy_in is not None) == has_link for chunk_times in times.values())
        assert all(
            (chunk_times.copy_out is not None) == has_link for chunk_times in times.values()
        )

    def test_computes_from_file_to_file(self, device: Device, tmp_path: Path) -> None:
        bench = affine_bench(20, folder=tmp_path)

        times = drive(device, bench.job(kind(device), 4), cut([4] * 5))

        np.testing.assert_array_equal(bench.result("y"), bench.expected())
        assert all(chunk_times.copy_in and chunk_times.copy_out for chunk_times in times.values())

    @pytest.mark.parametrize("dtype", [">f8", "<f4", "<i2", "|u1"])
    def test_converts_what_is_stored_otherwise(self, device: Device, dtype: str) -> None:
        bench = affine_bench(20, dtypes={"x": dtype})

        drive(device, bench.job(kind(device), 4), cut([4] * 5))

        np.testing.assert_array_equal(bench.result("y"), bench.expected())

    def test_updates_inout_arrays_with_resident_data(self, device: Device) -> None:
        bench = update_bench()

        drive(device, bench.job(kind(device), 4), cut([4] * 6))

        np.testing.assert_allclose(bench.result("c"), bench.expected(), rtol=1e-12)

    def test_leaves_the_inputs_alone(self, device: Device) -> None:
        bench = update_bench()

        drive(device, bench.job(kind(device), 4), cut([4] * 6))

        values = np.empty_like(bench.values["c"])
        bench.inputs["c"].read(0, 24, values)
        np.testing.assert_array_equal(values, bench.values["c"])

    def test_takes_one_job_after_another(self, device: Device) -> None:
        for bench in (affine_bench(12), update_bench(), affine_bench(9)):
            load = bench.workload.load(bench.params)
            drive(device, bench.job(kind(device), 3), cut([3] * (load // 3)))

            name = next(iter(bench.outputs))
            np.testing.assert_allclose(bench.result(name), bench.expected(), rtol=1e-12)

    def test_forgets_a_job_when_told_so(self, device: Device) -> None:
        bench = affine_bench(6)
        drive(device, bench.job(kind(device), 3), cut([3, 3]))

        device.prepare(None)

        with pytest.raises(Exception, match="job"):
            drive_one(device, bench)

    def test_refuses_a_variant_that_is_not_there(self, device: Device) -> None:
        bench = Bench(variant="fastest")

        with pytest.raises(UsageError, match="fastest"):
            device.prepare(bench.job(kind(device), 3))

    def test_reports_what_a_kernel_raises_and_goes_on(self, device: Device) -> None:
        broken, good = Bench(variant="broken"), affine_bench(6)

        with pytest.raises(Exception) as failure:
            drive(device, broken.job(kind(device), 3), cut([3, 3, 3]))
        drive(device, good.job(kind(device), 3), cut([3, 3]))

        assert "no such luck" in str(failure.value.__cause__)
        np.testing.assert_array_equal(good.result("y"), good.expected())

    def test_never_uses_more_memory_than_it_has(self, device: Device) -> None:
        info = device.describe()
        job = replace(affine_bench(40).job(kind(device), 5), memory=1 << 50)

        if info.memory is None:
            assert not info.link
        else:
            with pytest.raises(DeviceOutOfMemory):
                device.prepare(job)

    def test_a_forgotten_job_holds_no_memory(self, device: Device) -> None:
        bench = affine_bench(6)
        drive(device, bench.job(kind(device), 3), cut([3, 3]))
        memory = [weakref.ref(bench.outputs["y"]), weakref.ref(bench.inputs["x"])]

        device.prepare(None)
        del bench
        gc.collect()

        assert [ref() for ref in memory] == [None, None]


def drive_one(device: Device, bench: Bench) -> None:
    device.copy_in(cut([3])[0], Slot(0, 0))
