"""Finds one GPU, always."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.probe import CorePool, Probe, ProcessSpec


def probe(tables: Sequence[tuple[int, DeviceConfig]], pool: CorePool) -> Probe:
    info = DeviceInfo(name="gpu0", kind="cuda", identity="simulated GPU", link=True, memory=1)
    (_, config), *_ = tables
    return Probe((ProcessSpec(package="fake_gpu", device=info, config=config),))
