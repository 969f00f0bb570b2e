"""The workload `pcg`: A x = b by preconditioned conjugate gradients. No NumPy in here.

A is sparse (CSR), symmetric and positive definite. The method of Hestenes and Stiefel (1952), in
the form of Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., algorithm 9.1, until
|r| <= tolerance |b|. Preconditioners: the diagonal; the incomplete Cholesky factors of diagonal
blocks of `block` rows, which are fixed, so that the result doesn't depend on the split.

An iteration has three stages, since p must be complete before A p, and p.Ap and r.z before the
step and the next direction:

multiply   q = A p; p.q
advance    r -= alpha q with alpha = r.z / p.q; z = M^-1 r; r.r and r.z
direct     x += alpha p, where p is read anyway; p = z + (r.z / previous r.z) p
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hetsched.errors import DataError, UsageError
from hetsched.memory import MemoryDemand
from hetsched.workload import (
    INFERRED,
    ArraySpec,
    Reduction,
    SparseMatrix,
    Stage,
    StateArray,
    Values,
    version,
)
from hetsched_workloads.declarations import DTYPES, Shapes, parse
from hetsched_workloads.systems import LinearSystem, residual_of, size_of_b, sum_of, sums

PARTS = ("A.data", "A.indices", "A.indptr")
FORMS = (("X",), ("X", "Y"), ("X", "Y", "Z"))
MAX_INT32 = 2**31 - 1
MAX_BLOCK = 4096
MIN_BLOCKS = 256
"""Blocks of a large system without incomplete Cholesky: units that the balancer can move."""
MIN_CHOLESKY_BLOCKS = 64
MIN_CHOLESKY_BLOCK = 64
"""Fewer and larger blocks, as small ones make the preconditioner weak. Arbitrary."""
ITERATIONS_PER_ROW = 10
MAX_ITERATIONS = 10_000
"""The default limit of iterations: 10 per row, as in SciPy, but no more than this."""

MAX_RESIDUAL = 1e9
"""Relative residual above which the iteration diverges: that of conjugate gradients grows by no
more than the square root of the condition number, at most 1e8 in double precision."""

Preconditioner = Literal["none", "diagonal", "cholesky"]


class PcgParams(msgspec.Struct, frozen=True):
    n: Annotated[int, Meta(ge=1, description="rows and columns of A", extra=INFERRED)]
    nonzeros: Annotated[int, Meta(ge=0, description="of A", extra=INFERRED)]
    grid: Annotated[
        str, Meta(description="generate a Poisson problem on this grid, as 100x100x100")
    ] = ""
    dtype: Annotated[str, Meta(description=DTYPES.description)] = DTYPES.double.name
    index_dtype: Annotated[Literal["int32", "int64"], Meta(description="of A", extra=INFERRED)] = (
        "int32"
    )
    preconditioner: Annotated[
        Preconditioner, Meta(description="none, diagonal, or cholesky (incomplete)")
    ] = "diagonal"
    block: Annotated[
        int, Meta(ge=0, description="rows of a Cholesky block, which stay together; 0: choose")
    ] = 0
    tolerance: Annotated[float, Meta(gt=0, lt=1, description="limit of |b - A x| / |b|")] = 1e-5
    max_iterations: Annotated[
        int, Meta(ge=0, description="fail after so many iterations; 0: 10 n, up to 10,000")
    ] = 0
    x0: Annotated[bool, Meta(description="there is an input x0", extra=INFERRED)] = False


class Pcg(LinearSystem):
    """A x = b by conjugate gradients; a unit is a row of A."""

    name = "pcg"
    package = "hetsched_workloads.pcg"
    libraries = {"numba": "compiled", "scipy": "kernels", "cupy": "cupy_cuda"}
    Params = PcgParams
    composites = (SparseMatrix("A"),)
    inputs = (*PARTS, "b", "x0")
    axes = {"A.data": ("nonzeros",), "b": ("n",), "x0": ("n",)}

    def load(self, p: PcgParams) -> int:
        DTYPES.parse(self.name, p.dtype)
        if p.preconditioner == "cholesky" and not version("numba"):
            raise UsageError("preconditioner cholesky needs numba: pip install 'hetsched[numba]'")
        return p.n

    def arrays(self, p: PcgParams) -> Sequence[ArraySpec]:
        return (
            ArraySpec("A.data", "resident", (p.nonzeros,), p.dtype, PARTS[2]),
            ArraySpec("A.indices", "resident", (p.nonzeros,), p.index_dtype, PARTS[2]),
            ArraySpec(PARTS[2], "resident", (p.n + 1,), p.index_dtype, PARTS[2]),
            *self.vectors(p),
        )

    def state(self, p: PcgParams) -> Sequence[StateArray]:
        return (
            StateArray("iterate", (), p.dtype),
            StateArray("residual", (), p.dtype),
            StateArray("direction", (), p.dtype, is_whole=True),
            StateArray("product", (), p.dtype, has_two_buffers=False),
            StateArray("preconditioned", (), p.dtype, has_two_buffers=False),
        )

    def reductions(self, p: PcgParams) -> Sequence[Reduction]:
        by_granule = [sums(name, p.n, self.granule(p)) for name in ("pq", "rr", "rz")]
        norm = Reduction("norm", combine=lambda parts: functools.reduce(math.hypot, parts))
        return [*size_of_b(p.n, self.granule(p)), *by_granule, Reduction("asymmetry"), norm]

    def start(self, p: PcgParams) -> Sequence[Stage]:
        vectors = ("b", "x0") if p.x0 else ("b",)
        sums = ("bb", "largest", "asymmetry", "norm")
        new = ("product", "residual", "preconditioned")
        return (
            Stage("begin", (*PARTS, *vectors), ("iterate", "direction"), sums),
            Stage("start", (*PARTS, "b", "direction"), new, ("rr", "rz")),
            Stage("start_direction", ("preconditioned",), ("direction",)),
        )

    def iteration(self, p: PcgParams) -> Sequence[Stage]:
        changes, vectors = (*PARTS, "residual", "product"), ("iterate", "direction")
        return (
            Stage("multiply", (*PARTS, "direction"), ("product",), ("pq",)),
            Stage("advance", changes, ("residual", "preconditioned"), ("rr", "rz")),
            Stage("direct", (*vectors, "preconditioned"), vectors),
        )

    def finish(self, p: PcgParams) -> Sequence[Stage]:
        return (Stage("result", ("iterate",), ("x",)),)

    def max_iterations(self, p: PcgParams) -> int:
        return p.max_iterations or min(ITERATIONS_PER_ROW * p.n, MAX_ITERATIONS)

    def converged(self, p: PcgParams, values: Values) -> bool:
        curvature = sum_of(values.now, "pq")
        if not curvature > 0 and sum_of(values.before, "rz") > 0:
            raise DataError(
                f"A is not positive definite: p.Ap is {curvature:.3g} for a direction p; pcg"
                " needs a symmetric and positive definite matrix"
                + (", whose products don't underflow" if curvature == 0 else "")
            )
        residual = residual_of(values.now, values.now)
        if residual > MAX_RESIDUAL:
            raise DataError(
                f"pcg diverges, residual {residual:.3g}: A is singular, or nearly, and no x solves"
                " A x = b"
            )
        return residual <= p.tolerance

    def residual(self, p: PcgParams, values: Values) -> float:
        return residual_of(values.now, values.now)

    def granule(self, p: PcgParams) -> int:
        if p.block:
            return min(p.block, p.n)
        if p.preconditioner == "cholesky":
            return min(max(p.n // MIN_CHOLESKY_BLOCKS, MIN_CHOLESKY_BLOCK), MAX_BLOCK, p.n)
        return max(1, min(p.n // MIN_BLOCKS, MAX_BLOCK))

    def demand(self, p: PcgParams, kind: str) -> MemoryDemand:
        plain = super().demand(p, kind)
        if p.preconditioner != "cholesky":
            return plain
        assert not callable(plain.work_bytes)
        # A triangle of indices and values in double precision and its copy, 1 / D, pointers.
        item, triangle = DTYPES[p.dtype].item_bytes, math.ceil(p.nonzeros / p.n / 2)
        factors = triangle * (2 * 8 + item + 4) + 2 * 8 + item + 8
        return replace(plain, work_bytes=plain.work_bytes + factors)

    def flops(self, p: PcgParams, x: int) -> float:
        per_row = p.nonzeros / p.n
        factors = {"none": 0.0, "diagonal": 1.0, "cholesky": 2 * per_row}[p.preconditioner]
        return x * (2 * per_row + 12 + factors)

    def infer(self, explicit: Mapping[str, Any], arrays: Shapes) -> PcgParams:
        has_matrix = PARTS[0] in arrays
        full = (matrix_sizes if has_matrix else grid_sizes)(explicit, arrays)
        sources = {"n": "A" if has_matrix else "the grid"}
        params: PcgParams = self._inferred(full, arrays, sources)
        return params


def matrix_sizes(explicit: Mapping[str, Any], arrays: Shapes) -> dict[str, Any]:
    """Return `explicit` with the rows of the matrix among the inputs, and what its indices are."""
    if explicit.get("grid"):
        raise UsageError("give either the matrix A or a grid, not both")
    rows = arrays["A.indptr"][0][0] - 1
    if str(explicit.get("n") or rows) != str(rows):
        raise DataError(f"A has {rows} rows, so n is {rows}; the job says {explicit['n']}")
    is_narrow = arrays["A.indices"][1] == arrays["A.indptr"][1] == "int32"
    index_dtype = "int32" if is_narrow else "int64"
    return {**explicit, "n": rows, "nonzeros": None, "index_dtype": index_dtype}


def grid_sizes(explicit: Mapping[str, Any], arrays: Shapes) -> dict[str, Any]:
    full = {key: value for key, value in explicit.items() if value is not None}
    if not full.get("grid"):
        raise UsageError("pcg needs the inputs A and b, or a grid, as --grid 100x100x100")
    axes = parse(str(full["grid"]), FORMS)
    points = math.prod(axes)
    if str(full.setdefault("n", points)) != str(points):
        raise UsageError(f"grid {full['grid']} has {points} points, n is {full['n']}")
    # Each point and its neighbours
    full["nonzeros"] = points + sum(2 * (points - points // size) for size in axes)
    full["index_dtype"] = "int32" if full["nonzeros"] <= MAX_INT32 else "int64"
    return full
