"""The workload `heat`: explicit diffusion on a 2D or 3D grid; a row is one along the first axis.

u' = u + r (sum of the neighbours - 2 d u), r = diffusivity x time step / spacing^2 <= 1 / (2 d)
in d dimensions (von Neumann's condition). Borders of each axis: periodic; dirichlet: the points
beyond the last ones have a fixed value; neumann: no flow through the border. No NumPy in here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hetsched.errors import UsageError
from hetsched.units import closest_hint, quoted
from hetsched.workload import (
    FLOAT32,
    MAX_FLOAT,
    ArraySpec,
    Blocks,
    Border,
    Reduction,
    Stage,
    StateArray,
    Values,
)
from hetsched_workloads.declarations import DTYPES, Solver, WithExtent, parse

FORMS = (("ROWS", "COLS"), ("PLANES", "ROWS", "COLS"))
MAX_FLOAT32 = 2.0**127 * (2 - 2.0**-23)
DEFAULT_FRACTION = 0.9
"""Of the largest stable time step: how long a step is if none is given. Arbitrary."""
BORDERS: dict[str, Border] = {"periodic": "periodic", "dirichlet": "fixed", "neumann": "reflect"}


class HeatParams(msgspec.Struct, frozen=True):
    grid: Annotated[str, Meta(description="ROWSxCOLS or PLANESxROWSxCOLS")]
    steps: Annotated[int, Meta(ge=1, description="time steps")] = 100
    diffusivity: Annotated[
        float, Meta(gt=0, le=MAX_FLOAT, description="in spacing^2 per unit of time")
    ] = 1.0
    spacing: Annotated[float, Meta(gt=0, le=MAX_FLOAT, description="distance of grid points")] = (
        1.0
    )
    time_step: Annotated[
        float, Meta(ge=0, le=MAX_FLOAT, description="0: 0.9 of the largest stable one")
    ] = 0.0
    border: Annotated[
        str, Meta(description="periodic, dirichlet or neumann; or one per axis, a,b")
    ] = "periodic"
    border_value: Annotated[
        float, Meta(ge=-MAX_FLOAT, le=MAX_FLOAT, description="beyond dirichlet borders")
    ] = 0.0
    tolerance: Annotated[
        float,
        Meta(
            ge=0, le=MAX_FLOAT, description="stop when no point changes more in a step; 0: never"
        ),
    ] = 0.0
    dtype: Annotated[str, Meta(description=DTYPES.description)] = DTYPES.single.name

    @property
    def shape(self) -> tuple[int, ...]:
        return parse(self.grid, FORMS)

    @property
    def borders(self) -> tuple[str, ...]:
        """Of each axis. Raises UsageError."""
        words, axes = tuple(self.border.split(",")), len(self.shape)
        for word in words:
            if word not in BORDERS:
                hint = closest_hint(word, list(BORDERS))
                raise UsageError(f"heat has no border {quoted(word)}{hint}")
        if len(words) not in (1, axes):
            raise UsageError(f"border: {len(words)} borders for {axes} axes; give 1 or {axes}")
        return words * (axes // len(words))

    @property
    def ratio(self) -> float:
        if self.time_step == 0:
            return DEFAULT_FRACTION * 0.5 / len(self.shape)
        return self.diffusivity * self.time_step / self.spacing**2


class Heat(WithExtent, Solver):
    """Diffusion of heat; one row is one of a 2D or 3D grid.

    Outputs: final, the values after `steps` steps, or fewer if it became steady; steps (1,).
    """

    name = "heat"
    package = "hetsched_workloads.heat"
    libraries = {"numba": "compiled", "numpy": "kernels", "cupy": "kernels", "pyopencl": "opencl"}
    Params = HeatParams
    extent = "grid"
    inputs = ("initial",)
    optional_outputs = ("steps",)

    def forms(self, explicit: Mapping[str, Any]) -> Sequence[tuple[str, ...]]:
        return FORMS

    def load(self, p: HeatParams) -> int:
        axes = len(p.borders)
        dtype = DTYPES.parse(self.name, p.dtype)
        if dtype is FLOAT32 and abs(p.border_value) > MAX_FLOAT32:
            raise UsageError(f"border_value: {p.border_value:g} is too large for float32")
        largest = 0.5 / axes * p.spacing**2 / p.diffusivity
        if p.time_step > largest * (1 + 1e-12):
            raise UsageError(
                f"time_step: {p.time_step:g} is unstable; the largest for this spacing and"
                f" diffusivity is {largest:.6g}"
            )
        return p.shape[0]

    def arrays(self, p: HeatParams) -> Sequence[ArraySpec]:
        return (
            ArraySpec("initial", "split", p.shape[1:], p.dtype),
            ArraySpec("final", "out", p.shape[1:], p.dtype),
            ArraySpec("steps", "whole-out", (1,), "int64"),
        )

    def state(self, p: HeatParams) -> Sequence[StateArray]:
        border = BORDERS[p.borders[0]]
        value = p.border_value
        return (StateArray("u", p.shape[1:], p.dtype, 1, border, value, result="final"),)

    def reductions(self, p: HeatParams) -> Sequence[Reduction]:
        names = ("steps", "change") if p.tolerance > 0 else ("steps",)
        return [Reduction(name, combine="max") for name in names]

    def start(self, p: HeatParams) -> Sequence[Stage]:
        return (Stage("load", ("initial",), ("u",), ("steps",)),)

    def iteration(self, p: HeatParams) -> Sequence[Stage]:
        reductions = tuple(reduction.name for reduction in self.reductions(p))
        return (Stage("step", ("u",), ("u",), reductions),)

    def finish(self, p: HeatParams) -> Sequence[Stage]:
        return (Stage("result", ("u",), ("final", "steps")),)

    def max_iterations(self, p: HeatParams) -> int:
        return p.steps

    def converged(self, p: HeatParams, values: Values) -> bool:
        return bool(p.tolerance > 0 and values.now["change"] <= p.tolerance)

    def must_converge(self, p: HeatParams) -> bool:
        return False  # the steps asked for are the result

    def has_fixed_length(self, p: HeatParams) -> bool:
        return p.tolerance == 0

    def blocks(self, p: HeatParams) -> Blocks | None:
        if p.tolerance > 0:
            return None
        rows, columns = (border == "periodic" for border in p.borders[:2])
        params = msgspec.to_builtins(p)
        del params["grid"]
        axes = dict.fromkeys(("initial", "final"), (0, 1))
        return Blocks(axes, {"initial": "final"}, (rows, columns), params)

    def residual(self, p: HeatParams, values: Values) -> float:
        return float(values.now["change"]) if p.tolerance > 0 else float("nan")

    def flops(self, p: HeatParams, x: int) -> float:
        return float(x) * math.prod(p.shape[1:]) * (2 * len(p.shape) + 3)
