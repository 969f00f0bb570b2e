"""The workload `jacobi`: A x = b, A dense, by the weighted Jacobi method. No NumPy in here.

x := x + omega (b - A x) / diag(A), until |b - A x| <= tolerance |b| (`criterion` residual), or
until a step is at most tolerance |x| long (`criterion` change). It converges for any x0 if A is
strictly diagonally dominant, or, with a small enough omega, symmetric and positive definite
(Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., section 4.2).

An iteration has two stages: `move` computes x on own rows, `residual` b - A x with all of x.
The residual may rise again, so the result is the x with the least |b - A x|, the last or `best`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hetsched.errors import DataError
from hetsched.workload import INFERRED, ArraySpec, Reduction, Stage, StateArray, Values
from hetsched_workloads.declarations import DTYPES
from hetsched_workloads.systems import (
    MAX_GROWTH,
    LinearSystem,
    change_of,
    residual_of,
    size_of_b,
    sums,
)

MAX_GRANULE = 32
"""Rows per call of the matrix product. Of 8192 columns, 8 rows per call are as fast as 128."""
MIN_GRANULES = 16
"""Of small matrices, whose calls of the product would else be too short. Arbitrary."""


class JacobiParams(msgspec.Struct, frozen=True):
    n: Annotated[int, Meta(description="rows and columns of A")]
    dtype: Annotated[str, Meta(description=DTYPES.description)] = DTYPES.double.name
    omega: Annotated[float, Meta(gt=0, le=2, description="weight of a step, up to 2")] = 1.0
    tolerance: Annotated[float, Meta(gt=0, lt=1, description="limit of the criterion")] = 1e-5
    criterion: Annotated[
        Literal["residual", "change"],
        Meta(description="|b - A x| / |b|, or the last step's length / |x|"),
    ] = "residual"
    max_iterations: Annotated[
        int, Meta(ge=0, description="fail after so many iterations; 0: 10,000")
    ] = 0
    x0: Annotated[bool, Meta(description="there is an input x0", extra=INFERRED)] = False


class Jacobi(LinearSystem):
    """A x = b by Jacobi's method; a unit is a row of A."""

    name = "jacobi"
    package = "hetsched_workloads.jacobi"
    libraries = {"numpy": "kernels", "cupy": "kernels", "pyopencl": "opencl"}
    Params = JacobiParams
    inputs = ("A", "b", "x0")
    axes = {"A": ("n", "n"), "b": ("n",), "x0": ("n",)}

    def arrays(self, p: JacobiParams) -> Sequence[ArraySpec]:
        return (ArraySpec("A", "split", (p.n,), p.dtype), *self.vectors(p))

    def state(self, p: JacobiParams) -> Sequence[StateArray]:
        """Return x and the residual, and a copy of x that all devices read in the same iteration.

        Stages read the x of the iteration before; of the new one they can read only the copy.
        """
        return (
            StateArray("iterate", (), p.dtype),
            StateArray("residual", (), p.dtype),
            StateArray("best", (), p.dtype),
            StateArray("gathered", (), p.dtype, has_two_buffers=False, is_whole=True),
        )

    def reductions(self, p: JacobiParams) -> Sequence[Reduction]:
        names = ("rr", "steps", "xx")
        minimum = Reduction("least", combine="min")  # rr of `best`
        by_granule = [sums(name, p.n, self.granule(p)) for name in names]
        return [*size_of_b(p.n, self.granule(p)), *by_granule, minimum]

    def start(self, p: JacobiParams) -> Sequence[Stage]:
        vectors = ("b", "x0") if p.x0 else ("b",)
        reductions = ("bb", "largest", "least")
        return (
            Stage("begin", ("A", *vectors), ("iterate", "best", "gathered"), reductions),
            Stage("start", ("A", "b", "gathered"), ("residual",), ("rr",)),
        )

    def iteration(self, p: JacobiParams) -> Sequence[Stage]:
        return (
            Stage(
                "move",
                ("A", "iterate", "residual", "best"),
                ("iterate", "best", "gathered"),
                ("steps", "xx", "least"),
            ),
            Stage("residual", ("A", "b", "gathered"), ("residual",), ("rr",)),
        )

    def finish(self, p: JacobiParams) -> Sequence[Stage]:
        return (Stage("result", ("iterate", "best"), ("x",)),)

    def max_iterations(self, p: JacobiParams) -> int:
        return p.max_iterations or 10_000

    def converged(self, p: JacobiParams, values: Values) -> bool:
        now = residual_of(values.now, values.now)
        if now > MAX_GROWTH and now > residual_of(values.before, values.now):
            raise DataError(
                f"Jacobi's method diverges, residual {now:.3g}: A isn't diagonally dominant; use a"
                f" smaller omega than {p.omega:g}, or pcg if A is symmetric and positive definite"
            )
        return self.residual(p, values) <= p.tolerance

    def residual(self, p: JacobiParams, values: Values) -> float:
        if p.criterion == "residual":
            return residual_of(values.now, values.now)
        return change_of(values.now)

    def granule(self, p: JacobiParams) -> int:
        return max(1, min(MAX_GRANULE, p.n // MIN_GRANULES))

    def flops(self, p: JacobiParams, x: int) -> float:
        return x * (2.0 * p.n + 6)
