"""A workload whose first variants can't be made. Loaded by device processes too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext, Variant, Workload


class OddParams(msgspec.Struct, frozen=True):
    """`sound`: whether any variant works."""

    units: int = 20
    sound: bool = True


class Odd(Workload):
    """y = 2 x on units of four numbers."""

    name = "odd"
    Params = OddParams

    def load(self, p: OddParams) -> int:
        return p.units

    def arrays(self, p: OddParams) -> Sequence[ArraySpec]:
        return (ArraySpec("x", "split", (4,), "float64"), ArraySpec("y", "out", (4,), "float64"))

    def demand(self, p: OddParams, kind: str) -> MemoryDemand:
        return MemoryDemand(input_bytes=32, work_bytes=0, output_bytes=32)

    def flops(self, p: OddParams, x: int) -> float:
        return 4.0 * x

    def variants(self, kind: str) -> Sequence[Variant]:
        makers = {"missing": missing, "broken": broken, "sound": sound}
        return [Variant(name, "1", make) for name, make in makers.items()]

    def generate(self, p: Any, seed: int, array: str, first: int, out: np.ndarray) -> None:
        out[...] = np.arange(first, first + len(out))[:, None]

    def reference(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        return {"y": 2 * inputs["x"][i]}

    def residual(self, p: Any, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        return np.asarray(np.abs(outputs["y"] - 2 * inputs["x"]).max(axis=1) * 1e6)


def missing(p: OddParams, chunk: int, context: KernelContext) -> Kernel:
    raise ImportError("libodd.so: no such file")


def broken(p: OddParams, chunk: int, context: KernelContext) -> Kernel:
    raise OSError("libodd.so: wrong format")


def sound(p: OddParams, chunk: int, context: KernelContext) -> Kernel:
    if not p.sound:
        raise RuntimeError("bound to another library")

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        np.multiply(inputs["x"], 2, out=outputs["y"])

    return kernel
