"""The workload `matrix_update`: C := C + A B, a unit is a row of C and of A. No NumPy in here.

C is (rows, cols), A (rows, inner), B (inner, cols); B is resident on every device. On the host the
new C is a separate array, so that a chunk can run again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from hetsched.memory import MemoryDemand
from hetsched.workload import (
    Arrays,
    ArraySpec,
    Kernel,
    KernelContext,
    Variant,
    Workload,
    version,
)
from hetsched_workloads.declarations import DTYPES, by_tiles

if TYPE_CHECKING:
    import numpy as np


class MatrixParams(msgspec.Struct, frozen=True):
    rows: Annotated[int, Meta(description="rows of C and A")]
    cols: Annotated[int, Meta(description="columns of C and B")]
    inner: Annotated[int, Meta(description="columns of A, rows of B")]
    dtype: Annotated[str, Meta(description=DTYPES.description)] = DTYPES.single.name


class MatrixUpdate(Workload):
    """C := C + A B; one unit is one row."""

    name = "matrix_update"
    writes_all = True
    Params = MatrixParams
    inputs = ("C", "A", "B")
    axes = {"C": ("rows", "cols"), "A": ("rows", "inner"), "B": ("inner", "cols")}
    dtypes = DTYPES
    in_place = {"cuda": {"C": "C"}}

    def arrays(self, p: MatrixParams) -> Sequence[ArraySpec]:
        return (
            ArraySpec("C", "inout", (p.cols,), p.dtype),
            ArraySpec("A", "split", (p.inner,), p.dtype),
            ArraySpec("B", "resident", (p.inner, p.cols), p.dtype),
        )

    def demand(self, p: MatrixParams, kind: str) -> MemoryDemand:
        """Return the demand: on a GPU the new rows of C replace the old ones in their slot."""
        return replace(super().demand(p, kind), work_bytes=0, work="max")

    def flops(self, p: MatrixParams, x: int) -> float:
        return 2.0 * x * p.cols * p.inner

    def variants(self, kind: str) -> Sequence[Variant]:
        if kind == "opencl":
            return by_tiles()
        if kind == "cuda" and (installed := version("cupy")):
            return [Variant("cublas", f"cupy-{installed}", on_gpu)]
        # NumPy's BLAS takes its number of threads from the environment.
        return [replace(variant, threaded=True) for variant in super().variants(kind)]

    def kernel(self, p: MatrixParams, context: KernelContext) -> Kernel:
        """Compute all rows of a chunk in one call: BLAS packs all of B in each.

        So calls have a cost, which the models learn and by which chunks are cut. Blocks of 512
        rows, whose sums are added in the cache, take 2 to 4 % longer (4096 columns, 512 inner,
        shared memory in huge pages), and hide that cost.
        """
        xp = context.xp

        def kernel(inputs: Arrays, outputs: Arrays) -> None:
            new = outputs["C"]
            xp.matmul(inputs["A"], inputs["B"], out=new)
            xp.add(new, inputs["C"], out=new)

        return kernel

    def reference(self, p: MatrixParams, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        from hetsched_workloads import matrix_verification

        return {"C": matrix_verification.reference(inputs["C"][i], inputs["A"][i], inputs["B"])}

    def residual(self, p: MatrixParams, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        from hetsched_workloads import matrix_verification

        return matrix_verification.residual(inputs, outputs["C"], seed)

    def tolerance(self, p: MatrixParams) -> float:
        """Return 64 eps sqrt(inner), the limit of a row's largest error over its rms."""
        return 64 * 2.0 ** (-53 if DTYPES[p.dtype].is_double else -24) * math.sqrt(p.inner)

    def scale(self, p: MatrixParams, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        """See `matrix_verification.scale`: C may nearly equal -A B."""
        from hetsched_workloads import matrix_verification

        return {"C": matrix_verification.scale(inputs["C"][i], inputs["A"][i], inputs["B"])}


def on_gpu(p: MatrixParams, chunk: int, context: KernelContext) -> Kernel:
    """A kernel that computes in place."""
    from cupy import cublas

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        old, new = inputs["C"], outputs["C"]
        if new.data.ptr != old.data.ptr:
            new[...] = old
        cublas.gemm("N", "N", inputs["A"], inputs["B"], out=new, alpha=1.0, beta=1.0)

    return kernel
