"""The conformance suite on the CUDA device, over the fake runtime."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import test_devices_conformance as suite
from device_bench import MEMORY

from hetsched.device import DeviceInfo
from hetsched.devices.base import Device
from hetsched.devices.cuda.device import CudaDevice
from hetsched.devices.cuda.fake.runtime import FakeRuntime

INFO = DeviceInfo(name="gpu0", kind="cuda", identity="fake GPU", link=True)


class TestTheCudaDevice(suite.TestEveryDevice):
    @pytest.fixture(params=range(5), ids=lambda seed: f"seed{seed}")
    def device(self, request: pytest.FixtureRequest) -> Iterator[Device]:
        runtime = FakeRuntime(memory=MEMORY, seed=request.param, engines=1 + request.param % 2)
        opened = CudaDevice(INFO, runtime, pinned=1 << 30)
        yield opened
        opened.close()
