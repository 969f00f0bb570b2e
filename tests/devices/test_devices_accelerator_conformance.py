"""The conformance suite on the accelerator over the simulated runtime."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import test_devices_conformance as suite
from device_bench import MEMORY

from hetsched.device import DeviceInfo
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.simulated import SimulatedRuntime, VirtualTime
from hetsched.devices.base import Device

INFO = DeviceInfo(name="gpu0", kind="cuda", identity="simulated GPU", link=True)


class TestTheAccelerator(suite.TestEveryDevice):
    @pytest.fixture(params=range(5), ids=lambda seed: f"seed{seed}")
    def device(self, request: pytest.FixtureRequest) -> Iterator[Device]:
        runtime = SimulatedRuntime(
            memory=MEMORY, seed=request.param, time=VirtualTime(1 + request.param % 2)
        )
        opened = Accelerator(INFO, runtime, pinned=1 << 30)
        yield opened
        opened.close()
