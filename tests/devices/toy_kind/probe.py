"""Finds toys: as many as the configuration asks for, each in a separate process."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.probe import CorePool, Probe, ProcessSpec


def probe(tables: Sequence[tuple[int, DeviceConfig]], pool: CorePool) -> Probe:
    processes: list[ProcessSpec] = []
    for _, config in tables:
        for _ in range(config.count or 1):
            info = DeviceInfo(name=f"toy{len(processes)}", kind="toy", identity="a toy")
            processes.append(ProcessSpec(package="toy_kind", device=info, config=config))
    return Probe(tuple(processes))
