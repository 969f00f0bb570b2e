"""C := F C row by row, with errors outside the kernel."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext, Variant, Workload


class OddParams(msgspec.Struct, frozen=True):
    """`trouble`: "generate" raises; "residual" kills its process, once (`marker`)."""

    rows: int = 400
    trouble: str = ""
    marker: str = ""


class OddScale(Workload):
    """Its first array is resident: a factor a column."""

    name = "odd_scale"
    Params = OddParams
    inputs = ("F", "C")

    def load(self, p: OddParams) -> int:
        return p.rows

    def arrays(self, p: OddParams) -> Sequence[ArraySpec]:
        return (
            ArraySpec("F", "resident", (64,), "float64"),
            ArraySpec("C", "inout", (64,), "float64"),
        )

    def demand(self, p: OddParams, kind: str) -> MemoryDemand:
        return MemoryDemand(input_bytes=512, work_bytes=0, output_bytes=512)

    def flops(self, p: OddParams, x: int) -> float:
        return 64.0 * x

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("numpy", np.__version__, _make)] if kind == "cpu" else []

    def generate(self, p: OddParams, seed: int, array: str, first: int, out: np.ndarray) -> None:
        if p.trouble == "generate":
            raise ValueError("no numbers today")
        out[...] = 2.0

    def reference(self, p: OddParams, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        return {"C": inputs["C"][i] * inputs["F"]}

    def residual(self, p: Any, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        if p.trouble == "residual":
            die_once(p.marker)
        wrong = np.abs(outputs["C"] - inputs["C"] * inputs["F"]).max(axis=1)
        return np.asarray(wrong * 1e9, dtype=np.float64)


def die_once(marker: str) -> None:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _make(p: OddParams, chunk: int, context: KernelContext) -> Kernel:
    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        np.multiply(inputs["C"], inputs["F"], out=outputs["C"])

    return kernel
