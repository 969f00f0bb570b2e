"""Workloads for fault injection: y = 2 x + 1 at a given speed; kernels that fail on request."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext, Variant, Workload

WIDTH = 32
NAPS = f"{__name__}:Naps"
HANGING = f"{__name__}:Hanging"
"""The references to pass to `submit`."""


class NapsParams(msgspec.Struct, frozen=True):
    """Every unit takes `seconds`. `fail`: the kernel raises."""

    units: int = 4
    seconds: float = 0.0
    fail: bool = False


class Naps(Workload):
    """y = 2 x + 1; a unit sleeps, so that a job lasts a known time on any machine."""

    name = "naps"
    Params = NapsParams
    inputs = ("x",)

    def load(self, p: NapsParams) -> int:
        return p.units

    def arrays(self, p: NapsParams) -> Sequence[ArraySpec]:
        return (
            ArraySpec("x", "split", (WIDTH,), "float64"),
            ArraySpec("y", "out", (WIDTH,), "float64"),
        )

    def demand(self, p: NapsParams, kind: str) -> MemoryDemand:
        return MemoryDemand(input_bytes=WIDTH * 8, work_bytes=0, output_bytes=WIDTH * 8)

    def flops(self, p: NapsParams, x: int) -> float:
        return 2.0 * WIDTH * x

    def speed_key(self, p: NapsParams) -> str:
        return f"{p.seconds} {p.fail}"

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("numpy", np.__version__, _make)] if kind == "cpu" else []

    def generate(self, p: Any, seed: int, array: str, first: int, out: np.ndarray) -> None:
        out[...] = np.arange(first, first + len(out))[:, None] + seed

    def reference(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        return {"y": inputs["x"][i] * 2 + 1}

    def residual(self, p: Any, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        return np.abs(outputs["y"] - inputs["x"] * 2 - 1).max(axis=1) * 1e9


class Hanging(Naps):
    """Never answers when a job is checked."""

    name = "hanging"

    def infer(
        self, explicit: Mapping[str, Any], arrays: Mapping[str, tuple[tuple[int, ...], str]]
    ) -> Any:
        threading.Event().wait()


def _make(p: NapsParams, chunk: int, context: KernelContext) -> Kernel:
    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        if p.fail:
            raise ValueError("this kernel fails on request")
        time.sleep(p.seconds * len(inputs["x"]))
        np.multiply(inputs["x"], 2, out=outputs["y"])
        outputs["y"] += 1

    return kernel
