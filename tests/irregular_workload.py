"""A plug-in whose units cost between one and twenty times the least, as an input says.

A unit is an escape-time computation, as for a fractal: its input is the number of rounds, its
output the state after them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext, Variant, Workload

MAX_COST_RATIO = 20
WIDTH = 4096
"""Numbers per unit: enough that NumPy computes without the interpreter's lock."""


class IrregularParams(msgspec.Struct, frozen=True):
    """`rounds`: of the cheapest unit."""

    units: int = 128
    rounds: int = 4


class Irregular(Workload):
    """y = 1 after `rounds` * x rounds of y -> sqrt(y * y + 1), in float64."""

    name = "irregular"
    Params = IrregularParams

    def load(self, p: Any) -> int:
        return p.units

    def arrays(self, p: Any) -> Sequence[ArraySpec]:
        return (
            ArraySpec("x", "split", (), "float64"),
            ArraySpec("y", "out", (WIDTH,), "float64"),
        )

    def demand(self, p: Any, kind: str) -> MemoryDemand:
        return MemoryDemand(input_bytes=8, work_bytes=0, output_bytes=8 * WIDTH)

    def flops(self, p: Any, x: int) -> float:
        return 3.0 * WIDTH * p.rounds * MAX_COST_RATIO / 2 * x

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("numpy", np.__version__, make)] if kind == "cpu" else []

    def generate(self, p: Any, seed: int, array: str, first: int, out: np.ndarray) -> None:
        out[...] = costs(seed, first, len(out))

    def reference(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        rounds = p.rounds * float(inputs["x"][i])
        return {"y": np.full(WIDTH, np.sqrt(1.0 + np.ceil(rounds)))}

    def residual(self, p: Any, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        expected = np.sqrt(1.0 + np.ceil(p.rounds * inputs["x"]))
        errors: np.ndarray = np.abs(outputs["y"] - expected[:, None]).max(axis=1)
        return errors * 1e6


def costs(seed: int, first: int, count: int) -> np.ndarray:
    """Return the costs of `count` units from `first` on, 1 to `MAX_COST_RATIO`, log-uniform."""
    units = np.arange(first, first + count)
    draws = [np.random.default_rng([seed, int(unit)]).random() for unit in units]
    return np.asarray(MAX_COST_RATIO ** np.array(draws))


def make(p: Any, chunk: int, context: KernelContext) -> Kernel:
    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        for cost, y in zip(inputs["x"], outputs["y"], strict=True):
            y[...] = 1.0
            for _ in range(int(np.ceil(p.rounds * cost))):
                np.multiply(y, y, out=y)
                np.add(y, 1.0, out=y)
                np.sqrt(y, out=y)

    return kernel
