"""y = 2 x + 1 on a device that has less memory than it reports. Used by test_e2e_memory.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from deadly import Deadly, DeadlyParams, note

from hetsched.device import Chunk, Slot
from hetsched.devices.base import DeviceJob, DeviceOutOfMemory
from hetsched.devices.emulated.device import EmulatedDevice
from hetsched.devices.emulated.loaded_job import JobLoader
from hetsched.workload import Arrays, Kernel, KernelContext, Variant


class ScarceParams(DeadlyParams, frozen=True):
    """`capacity`: bytes of slots that the device really has. `at`: when allocation fails,
    "prepare" or the number of a chunk. `folder`: its file "requests" lists the bytes requested."""

    capacity: int = 0
    at: str = "prepare"


class Scarce(Deadly):
    name = "scarce"
    Params = ScarceParams

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("numpy", np.__version__, make)] if kind == "cpu" else []

    def speed_key(self, p: Any) -> str:
        return f"{p.capacity} {p.at}"


class Cap:
    """The real capacity of this process's device; set up with its first kernel."""

    params: ClassVar[ScarceParams] = ScarceParams()
    hooked: ClassVar[bool] = False


def make(p: ScarceParams, chunk: int, context: KernelContext) -> Kernel:
    Cap.params = p
    if not Cap.hooked:
        Cap.hooked = True
        hook()

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        np.multiply(inputs["x"], 2, out=outputs["y"])
        outputs["y"] += 1

    return kernel


def hook() -> None:
    reserve, copy_in = JobLoader._slots_bytes, EmulatedDevice.copy_in

    def reserving(self: JobLoader, job: DeviceJob, *sizes: Any) -> int:
        note(Path(Cap.params.folder) / "requests", f"{job.memory}\n")
        if Cap.params.at == "prepare" and job.memory > Cap.params.capacity:
            raise DeviceOutOfMemory("another process has taken the memory")
        return reserve(self, job, *sizes)

    def copying(self: EmulatedDevice, chunk: Chunk, slot: Slot) -> None:
        if str(chunk.id) == Cap.params.at and self._current_job().job.memory > Cap.params.capacity:
            raise DeviceOutOfMemory("another process has taken the memory")
        copy_in(self, chunk, slot)

    JobLoader._slots_bytes = reserving  # type: ignore[method-assign]
    EmulatedDevice.copy_in = copying  # type: ignore[method-assign]
