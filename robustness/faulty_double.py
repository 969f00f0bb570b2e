"""A workload of the scenarios: y = 2 x, with a kernel that misbehaves once."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext, Variant, Workload

WIDTH = 4096
"""Numbers of one unit."""


class FaultyDoubleParams(msgspec.Struct, frozen=True):
    """`fault`: a key of KERNEL_FAULTS. It happens if `marker` doesn't exist, which is created.

    `rounds`: how often each unit is computed, to take time.
    """

    units: int = 64
    fault: str = ""
    marker: str = ""
    rounds: int = 1


def crash() -> None:
    ctypes.string_at(0)


def hang() -> None:
    threading.Event().wait()


def spin() -> None:
    while True:
        pass


def raise_error() -> None:
    raise ValueError("no such luck")


def exhaust_memory() -> None:
    raise MemoryError("Unable to allocate 2.00 TiB")


def exit_thread() -> None:
    raise SystemExit(3)


def exit_process() -> None:
    os._exit(3)


KERNEL_FAULTS: dict[str, Callable[[], None]] = {
    "SIGSEGV": crash,
    "exits": exit_process,
    "hangs": hang,
    "spins": spin,
    "raises": raise_error,
    "out of memory": exhaust_memory,
    "SystemExit": exit_thread,
}


class FaultyDouble(Workload):
    name = "faulty_double"
    Params = FaultyDoubleParams
    inputs = ("x",)

    def load(self, p: Any) -> int:
        return int(p.units)

    def arrays(self, p: Any) -> Sequence[ArraySpec]:
        return (
            ArraySpec("x", "split", (WIDTH,), "float64"),
            ArraySpec("y", "out", (WIDTH,), "float64"),
        )

    def demand(self, p: Any, kind: str) -> MemoryDemand:
        return MemoryDemand(input_bytes=8 * WIDTH, work_bytes=0, output_bytes=8 * WIDTH)

    def flops(self, p: Any, x: int) -> float:
        return float(WIDTH * x)

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("numpy", np.__version__, make)] if kind == "cpu" else []

    def generate(self, p: Any, seed: int, array: str, first: int, out: np.ndarray) -> None:
        out[...] = seed

    def reference(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        return {"y": inputs["x"][i] * 2}

    def residual(self, p: Any, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        return np.abs(outputs["y"] - inputs["x"] * 2).max(axis=1)


def make(p: Any, chunk: int, context: KernelContext) -> Kernel:
    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        if p.fault and _is_first(p.marker):
            KERNEL_FAULTS[p.fault]()
        for _ in range(p.rounds):
            np.multiply(inputs["x"], 2, out=outputs["y"])

    return kernel


def _is_first(marker: str) -> bool:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
