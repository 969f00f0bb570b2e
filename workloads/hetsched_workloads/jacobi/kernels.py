"""The stages of Jacobi's method for NumPy's arrays or CuPy's, test data, and the check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hetsched.errors import DataError
from hetsched.workload import Arrays, KernelContext, RowCache, Rows, StageCall, StageKernel
from hetsched.workload.streams import fill_uniform, unit_streams
from hetsched_workloads.jacobi import Jacobi, JacobiParams
from hetsched_workloads.systems import row_errors, sum_of
from hetsched_workloads.vectors import add_dots, first_true

DOMINANCE = 1.25
"""Diagonal of generated matrices over the sum of their rows: the error falls by 1.25 a step."""
BLOCK_BYTES = 1 << 22
"""Of the rows of A that are checked at a time."""


def make(p: JacobiParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage.

    The rounding of BLAS depends on the rows of a product, so those of a granule at a time make the
    result independent of the split. On a GPU, one product.
    """
    rows_per_call = Jacobi().granule(p) if context.xp is np else load
    return JacobiKernels(p, context.xp, rows_per_call).stages()


class JacobiKernels:
    """Keeps omega / diag(A) of own rows."""

    def __init__(self, p: JacobiParams, xp: Any, rows_per_call: int) -> None:
        self._p = p
        self._xp = xp
        self._rows_per_call = rows_per_call
        self._granule = Jacobi().granule(p)
        self._weights: RowCache[Any] = RowCache()
        self._unchecked: set[int] = set()  # first rows of parts of A without a product so far

    def stages(self) -> Mapping[str, StageKernel]:
        return {
            "begin": self.begin,
            "start": self.start,
            "move": self.move,
            "residual": self.residual,
            "result": self.result,
        }

    def begin(self, call: StageCall) -> None:
        rows, a, b, outputs = call.rows, call.inputs["A"], call.inputs["b"], call.outputs
        if (row := first_true(self._xp, self.diagonal(rows, a) == 0)) is not None:
            row += rows.first
            raise DataError(
                f"A[{row}, {row}] is 0: Jacobi's method needs a diagonal without zeros"
            )
        start = call.inputs["x0"] if self._p.x0 else 0
        outputs["iterate"][...] = outputs["best"][...] = outputs["gathered"][...] = start
        call.partials["least"][...] = np.inf
        call.partials["largest"][...] = float(self._xp.abs(b).max())
        self._add_dots(call, "bb", b)

    def move(self, call: StageCall) -> None:
        a, new = call.inputs["A"], call.outputs["iterate"]
        # Compare the present x with the best of those before it.
        squares, minimum = sum_of(call.values.now, "rr"), float(call.values.now["least"])
        call.outputs["best"][...] = call.inputs["iterate" if squares < minimum else "best"]
        call.partials["least"][...] = min(squares, minimum)
        weights = self._weights.get(
            call.rows.first,
            call.rows.stop,
            lambda: a.dtype.type(self._p.omega) / self.diagonal(call.rows, a),
        )
        step = call.inputs["residual"] * weights
        self._xp.add(call.inputs["iterate"], step, out=new)
        call.outputs["gathered"][...] = new
        self._add_dots(call, "steps", step)
        self._add_dots(call, "xx", new)

    def residual(self, call: StageCall) -> None:
        r = call.outputs["residual"]
        self.write_product(call.inputs["A"], call.inputs["gathered"], r)
        self._xp.subtract(call.inputs["b"], r, out=r)
        self._add_dots(call, "rr", r)
        if call.rows.first in self._unchecked:
            self._unchecked.remove(call.rows.first)
            self._check_finite(call)

    def start(self, call: StageCall) -> None:
        self._unchecked.add(call.rows.first)
        if self._p.x0:
            self.residual(call)
            return
        r = call.outputs["residual"]  # without a product, which takes as long as an iteration
        r[...] = call.inputs["b"]
        self._add_dots(call, "rr", r)

    def _check_finite(self, call: StageCall) -> None:
        xp, b = self._xp, call.inputs["b"]
        index = first_true(xp, ~xp.isfinite(call.outputs["residual"]))
        if index is None:
            return
        row, line = call.rows.first + index, self.row(call.inputs["A"], index)
        if not bool(xp.isfinite(b[index])):
            raise DataError(f"b[{row}] is {float(b[index])}; b must be finite")
        if (column := first_true(xp, ~xp.isfinite(line))) is not None:
            raise DataError(f"A[{row}, {column}] is {float(line[column])}; A must be finite")
        x = "x0" if self._p.x0 else "x"
        raise DataError(f"row {row}: {x} isn't finite, or A {x} overflows")

    def result(self, call: StageCall) -> None:
        is_last = sum_of(call.values.now, "rr") <= call.values.now["least"]
        call.outputs["x"][...] = call.inputs["iterate" if is_last else "best"]

    def _add_dots(self, call: StageCall, name: str, a: Any) -> None:
        add_dots(self._xp, call.partials[name], self._granule, call.rows.first, a, a)

    # ---- of A

    def write_product(self, a: Any, x: Any, out: Any) -> None:
        for first in range(0, len(out), self._rows_per_call):
            block = slice(first, first + self._rows_per_call)
            self._xp.matmul(a[block], x, out=out[block])

    def diagonal(self, rows: Rows, a: Any) -> Any:
        return a[self._xp.arange(rows.count), self._xp.arange(rows.first, rows.stop)]

    def row(self, a: Any, index: int) -> Any:
        return a[index]


# ---- test data, and the check of every row


def generate(p: JacobiParams, seed: int, array: str, first: int, out: np.ndarray) -> None:
    """Fill `out`: positive rows of a diagonally dominant matrix, or a positive vector."""
    if array != "A":
        fill_uniform(seed, array, first, out)
        return
    streams = unit_streams(seed, array, first, len(out))
    for row, generator in enumerate(streams):
        values = generator.random(size=(out.shape[1],))
        values[first + row] = 0
        values[first + row] = DOMINANCE * max(1.0, float(np.sum(values)))
        out[row] = values


def errors(p: JacobiParams, inputs: Arrays, outputs: Arrays, rows: Rows) -> np.ndarray:
    a, b, x = inputs["A"], inputs["b"], outputs["x"]
    allowed = p.tolerance * float(np.linalg.norm(b.astype(np.float64)))
    if p.criterion == "change":
        # |b - A x| before the last step s was |diag(A) s| / omega, and it doesn't rise if the
        # method converges.
        largest = float(np.abs(a.diagonal()).max())
        allowed = p.tolerance * float(np.linalg.norm(x.astype(np.float64))) * largest / p.omega

    def products(block: slice, wide: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        part = a[block].astype(np.float64)
        return part @ wide, np.abs(part) @ np.abs(wide)

    return row_errors(b, x, rows, max(1, BLOCK_BYTES // (8 * p.n)), products, allowed)
