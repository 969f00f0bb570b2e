"""y = 2 x + 1 on a device that has less memory than it reports. Used by test_e2e_memory.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hetsched.device import Chunk, Slot
from hetsched.devices.base import DeviceJob, DeviceOutOfMemory
from hetsched.devices.emulated.device import EmulatedGpu
from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext, Variant, Workload

WIDTH = 32


class ScarceParams(msgspec.Struct, frozen=True):
    """`capacity`: bytes of slots that the device really has. `at`: when allocation fails,
    "prepare" or the number of a chunk. `folder`: its file "requests" lists the bytes requested."""

    units: int = 48
    folder: str = ""
    capacity: int = 0
    at: str = "prepare"


class Scarce(Workload):
    name = "scarce"
    Params = ScarceParams
    inputs = ("x",)

    def load(self, p: ScarceParams) -> int:
        return p.units

    def arrays(self, p: ScarceParams) -> Sequence[ArraySpec]:
        return (
            ArraySpec("x", "split", (WIDTH,), "float64"),
            ArraySpec("y", "out", (WIDTH,), "float64"),
        )

    def demand(self, p: ScarceParams, kind: str) -> MemoryDemand:
        return MemoryDemand(input_bytes=WIDTH * 8, work_bytes=0, output_bytes=WIDTH * 8)

    def flops(self, p: ScarceParams, x: int) -> float:
        return 2.0 * WIDTH * x

    def speed_key(self, p: ScarceParams) -> str:
        """A separate kind of job each: models of one must not change the chunks of another."""
        return f"{p.capacity} {p.at}"

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("numpy", np.__version__, make)] if kind == "cpu" else []

    def generate(self, p: Any, seed: int, array: str, first: int, out: np.ndarray) -> None:
        out[...] = np.arange(first, first + len(out))[:, None]

    def reference(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        return {"y": inputs["x"][i] * 2 + 1}

    def residual(self, p: Any, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        return np.abs(outputs["y"] - inputs["x"] * 2 - 1).max(axis=1) * 1e9


def make(p: ScarceParams, chunk: int, context: KernelContext) -> Kernel:
    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        np.multiply(inputs["x"], 2, out=outputs["y"])
        outputs["y"] += 1

    return kernel


prepare, copy_in = EmulatedGpu.prepare, EmulatedGpu.copy_in


def check(job: DeviceJob, at: str) -> None:
    if job.params.at == at and job.memory > job.params.capacity:
        raise DeviceOutOfMemory("another process has taken the memory")


def preparing(self: EmulatedGpu, job: DeviceJob | None) -> None:
    prepare(self, job)
    if job is not None and isinstance(job.workload, Scarce):
        # In one write, so that lines of processes don't mix.
        with open(Path(job.params.folder) / "requests", "ab", buffering=0) as file:
            file.write(f"{job.memory}\n".encode())
        check(job, "prepare")


def copying(self: EmulatedGpu, chunk: Chunk, slot: Slot) -> None:
    job = self._current_job().job
    if isinstance(job.workload, Scarce):
        check(job, str(chunk.id))
    copy_in(self, chunk, slot)


EmulatedGpu.prepare = preparing  # type: ignore[method-assign]
EmulatedGpu.copy_in = copying  # type: ignore[method-assign]
