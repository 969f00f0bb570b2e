"""Parts shared by the sections: the report, the runtime, host memory."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_check import write
from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.accelerator.runtime import Runtime
from hetsched.devices.cuda.device import open_cupy
from hetsched.devices.cuda.probe import probe
from hetsched.devices.probe import core_pool
from hetsched.testing.simulated import StrictRuntime

FAKE = DeviceInfo(name="gpu0", kind="cuda", identity="simulated GPU", link=True)
MIB = 1 << 20


class Report:
    """The findings of a section; each is written to disk at once."""

    def __init__(self, path: Path, dry: bool) -> None:
        self._path = path
        self.dry = dry
        self.data: dict[str, Any] = {"dry_run": dry}

    def put(self, **values: Any) -> None:
        self.data.update(values)
        write(self._path, self.data)

    def row(self, table: str, **values: Any) -> None:
        self.data.setdefault(table, []).append(values)
        write(self._path, self.data)


def device_info(dry: bool) -> DeviceInfo:
    """Return the first GPU. Raises Unavailable."""
    if dry:
        return FAKE
    return probe([(0, DeviceConfig(kind="gpu", count=1))], core_pool()).processes[0].device


def open_runtime(dry: bool) -> Runtime:
    if dry:
        return StrictRuntime(memory=4096 * MIB)
    return open_cupy(device_info(dry), os.environ["XDG_CACHE_HOME"])


def mapped(nbytes: int) -> np.ndarray:
    """Return a memfd of sealed size, mapped with its pages in place like the arena's (uint8)."""
    fd = os.memfd_create("gpu-check")
    try:
        os.ftruncate(fd, nbytes)
        return np.frombuffer(mmap.mmap(fd, nbytes, mmap.MAP_SHARED | mmap.MAP_POPULATE), np.uint8)
    finally:
        os.close(fd)
