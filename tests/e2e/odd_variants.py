"""A workload whose first variants can't be made. Loaded by device processes too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from hetsched.workload import Arrays, Kernel, KernelContext, Variant, Workload


class OddParams(msgspec.Struct, frozen=True):
    """`sound`: whether any variant works."""

    units: int = 20
    width: int = 4
    sound: bool = True


class Odd(Workload):
    """y = 2 x."""

    name = "odd"
    Params = OddParams
    axes = dict.fromkeys("xy", ("units", "width"))

    def variants(self, kind: str) -> Sequence[Variant]:
        makers = {"missing": missing, "broken": broken, "sound": sound}
        return [Variant(name, "1", make) for name, make in makers.items()]

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
