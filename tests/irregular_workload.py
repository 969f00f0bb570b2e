"""A plug-in whose units cost between one and twenty times the least, as an input says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, Kernel, KernelContext, Workload

MAX_COST_RATIO = 20
WIDTH = 4096
"""Numbers per unit: enough that NumPy computes without the interpreter's lock."""


class IrregularParams(msgspec.Struct, frozen=True):
    """`rounds`: of the cheapest unit."""

    units: int = 128
    rounds: int = 4
    width: int = WIDTH


class Irregular(Workload):
    """y = 1 after `rounds` * x rounds of y -> sqrt(y * y + 1), in float64."""

    name = "irregular"
    Params = IrregularParams
    axes = {"x": ("units",), "y": ("units", "width")}

    def demand(self, p: Any, kind: str) -> MemoryDemand:
        return MemoryDemand(input_bytes=8, work_bytes=0, output_bytes=8 * p.width)

    def kernel(self, p: Any, context: KernelContext) -> Kernel:
        def kernel(inputs: Arrays, outputs: Arrays) -> None:
            for cost, y in zip(inputs["x"], outputs["y"], strict=True):
                y[...] = 1.0
                for _ in range(int(np.ceil(p.rounds * cost))):
                    np.multiply(y, y, out=y)
                    np.add(y, 1.0, out=y)
                    np.sqrt(y, out=y)

        return kernel

    def reference(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        rounds = np.ceil(p.rounds * inputs["x"][i])
        return {"y": np.full(p.width, np.sqrt(1.0 + rounds))}

    def residual(self, p: Any, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        expected = np.sqrt(1.0 + np.ceil(p.rounds * inputs["x"]))
        errors: np.ndarray = np.abs(outputs["y"] - expected[:, None]).max(axis=1)
        return errors * 1e6


def costs(seed: int, first: int, count: int) -> np.ndarray:
    """Return the costs of `count` units from `first` on, 1 to `MAX_COST_RATIO`, log-uniform."""
    units = np.arange(first, first + count)
    draws = [np.random.default_rng([seed, int(unit)]).random() for unit in units]
    return np.asarray(MAX_COST_RATIO ** np.array(draws))
