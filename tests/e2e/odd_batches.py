"""A workload whose odd batches need a larger work area. Loaded by device processes too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, Kernel, KernelContext, Variant, Workload

WIDTH = 64
ODD_BYTES = 3000
"""Work area of each unit of an odd batch."""


class OddBatchParams(msgspec.Struct, frozen=True):
    """`shared`: whether all chunks on a device use one work area."""

    units: int = 16
    width: int = WIDTH
    shared: bool = False


def work_bytes(units: int) -> int:
    return ODD_BYTES * units if units % 2 else 0


class OddBatches(Workload):
    """y = x + the unit's first value."""

    name = "odd_batches"
    Params = OddBatchParams
    axes = dict.fromkeys("xy", ("units", "width"))

    def demand(self, p: Any, kind: str) -> MemoryDemand:
        return MemoryDemand(
            input_bytes=8 * WIDTH,
            work_bytes=work_bytes,
            output_bytes=8 * WIDTH,
            work="max" if p.shared else "sum",
        )

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("numpy", "1", make)]

    def reference(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        return {"y": inputs["x"][i] + inputs["x"][i, 0]}

    def residual(self, p: Any, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        expected = inputs["x"] + inputs["x"][:, :1]
        return np.asarray(np.abs(outputs["y"] - expected).max(axis=1) * 1e6)


def make(p: Any, chunk: int, context: KernelContext) -> Kernel:
    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        np.add(inputs["x"], inputs["x"][:, :1], out=outputs["y"])

    return kernel
