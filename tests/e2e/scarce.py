"""y = 2 x + 1 on a device that has less memory than it reports. Used by test_e2e_memory.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from hetsched.device import Chunk, Slot
from hetsched.devices.base import DeviceOutOfMemory
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
    set_clock, copy_in = EmulatedGpu._set_clock, EmulatedGpu.copy_in

    def setting(self: EmulatedGpu) -> None:
        """At the end of the preparation."""
        memory = self._current_job().job.memory
        note(Path(Cap.params.folder) / "requests", f"{memory}\n")
        if Cap.params.at == "prepare" and memory > Cap.params.capacity:
            raise DeviceOutOfMemory("another process has taken the memory")
        set_clock(self)

    def copying(self: EmulatedGpu, chunk: Chunk, slot: Slot) -> None:
        if str(chunk.id) == Cap.params.at and self._current_job().job.memory > Cap.params.capacity:
            raise DeviceOutOfMemory("another process has taken the memory")
        copy_in(self, chunk, slot)

    EmulatedGpu._set_clock = setting  # type: ignore[method-assign]
    EmulatedGpu.copy_in = copying  # type: ignore[method-assign]


def note(path: Path, line: str) -> None:
    """In one write, so that lines of processes don't mix."""
    with open(path, "ab", buffering=0) as file:
        file.write(line.encode())
