"""The workload `plate`: the steady temperature of a plate whose edges are held at given values.

An iterative workload: each iteration replaces every inner point by the mean of its four
neighbours, until nothing changes by more than the tolerance. Rows are split over the devices, and
each device reads one row of its neighbours (the halo).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from hetsched.errors import UsageError
from hetsched.workload import (
    Arrays,
    Iterative,
    KernelContext,
    Reduction,
    Rows,
    Stage,
    StageKernel,
    StateArray,
    Values,
)

if TYPE_CHECKING:
    import numpy as np


class PlateParams(msgspec.Struct, frozen=True):
    """Each field becomes a flag: `--rows`, `--cols`, `--tolerance`, `--max-iterations`."""

    rows: Annotated[int, msgspec.Meta(description="rows of points")]
    cols: Annotated[int, msgspec.Meta(description="columns of points")]
    tolerance: Annotated[
        float, msgspec.Meta(description="the largest change of a point in the last iteration")
    ] = 1e-4
    max_iterations: Annotated[
        int, msgspec.Meta(description="iterations after which the job fails")
    ] = 100_000


class Plate(Iterative):
    """u[i, j] = mean of its neighbours, for all points but those of the edges."""

    name = "plate"
    Params = PlateParams
    axes = {"x": ("rows", "cols"), "y": ("rows", "cols")}

    def load(self, p: PlateParams) -> int:
        if min(p.rows, p.cols) < 3:
            raise UsageError(f"rows {p.rows} and cols {p.cols} must be at least 3")
        return p.rows

    def state(self, p: PlateParams) -> Sequence[StateArray]:
        return (StateArray("u", (p.cols,), "float64", halo=1),)

    def reductions(self, p: PlateParams) -> Sequence[Reduction]:
        return (Reduction("change", combine="max"),)

    def start(self, p: PlateParams) -> Sequence[Stage]:
        return (Stage("begin", inputs=("x",), outputs=("u",)),)

    def iteration(self, p: PlateParams) -> Sequence[Stage]:
        return (Stage("relax", inputs=("u",), outputs=("u",), reductions=("change",)),)

    def finish(self, p: PlateParams) -> Sequence[Stage]:
        return (Stage("end", inputs=("u",), outputs=("y",)),)

    def max_iterations(self, p: PlateParams) -> int:
        return p.max_iterations

    def converged(self, p: PlateParams, values: Values) -> bool:
        return bool(values.now["change"] <= p.tolerance)

    def residual(self, p: PlateParams, values: Values) -> float:
        return float(values.now["change"])

    def kernel(self, p: PlateParams, context: KernelContext) -> Mapping[str, StageKernel]:
        """Return the kernels, by the name of the stage; the same array code runs on CuPy."""
        from hetsched_plate import kernels

        return kernels.make(context.xp)

    def generate(self, p: PlateParams, seed: int, array: str, first: int, out: np.ndarray) -> None:
        """Fill `out` with a cold plate whose first row is hot."""
        out[...] = 0.0
        if first == 0:
            out[0] = 100.0

    def errors(
        self, p: PlateParams, inputs: Arrays, outputs: Arrays, rows: Rows, seed: int
    ) -> np.ndarray:
        from hetsched_plate import verification  # needs NumPy

        return verification.errors(inputs["x"], outputs["y"], rows, p.tolerance)
