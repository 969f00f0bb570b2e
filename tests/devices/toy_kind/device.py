"""Opens the simulated GPU, whose memory others use too: as many bytes as a file says."""

from __future__ import annotations

import os
from pathlib import Path

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.runtime import Memory
from hetsched.devices.accelerator.simulated import RealTime
from hetsched.testing.simulated import StrictRuntime


class SharedGpu(StrictRuntime):
    def memory(self) -> Memory:
        self.used_by_others = int(Path(os.environ["TOY_MEMORY_USED"]).read_text())
        return super().memory()


def open_device(info: DeviceInfo, config: DeviceConfig) -> Accelerator:
    runtime = SharedGpu(
        memory=2 << 30,
        reserve=512 << 20,
        costs=lambda phase, units, nbytes: 1e-5,
        time=RealTime(2, (1.0, 1.0)),
    )
    return Accelerator(info, runtime)
