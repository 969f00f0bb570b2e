"""Opens the fake GPU, whose memory others use too: as many bytes as a file says."""

from __future__ import annotations

import os
from pathlib import Path

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.cuda.device import CudaDevice
from hetsched.devices.cuda.fake.runtime import FakeRuntime
from hetsched.devices.cuda.runtime import Memory

USED = "FAKE_GPU_USED"
"""The environment variable with the file; without it, no memory is used by others."""


class SharedGpu(FakeRuntime):
    def memory(self) -> Memory:
        if USED in os.environ:
            self.used_by_others = int(Path(os.environ[USED]).read_text())
        return super().memory()


def open_device(info: DeviceInfo, config: DeviceConfig) -> CudaDevice:
    return CudaDevice(info, SharedGpu(memory=2 << 30))
