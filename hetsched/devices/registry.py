"""Opens a device by its kind."""

from __future__ import annotations

from collections.abc import Callable

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.base import Device
from hetsched.devices.cpu.device import CpuDevice
from hetsched.devices.cuda.device import open_device as open_cuda
from hetsched.devices.emulated.device import open_emulated

_OPEN: dict[str, Callable[[DeviceInfo, DeviceConfig], Device]] = {
    "cpu": lambda info, config: CpuDevice(info),
    "cuda": lambda info, config: open_cuda(info),
    "emulated": open_emulated,
}


def open_device(info: DeviceInfo, config: DeviceConfig) -> Device:
    """The device `info`; called on the thread that will drive it."""
    return _OPEN[info.kind](info, config)
