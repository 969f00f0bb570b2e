from __future__ import annotations

import functools
from typing import Any

import msgspec
import opencl_toys
import pytest
from device_bench import LINKED, MEMORY, VIRTUAL, info_of

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.simulated import VirtualTime
from hetsched.devices.base import Device
from hetsched.devices.cpu.device import CpuDevice
from hetsched.devices.cuda.device import open_cupy
from hetsched.devices.cuda.probe import probe
from hetsched.devices.emulated.device import open_device
from hetsched.devices.probe import CorePool
from hetsched.testing import DeviceSuite, RuntimeSuite
from hetsched.testing.simulated import StrictRuntime

CORE = msgspec.structs.replace(LINKED, h2d=None, d2h=None, memory=None)
GPU = DeviceInfo(name="gpu0", kind="cuda", identity="simulated GPU", link=True)


class TestCore(DeviceSuite):
    def open_device(self) -> Device:
        return CpuDevice(DeviceInfo(name="cpu0", kind="cpu", identity="test"))


EMULATED: dict[str, DeviceConfig] = {
    "real": LINKED,
    "real-one-engine": msgspec.structs.replace(LINKED, engines=1),
    "real-core": CORE,
    "virtual": VIRTUAL,
    "virtual-no-engine": msgspec.structs.replace(VIRTUAL, engines=0),
    "virtual-stalls": msgspec.structs.replace(VIRTUAL, stalls=0.3, seed=3, duplex=(0.9, 0.8)),
    "virtual-core": msgspec.structs.replace(CORE, clock="virtual"),
}


class TestEmulated(DeviceSuite):
    @pytest.fixture(autouse=True, params=EMULATED)
    def configured(self, request: pytest.FixtureRequest) -> None:
        self.config = EMULATED[request.param]

    def open_device(self) -> Device:
        return open_device(info_of(self.config), self.config)


class OnSimulatedRuntime(DeviceSuite):
    """Queues proceed in an order by the seed."""

    seed = 0
    ignores_waits: frozenset[int] = frozenset()

    def open_device(self) -> Device:
        runtime = StrictRuntime(
            MEMORY, self.seed, None, VirtualTime(1 + self.seed % 2), self.ignores_waits
        )
        return Accelerator(GPU, runtime, pinned=1 << 30)


class TestAcceleratorInAnyOrder(OnSimulatedRuntime):
    @pytest.fixture(autouse=True, params=range(8))
    def seeded(self, request: pytest.FixtureRequest) -> None:
        self.seed = request.param


def test_of_an_accelerator_a_missing_wait_fails_the_suite() -> None:
    for queue in range(3):
        suite = OnSimulatedRuntime()
        suite.ignores_waits = frozenset({queue})
        with pytest.raises(Exception):  # noqa: B017  also times of what hasn't passed
            for suite.seed in range(20):
                suite.test_computes_every_unit_of_chunks_of_any_size()
                suite.test_memory_is_reused_by_chunks_of_other_sizes()


class TestSimulatedRuntime(RuntimeSuite):
    seed = 0
    ignores_waits: frozenset[int] = frozenset()

    def open_runtime(self) -> Any:
        return StrictRuntime(seed=self.seed, ignores_waits=self.ignores_waits)

    def test_a_missing_wait_is_seen(self) -> None:
        for queue in range(3):
            self.ignores_waits = frozenset({queue})
            with pytest.raises(AssertionError):
                for self.seed in range(20):
                    self.test_queues_wait_for_each_other()


class OnOpenCl:
    makers = opencl_toys.MAKERS

    @pytest.fixture(autouse=True, params=opencl_toys.EACH_RUNTIME)
    def chosen(self, request: pytest.FixtureRequest) -> None:
        self.info = opencl_toys.processor(request.param)
        self.runtime = opencl_toys.open_runtime(self.info)


class TestOpenClDevice(OnOpenCl, DeviceSuite):
    def open_device(self) -> Device:
        return Accelerator(self.info, self.runtime, limit=MEMORY)


class TestOpenClOnHostMemory(OnOpenCl, DeviceSuite):
    def open_device(self) -> Device:
        return opencl_toys.open_on_host_memory(self.info, self.runtime)

    def test_a_kernel_is_compiled_before_its_job(self) -> None:
        calls, plain = [], opencl_toys.affine()
        self.makers = {"affine": lambda *_: lambda x, y: (calls.append(len(y["y"])), plain(x, y))}
        with self.opened() as device:
            device.prepare(self.described(device, self.affine(6), 3))
        assert calls == [1]


class TestOpenClRuntime(OnOpenCl, RuntimeSuite):
    def open_runtime(self) -> Any:
        return self.runtime


@functools.cache
def cuda() -> Any:
    """The first GPU, or skip."""
    found = probe([(0, DeviceConfig(kind="gpu", count=1, optional=True))], CorePool((), 0))
    if not found.processes:
        pytest.skip(f"needs a GPU: {found.absent}")
    return open_cupy(found.processes[0].device, "")


@pytest.mark.gpu
class TestCudaDevice(DeviceSuite):
    def open_device(self) -> Device:
        return Accelerator(GPU, cuda(), limit=MEMORY)


@pytest.mark.gpu
class TestCudaRuntime(RuntimeSuite):
    def open_runtime(self) -> Any:
        return cuda()
