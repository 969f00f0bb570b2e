"""Jobs of the toy workloads and emulated devices for them, for all device tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import toys

from hetsched.config import Cost, DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.base import DeviceJob
from hetsched.testing.devices import cut, drive
from hetsched.testing.toys import ToyJob, ToyParams, Update

__all__ = ["cut", "drive"]

MEMORY = 8 << 10

LINKED = DeviceConfig(
    kind="emulated",
    memory=str(MEMORY),
    compute=Cost(gap="10us", unit="20us"),
    h2d=Cost(gap="5us", unit="10us"),
    d2h=Cost(gap="5us", unit="10us"),
)
VIRTUAL = msgspec.structs.replace(LINKED, clock="virtual")


def info_of(config: DeviceConfig) -> DeviceInfo:
    virtual = config.clock == "virtual"
    return DeviceInfo(
        name="emu0",
        kind="emulated",
        identity="test",
        link=config.link,
        memory=config.memory_bytes() if config.link else None,
        engines=config.engines,
        clock="virtual" if virtual else "wall",
    )


class Bench(ToyJob):
    """A job of `toys.Toy`."""

    def __init__(self, units: int, folder: Path | None = None, **settings: Any) -> None:
        super().__init__(toys.Toy(), toys.ToyParams(units), folder, **settings)

    def job(self, chunk: int, slots: int = 2, variant: str = "numpy") -> DeviceJob:
        return self.described("cpu", chunk, slots, variant=variant)

    def expected(self) -> np.ndarray:
        return self.values["x"] * 2 + 1


def update_job(units: int, chunk: int, memory: int) -> DeviceJob:
    return ToyJob(Update(), ToyParams(units)).described("cpu", chunk, memory=memory)
