"""A small iterative workload: smoothing of columns of numbers, each with a halo of one row.

Both buffers, each kind of border, a whole array, reductions by sum and by maximum, several start
rounds and stages: whatever iterative workloads may use, in a few lines.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from hetsched.errors import DataError
from hetsched.workload import (
    Arrays,
    ArraySpec,
    Border,
    Iterative,
    KernelContext,
    Reduction,
    Rows,
    Stage,
    StageCall,
    StageKernel,
    StateArray,
    Values,
    Variant,
)

SLOW_SECONDS = 0.02


class DiffusionParams(msgspec.Struct, frozen=True):
    """Of `columns` numbers in each row; `is_bad`: the first iteration finds row 0 to be bad.

    `slow_until`: a file; until it exists, iterations take SLOW_SECONDS longer; or "".
    """

    rows: int = 24
    columns: int = 4
    iterations: int = 10
    tolerance: float = 0.0
    border: str = "periodic"
    is_bad: bool = False
    slow_until: str = ""


class Diffusion(Iterative):
    """y: x after `iterations` steps, each of which subtracts a hundredth of the mean.

    totals: the sums of y's columns before the last step.
    """

    name = "diffusion"
    Params = DiffusionParams
    inputs = ("x",)
    limits = (*Iterative.limits, "slow_until")

    def load(self, p: DiffusionParams) -> int:
        return p.rows

    def arrays(self, p: DiffusionParams) -> Sequence[ArraySpec]:
        shape = (p.columns,)
        return (
            ArraySpec("x", "split", shape, "float64"),
            ArraySpec("y", "out", shape, "float64"),
            ArraySpec("totals", "whole-out", shape, "float64"),
        )

    def state(self, p: DiffusionParams) -> Sequence[StateArray]:
        border: Border = "periodic" if p.border == "periodic" else "reflect"
        if p.border == "fixed":
            border = "fixed"
        return (
            StateArray("u", (p.columns,), "float64", 1, border, 2.0),
            StateArray("means", (), "float64", has_two_buffers=False, is_whole=True),
        )

    def reductions(self, p: DiffusionParams) -> Sequence[Reduction]:
        return (
            Reduction("total", (p.columns,)),
            Reduction("change", combine="max"),
            Reduction("rounds", combine=lambda parts: parts[0]),
        )

    def start(self, p: DiffusionParams) -> Sequence[Stage]:
        return (Stage("copy", ("x",), ("u",), ("rounds",)),)

    def start_rounds(self, p: DiffusionParams) -> int:
        return 3

    def iteration(self, p: DiffusionParams) -> Sequence[Stage]:
        return (
            Stage("mean", ("u",), ("means",), ("total",)),
            Stage("smooth", ("u", "means"), ("u",), ("change",)),
        )

    def finish(self, p: DiffusionParams) -> Sequence[Stage]:
        return (Stage("result", ("u",), ("y", "totals")),)

    def max_iterations(self, p: DiffusionParams) -> int:
        return p.iterations

    def must_converge(self, p: DiffusionParams) -> bool:
        return p.tolerance > 0

    def has_fixed_length(self, p: DiffusionParams) -> bool:
        return p.tolerance == 0

    def converged(self, p: DiffusionParams, values: Values) -> bool:
        return bool(values.now["change"] <= p.tolerance)

    def residual(self, p: DiffusionParams, values: Values) -> float:
        return float(values.now["change"])

    def errors(
        self, p: DiffusionParams, inputs: Arrays, outputs: Arrays, rows: Rows, seed: int
    ) -> np.ndarray:
        expected, _ = diffused(p, inputs["x"])
        difference = np.abs(outputs["y"] - expected)[rows.first : rows.stop]
        return np.asarray(difference.max(axis=1) / 1e-9)

    def flops(self, p: DiffusionParams, x: int) -> float:
        return 10.0 * x * p.columns

    def variants(self, kind: str) -> Sequence[Variant]:
        return (Variant("numpy", "1", make),)

    def generate(
        self, p: DiffusionParams, seed: int, array: str, first: int, out: np.ndarray
    ) -> None:
        for row, values in enumerate(out, first):
            values[...] = np.random.default_rng((seed, row)).standard_normal(p.columns)


def make(p: DiffusionParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage. On a GPU partials and values are on the host."""
    to_host = getattr(context.xp, "asnumpy", np.asarray)

    def copy(call: StageCall) -> None:
        done = int(call.values.now["rounds"]) if call.values.now else 0
        call.outputs["u"][...] = call.inputs["x"] * 2.0**done / 4
        call.partials["rounds"][...] = done + 1

    def mean(call: StageCall) -> None:
        own = call.inputs["u"][1:-1]
        call.outputs["means"][...] = own.mean(axis=1)
        call.partials["total"][...] = to_host(own.sum(axis=0))

    def smooth(call: StageCall) -> None:
        u, new = call.inputs["u"], call.outputs["u"]
        if p.slow_until and not Path(p.slow_until).exists():
            time.sleep(SLOW_SECONDS)
        mean = call.inputs["means"].mean()
        new[...] = (u[:-2] + 2 * u[1:-1] + u[2:]) / 4 - 0.01 * mean
        call.partials["change"][...] = to_host(np.abs(new - u[1:-1]).max())
        if call.rows.is_first and p.is_bad:
            raise DataError("row 0 is bad data")

    def result(call: StageCall) -> None:
        call.outputs["y"][...] = call.inputs["u"][1:-1]
        if call.rows.is_first:
            call.outputs["totals"][...] = context.xp.asarray(call.values.now["total"])

    return {"copy": copy, "mean": mean, "smooth": smooth, "result": result}


def diffused(p: DiffusionParams, x: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the result for `x`, and the number of iterations, computed in one piece."""
    u = np.asarray(x, dtype=np.float64)
    for iteration in range(1, p.iterations + 1):
        if p.border == "fixed":
            padded = np.pad(u, ((1, 1), (0, 0)), constant_values=2.0)
        else:
            padded = np.pad(u, ((1, 1), (0, 0)), "wrap" if p.border == "periodic" else "symmetric")
        new = (padded[:-2] + 2 * u + padded[2:]) / 4 - 0.01 * u.mean(axis=1).mean()
        change, u = np.abs(new - u).max(), new
        if change <= p.tolerance:
            return u, iteration
    return u, p.iterations
