"""The workload `matmul`: products of many pairs of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext, Variant
from hetsched_workloads.declarations import DTYPES, by_tiles
from hetsched_workloads.recomputed import Recomputed

if TYPE_CHECKING:
    import numpy as np

ROUNDINGS = 64.0
"""Allowed error of a projected row, in roundings of the product of the norms."""


class MatmulParams(msgspec.Struct, frozen=True):
    count: Annotated[int, Meta(description="pairs of matrices, the units of the load")]
    rows: Annotated[int, Meta(description="rows of A")]
    inner: Annotated[int, Meta(description="columns of A, rows of B")]
    cols: Annotated[int, Meta(description="columns of B")]
    dtype: Annotated[str, Meta(description=DTYPES.description)] = DTYPES.single.name


class Matmul(Recomputed):
    """Products y = A B of pairs of matrices; one unit is one pair."""

    name = "matmul"
    Params = MatmulParams
    inputs = ("A", "B")
    axes = {"A": ("count", "rows", "inner"), "B": ("count", "inner", "cols")}
    library = "numpy"

    def arrays(self, p: MatmulParams) -> Sequence[ArraySpec]:
        return (
            ArraySpec("A", "split", (p.rows, p.inner), p.dtype),
            ArraySpec("B", "split", (p.inner, p.cols), p.dtype),
            ArraySpec("y", "out", (p.rows, p.cols), p.dtype),
        )

    def variants(self, kind: str) -> Sequence[Variant]:
        return by_tiles() if kind == "opencl" else super().variants(kind)

    def kernel(self, p: MatmulParams, context: KernelContext) -> Kernel:
        def kernel(inputs: Arrays, outputs: Arrays) -> None:
            context.xp.matmul(inputs["A"], inputs["B"], out=outputs["y"])

        return kernel

    def flops(self, p: MatmulParams, x: int) -> float:
        return 2.0 * x * p.rows * p.inner * p.cols

    def exact(self, p: MatmulParams, inputs: Arrays) -> np.ndarray:
        product: np.ndarray = inputs["A"] @ inputs["B"]
        return product

    def rounding(self, p: MatmulParams, inputs: Arrays, exact: np.ndarray) -> np.ndarray:
        import numpy as np

        norms = np.linalg.norm(inputs["A"], axis=1), np.linalg.norm(inputs["B"], axis=0)
        return np.outer(*norms)

    def error(self, p: MatmulParams, unit: Arrays, y: np.ndarray, seed: int) -> float | None:
        """Check y w = A (B w) for random signs w (Freivalds), in double precision."""
        import numpy as np

        a, b = unit["A"], unit["B"]
        size = np.linalg.norm(a, axis=1) * np.linalg.norm(b)
        if not np.isfinite(size).all():
            return None
        signs = np.random.default_rng(seed % 2**64).choice([-1.0, 1.0], p.cols)
        info = np.finfo(p.dtype)
        allowed = ROUNDINGS * float(info.eps) * size + p.inner * float(info.smallest_normal)
        return float((abs(y.astype(np.float64) @ signs - a @ (b @ signs)) / allowed).max())
