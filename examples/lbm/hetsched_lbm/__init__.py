"""The workload `lbm`: two-dimensional flow by the lattice Boltzmann method; a row is one of cells.

D2Q9 with BGK's collision (Qian, d'Humieres & Lallemand, Europhys. Lett. 17(6), 1992), halfway
bounce-back at walls and solid cells, forces after Guo, Zheng & Shi (Phys. Rev. E 65, 2002). Units
are cells and steps; density is about 1. Rows count upwards.

cavity: walls on all sides; that above the last row moves along it with `speed`; at rest at first.
channel: walls below the first and above the last row, periodic along the rows, driven by a force.
It starts from the flow of an empty channel: from rest, its speed would come about only after some
rows^2 / viscosity steps, a million at Re = 1000 with 300 rows.

The output `populations` is all of the state, and the input `start` of a job that goes on from it;
`python -m hetsched_lbm.snapshots` writes the velocity every so many steps that way.

In cavities with odd numbers of rows and columns populations keep an oscillation with a period of
two steps (0.07 % of the speed with 33 x 33), so changes don't fall below a small tolerance.

Measured, cavities of 129 x 129 cells, lid at 0.1 cells per step: at the points of Ghia, Ghia &
Shin (1982) the largest deviation is 0.60 % of the lid's speed for Re = 100 after 60,000 steps,
0.81 % for Re = 400 after 100,000; the mass changes by less than 1e-14 of it. No NumPy in here.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hetsched.errors import DataError
from hetsched.workload import (
    FLOAT32,
    FLOAT64,
    INFERRED,
    MAX_FLOAT,
    Arrays,
    ArraySpec,
    Blocks,
    DtypeChoice,
    Iterative,
    KernelContext,
    Reduction,
    Rows,
    Stage,
    StageKernel,
    StateArray,
    Values,
    Variant,
    version,
)

if TYPE_CHECKING:
    import numpy as np

DTYPES = DtypeChoice(FLOAT32, FLOAT64)
MAX_SPEED = 0.3
"""Cells per step: beyond about half the speed of sound, 1 / sqrt(3), the method isn't a flow."""
MASK_DTYPES = ("bool", "uint8", "|b1", "|u1", "b1", "u1")
LIBRARIES = {"cpu": ("numba", "numpy"), "cuda": ("cupy",)}
"""Kind of device -> libraries with kernels for it, the fastest first."""


class LbmParams(msgspec.Struct, frozen=True):
    """Parameters of a flow."""

    rows: Annotated[int, Meta(description="cells across the channel; height")]
    cols: Annotated[int, Meta(description="cells along the channel or the lid")]
    flow: Annotated[
        Literal["cavity", "channel"],
        Meta(description="cavity, from rest; or channel, from the flow of an empty one"),
    ] = "cavity"
    reynolds: Annotated[
        float,
        Meta(
            gt=0,
            le=MAX_FLOAT,
            description="speed x (cols of a cavity, rows of a channel) / viscosity",
        ),
    ] = 100.0
    speed: Annotated[
        float,
        Meta(
            gt=0, le=MAX_SPEED, description="of the lid, or amid an empty channel; cells per step"
        ),
    ] = 0.1
    steps: Annotated[int, Meta(ge=1, description="time steps")] = 1000
    tolerance: Annotated[
        float,
        Meta(
            ge=0,
            le=MAX_FLOAT,
            description="stop if no change in a step exceeds this x speed; 0: never",
        ),
    ] = 0.0
    has_mask: Annotated[bool, Meta(description="of solid cells", extra=INFERRED)] = False
    has_start: Annotated[bool, Meta(description="a flow goes on", extra=INFERRED)] = False
    of_rows: Annotated[
        int, Meta(ge=0, description="of the flow that this is a part of", extra=INFERRED)
    ] = 0
    of_cols: Annotated[
        int, Meta(ge=0, description="of the flow that this is a part of", extra=INFERRED)
    ] = 0
    dtype: Annotated[str, Meta(description=DTYPES.description)] = DTYPES.double.name

    @property
    def viscosity(self) -> float:
        """Return the kinematic viscosity in cells^2 per step."""
        rows, cols = self.of_rows or self.rows, self.of_cols or self.cols
        length = cols if self.flow == "cavity" else rows
        return self.speed * length / self.reynolds

    @property
    def relaxation_time(self) -> float:
        """Return tau of BGK's collision, above 1/2."""
        return 3 * self.viscosity + 0.5

    @property
    def force(self) -> float:
        """Return the acceleration of a channel: that of a parabola with `speed` at its vertex."""
        if self.flow != "channel":
            return 0.0
        return 8 * self.viscosity * self.speed / (self.of_rows or self.rows) ** 2


