"""A toy on a device that has less memory than it reports. Used by test_e2e_memory.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toys import Toy, ToyParams

from hetsched.device import Chunk, Slot
from hetsched.devices.base import DeviceJob, DeviceOutOfMemory
from hetsched.devices.emulated.device import EmulatedGpu


class ScarceParams(ToyParams, frozen=True):
    """`capacity`: bytes of slots that the device really has. `at`: when allocation fails,
    "prepare" or the number of a chunk. `folder`: its file "requests" lists the bytes requested."""

    folder: str = ""
    capacity: int = 0
    at: str = "prepare"


class Scarce(Toy):
    name = "scarce"
    Params = ScarceParams

    def speed_key(self, p: Any) -> str:
        """A separate kind of job each: models of one must not change the chunks of another."""
        return f"{p.capacity} {p.at}"


prepare, copy_in = EmulatedGpu.prepare, EmulatedGpu.copy_in
current: dict[EmulatedGpu, DeviceJob | None] = {}


def check(job: DeviceJob, at: str) -> None:
    if job.params.at == at and job.memory > job.params.capacity:
        raise DeviceOutOfMemory("another process has taken the memory")


def preparing(self: EmulatedGpu, job: DeviceJob | None) -> None:
    prepare(self, job)
    current[self] = job
    if job is not None and isinstance(job.workload, Scarce):
        # In one write, so that lines of processes don't mix.
        with open(Path(job.params.folder) / "requests", "ab", buffering=0) as file:
            file.write(f"{job.memory}\n".encode())
        check(job, "prepare")


def copying(self: EmulatedGpu, chunk: Chunk, slot: Slot) -> None:
    job = current[self]
    if job is not None and isinstance(job.workload, Scarce):
        check(job, str(chunk.id))
    copy_in(self, chunk, slot)


EmulatedGpu.prepare = preparing  # type: ignore[method-assign]
EmulatedGpu.copy_in = copying  # type: ignore[method-assign]
