"""The workload `heat`: explicit diffusion on a 2D or 3D grid; a row is one along the first axis.

u' = u + r (sum of the neighbours - 2 d u), r = diffusivity x time step / spacing^2 <= 1 / (2 d)
in d dimensions (von Neumann's condition). Borders of each axis: periodic; dirichlet: the points
beyond the last ones have a fixed value; neumann: no flow through the border. No NumPy in here.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from hetsched.workload import (
    Arrays,
    ArraySpec,
    Border,
    Iterative,
    Reduction,
    Rows,
    Stage,
    StateArray,
    Values,
    Variant,
    convert,
)
from hetsched_workloads.heat.inference import DTYPES, borders, check, grid_shape, infer
from hetsched_workloads.installed import solver_variants

if TYPE_CHECKING:
    import numpy as np

HERE = "hetsched_workloads.heat."
_ROW_BORDERS: Mapping[str, Border] = {
    "periodic": "periodic",
    "dirichlet": "fixed",
    "neumann": "reflect",
}


class HeatParams(msgspec.Struct, frozen=True):
    """Parameters of a diffusion."""

    grid: Annotated[str, msgspec.Meta(description="ROWSxCOLS or PLANESxROWSxCOLS")]
    steps: Annotated[int, msgspec.Meta(description="time steps")] = 100
    diffusivity: Annotated[float, msgspec.Meta(description="in spacing^2 per unit of time")] = 1.0
    spacing: Annotated[float, msgspec.Meta(description="distance of grid points")] = 1.0
    time_step: Annotated[float, msgspec.Meta(description="0: 0.9 of the largest stable one")] = 0.0
    border: Annotated[
        str, msgspec.Meta(description="periodic, dirichlet or neumann; or one per axis, a,b")
    ] = "periodic"
    border_value: Annotated[float, msgspec.Meta(description="beyond dirichlet borders")] = 0.0
    tolerance: Annotated[
        float, msgspec.Meta(description="stop when no point changes more in a step; 0: never")
    ] = 0.0
    dtype: Annotated[str, msgspec.Meta(description=DTYPES.description)] = DTYPES.single.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the points along each axis."""
        return grid_shape(self.grid)

    @property
    def borders(self) -> tuple[str, ...]:
        """Return the border of each axis."""
        return borders(self.border, len(self.shape))


class Heat(Iterative):
    """Diffusion of heat; one row is one of a 2D or 3D grid.

    Outputs: final, the values after `steps` steps, or fewer if it became steady; steps (1,).
    """

    name = "heat"
    writes_all = True
    Params = HeatParams
    inputs = ("initial",)
    optional_outputs = ("steps",)

    def load(self, p: HeatParams) -> int:
        check(p)
        return p.shape[0]

    def resized(self, p: HeatParams, load: int) -> HeatParams:
        grid = "x".join(map(str, (load, *p.shape[1:])))
        return msgspec.structs.replace(p, grid=grid)

    def arrays(self, p: HeatParams) -> Sequence[ArraySpec]:
        return (
            ArraySpec("initial", "split", p.shape[1:], p.dtype),
            ArraySpec("final", "out", p.shape[1:], p.dtype),
            ArraySpec("steps", "whole-out", (1,), "int64"),
        )

    def state(self, p: HeatParams) -> Sequence[StateArray]:
        border = _ROW_BORDERS[p.borders[0]]
        value = p.border_value
        return (StateArray("u", p.shape[1:], p.dtype, 1, border, value, result="final"),)

    def reductions(self, p: HeatParams) -> Sequence[Reduction]:
        """Return the number of steps, and the largest change if somebody needs it."""
        return (Reduction("steps", combine="max"), *self._change(p))

    def _change(self, p: HeatParams) -> Sequence[Reduction]:
        return (Reduction("change", combine="max"),) if p.tolerance > 0 else ()

    def start(self, p: HeatParams) -> Sequence[Stage]:
        return (Stage("load", ("initial",), ("u",), ("steps",)),)

    def iteration(self, p: HeatParams) -> Sequence[Stage]:
        reductions = ("steps", *(r.name for r in self._change(p)))
        return (Stage("step", ("u",), ("u",), reductions),)

    def finish(self, p: HeatParams) -> Sequence[Stage]:
        return (Stage("result", ("u",), ("final", "steps")),)

    def max_iterations(self, p: HeatParams) -> int:
        return p.steps

    def converged(self, p: HeatParams, values: Values) -> bool:
        return bool(p.tolerance > 0 and values.now["change"] <= p.tolerance)

    def must_converge(self, p: HeatParams) -> bool:
        """Return False: the steps asked for are the result."""
        return False

    def has_fixed_length(self, p: HeatParams) -> bool:
        return p.tolerance == 0

    def residual(self, p: HeatParams, values: Values) -> float:
        """Return the largest change of a point in the last step, if there is a tolerance."""
        return float(values.now["change"]) if p.tolerance > 0 else float("nan")

    def errors(
        self, p: HeatParams, inputs: Arrays, outputs: Arrays, rows: Rows, seed: int
    ) -> np.ndarray:
        errors: np.ndarray = _verification().errors(p, inputs["initial"], outputs, rows)
        return errors

    def flops(self, p: HeatParams, x: int) -> float:
        points = 1.0
        for size in p.shape[1:]:
            points *= size
        return x * points * (2 * len(p.shape) + 3)

    def variants(self, kind: str) -> Sequence[Variant]:
        return solver_variants(kind, HERE, numba="numba_cpu", numpy="numpy_cpu")

    def generate(self, p: HeatParams, seed: int, array: str, first: int, out: np.ndarray) -> None:
        _verification().generate(seed, array, first, out)

    def infer(
        self, explicit: Mapping[str, Any], arrays: Mapping[str, tuple[tuple[int, ...], str]]
    ) -> HeatParams:
        params: HeatParams = convert(self, infer(explicit, arrays.get("initial")))
        self.load(params)
        return params


@functools.cache
def _verification() -> Any:
    """Import it late: it needs NumPy."""
    return importlib.import_module("hetsched_workloads.heat.verification")