class Lbm(Iterative):
    """Flow in a cavity or a channel; one row is one of cells.

    Outputs: density (rows, cols), velocity (rows, cols, 2) along and across the rows, populations
    (rows, 9, cols), steps (1,).
    """

    name = "lbm"
    writes_all = True
    Params = LbmParams
    inputs = ("mask", "start")
    optional_inputs = ("start",)
    optional_outputs = ("populations", "steps")
    axes = {"mask": ("rows", "cols")}
    dtypes = DTYPES
    state_version = 2  # channels start from the flow

    def resized(self, p: LbmParams, load: int) -> LbmParams:
        return msgspec.structs.replace(p, rows=load)

    def speed_key(self, p: LbmParams) -> str:
        """Return the default's, without the mask's number of rows."""
        key = super().speed_key(msgspec.structs.replace(p, has_mask=False))
        return f"masked {key}" if p.has_mask else key

    def arrays(self, p: LbmParams) -> Sequence[ArraySpec]:
        mask = ArraySpec("mask", "resident", (p.rows, p.cols), "uint8")
        start = ArraySpec("start", "split", (9, p.cols), p.dtype)
        return (
            *((mask,) if p.has_mask else ()),
            *((start,) if p.has_start else ()),
            ArraySpec("density", "out", (p.cols,), p.dtype),
            ArraySpec("velocity", "out", (p.cols, 2), p.dtype),
            ArraySpec("populations", "out", (9, p.cols), p.dtype),
            ArraySpec("steps", "whole-out", (1,), "int64"),
        )

    def state(self, p: LbmParams) -> Sequence[StateArray]:
        """Return the populations after collisions, less those of a fluid of density 1 at rest.

        No cell reads what is beyond the first and last row: there are walls.
        """
        return (StateArray("f", (9, p.cols), p.dtype, halo=1, result="populations"),)

    def reductions(self, p: LbmParams) -> Sequence[Reduction]:
        """Return steps, the mass in excess of 1 per cell, and the largest change."""
        change = (Reduction("change", combine="max"),) if p.tolerance > 0 else ()
        return (Reduction("steps", combine="max"), Reduction("excess"), *change)

    def start(self, p: LbmParams) -> Sequence[Stage]:
        inputs = (("mask",) if p.has_mask else ()) + (("start",) if p.has_start else ())
        return (Stage("begin", inputs, ("f",), ("steps",)),)

    def iteration(self, p: LbmParams) -> Sequence[Stage]:
        inputs = ("f", "mask") if p.has_mask else ("f",)
        reductions = tuple(r.name for r in self.reductions(p))
        return (Stage("step", inputs, ("f",), reductions),)

    def finish(self, p: LbmParams) -> Sequence[Stage]:
        inputs = ("f", "mask") if p.has_mask else ("f",)
        return (Stage("result", inputs, ("density", "velocity", "populations", "steps")),)

    def max_iterations(self, p: LbmParams) -> int:
        return p.steps

    def converged(self, p: LbmParams, values: Values) -> bool:
        """Return whether the flow is steady. Raises DataError if it is unstable."""
        if not abs(values.now["excess"]) <= p.rows * p.cols:  # mass is conserved; NaN fails, too
            raise DataError(
                f"lbm: unstable after {int(values.now['steps'])} steps: mass was lost or gained;"
                f" relaxation time {p.relaxation_time:.4f}, 0.5 is the limit: use more cells or"
                " a lower Reynolds number"
            )
        return bool(p.tolerance > 0 and values.now["change"] <= p.tolerance * p.speed)

    def must_converge(self, p: LbmParams) -> bool:
        """Return False: the steps asked for are the result."""
        return False

    def has_fixed_length(self, p: LbmParams) -> bool:
        return p.tolerance == 0

    def blocks(self, p: LbmParams) -> Blocks | None:
        """Return how hosts cut a flow of a fixed number of steps; none is beyond two walls."""
        if p.tolerance > 0:
            return None
        params = msgspec.to_builtins(msgspec.structs.replace(p, of_rows=p.rows, of_cols=p.cols))
        for name in ("rows", "cols", "has_mask", "has_start"):
            del params[name]
        axes = {"mask": (0, 1), "start": (0, 2), "density": (0, 1), "velocity": (0, 1)}
        return Blocks(
            {**axes, "populations": (0, 2)},
            {"start": "populations"},
            (False, p.flow == "channel"),
            params,
            begin=lambda inputs: {"start": _late("lattice").start(p, inputs.get("mask"))},
        )

    def residual(self, p: LbmParams, values: Values) -> float:
        """Return the largest change of a population in a step over the speed, with a tolerance."""
        change = float(values.now["change"]) if p.tolerance > 0 else float("nan")
        return change / p.speed if change < float("inf") else float("nan")

    def errors(
        self, p: LbmParams, inputs: Arrays, outputs: Arrays, rows: Rows, seed: int
    ) -> np.ndarray:
        errors: np.ndarray = _late("verification").errors(p, inputs, outputs, rows)
        return errors

    def flops(self, p: LbmParams, x: int) -> float:
        """Return those of the moments, the products and the collision."""
        return float(x) * p.cols * (2 * 3 * 9 + 8 + 2 * 9 * 16)

    def variants(self, kind: str) -> Sequence[Variant]:
        return tuple(
            Variant(library, installed, functools.partial(_make, library))
            for library in LIBRARIES.get(kind, ())
            if (installed := version(library))
        )

    def generate(self, p: LbmParams, seed: int, array: str, first: int, out: np.ndarray) -> None:
        _late("verification").generate(array, out)

    def infer(
        self, explicit: Mapping[str, Any], arrays: Mapping[str, tuple[tuple[int, ...], str]]
    ) -> LbmParams:
        """Take rows and cols from the inputs, if there are any."""
        full: dict[str, Any] = {"dtype": DTYPES.double.name}
        full |= {key: value for key, value in explicit.items() if value is not None}
        full |= {"has_mask": "mask" in arrays, "has_start": "start" in arrays}
        if "mask" in arrays and arrays["mask"][1] not in MASK_DTYPES:
            raise DataError(
                f"mask holds {arrays['mask'][1]}; lbm takes bool or uint8, other than 0: solid"
            )
        sources = {}
        if "start" in arrays:
            shape, _ = arrays["start"]
            if len(shape) != 3 or shape[1] != 9:
                raise DataError(f"start has the shape {tuple(shape)}; it needs rows x 9 x cols")
            sources = dict.fromkeys(("rows", "cols"), "start")
            full |= {"rows": shape[0], "cols": shape[2]}
        params: LbmParams = self._inferred(full, arrays, sources)
        return params


def _make(
    library: str, p: LbmParams, load: int, context: KernelContext
) -> Mapping[str, StageKernel]:
    name = "compiled" if library == "numba" else "array_stages"
    kernels: Mapping[str, StageKernel] = _late(name).make(p, load, context)
    return kernels


def _late(name: str) -> Any:
    """Import a module that needs NumPy."""
    return importlib.import_module(f"hetsched_lbm.{name}")
