"""Finds toys: as many as the configuration asks for, each in a separate process."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.probe import CorePool, Probe, ProcessSpec


def probe(tables: Sequence[tuple[int, DeviceConfig]], pool: CorePool) -> Probe:
    (_, config), *_ = tables
    infos = (
        DeviceInfo(name=f"toy{i}", kind="toy", identity="a toy", link=True, memory=1)
        for i in range(config.count or 1)
    )
    return Probe(tuple(ProcessSpec(package="toy_kind", device=i, config=config) for i in infos))
