"""The stages of Jacobi's method for NumPy's arrays or CuPy's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hetsched.errors import DataError
from hetsched.workload import Arrays, KernelContext, RowCache, Rows, StageKernel, Values
from hetsched_workloads.granule_sums import GranuleSums
from hetsched_workloads.jacobi.declaration import Jacobi, JacobiParams
from hetsched_workloads.systems import sum_of


def make(p: JacobiParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage.

    The rounding of BLAS depends on the rows of a product, so those of a granule at a time make the
    result independent of the split. On a GPU, one product.
    """
    rows_per_call = Jacobi().granule(p) if context.xp is np else load
    kernels = JacobiKernels(p, context.xp, rows_per_call)
    names = ("begin", "start", "move", "residual", "result")
    # Overflows and NaN are found in the results.
    return {name: np.errstate(all="ignore")(getattr(kernels, name)) for name in names}


class JacobiKernels:
    """Keeps omega / diag(A) of own rows."""

    def __init__(self, p: JacobiParams, xp: Any, rows_per_call: int) -> None:
        self._p = p
        self._xp = xp
        self._rows_per_call = rows_per_call
        self._granule = Jacobi().granule(p)
        self._weights: RowCache[Any] = RowCache()
        self._unchecked: set[int] = set()  # first rows of parts of A without a product so far

    def begin(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        a, b = inputs["A"], inputs["b"]
        self._check_diagonal(rows, a)
        start = inputs["x0"] if self._p.x0 else 0
        outputs["iterate"][...] = outputs["best"][...] = start
        partials["least"][...] = np.inf
        outputs["gathered"][...] = start
        partials["largest"][...] = float(self._xp.abs(b).max())
        squares = GranuleSums(self._xp, partials["bb"], self._granule)
        squares.add_dot(rows.first, b, b)

    def move(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        xp, new = self._xp, outputs["iterate"]
        self._keep_best(inputs, outputs, values, partials)
        step = inputs["residual"] * self._weight(rows, inputs["A"])
        xp.add(inputs["iterate"], step, out=new)
        outputs["gathered"][...] = new
        GranuleSums(xp, partials["steps"], self._granule).add_dot(rows.first, step, step)
        GranuleSums(xp, partials["xx"], self._granule).add_dot(rows.first, new, new)

    def residual(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        r = outputs["residual"]
        self.product(inputs["A"], inputs["gathered"], r)
        self._xp.subtract(inputs["b"], r, out=r)
        GranuleSums(self._xp, partials["rr"], self._granule).add_dot(rows.first, r, r)
        if rows.first in self._unchecked:
            self._unchecked.remove(rows.first)
            self._check_finite(rows, inputs["A"], inputs["b"], r)

    def start(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        self._unchecked.add(rows.first)
        if self._p.x0:
            self.residual(rows, inputs, outputs, values, partials)
            return
        r = outputs["residual"]  # without a product, which takes as long as an iteration
        r[...] = inputs["b"]
        GranuleSums(self._xp, partials["rr"], self._granule).add_dot(rows.first, r, r)

    def result(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        is_last = sum_of(values.now, "rr") <= values.now["least"]
        outputs["x"][...] = inputs["iterate" if is_last else "best"]

    def _keep_best(
        self, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        """Compare the present x with the best of those before it."""
        squares, minimum = sum_of(values.now, "rr"), float(values.now["least"])
        outputs["best"][...] = inputs["iterate" if squares < minimum else "best"]
        partials["least"][...] = min(squares, minimum)

    def _weight(self, rows: Rows, a: Any) -> Any:
        omega = a.dtype.type(self._p.omega)
        return self._weights.get(rows.first, rows.stop, lambda: omega / self.diagonal(rows, a))

    def _check_diagonal(self, rows: Rows, a: Any) -> None:
        zeros = self._xp.flatnonzero(self.diagonal(rows, a) == 0)
        if len(zeros):
            row = rows.first + int(zeros[0])
            raise DataError(
                f"A[{row}, {row}] is 0: Jacobi's method needs a diagonal without zeros"
            )

    def _check_finite(self, rows: Rows, a: Any, b: Any, r: Any) -> None:
        """Raise DataError for the first row without a finite residual."""
        xp = self._xp
        bad = xp.flatnonzero(~xp.isfinite(r))
        if not len(bad):
            return
        index = int(bad[0])
        row, line = rows.first + index, self.row(a, index)
        if not bool(xp.isfinite(b[index])):
            raise DataError(f"b[{row}] is {float(b[index])}; b must be finite")
        columns = xp.flatnonzero(~xp.isfinite(line))
        if len(columns):
            column = int(columns[0])
            raise DataError(f"A[{row}, {column}] is {float(line[column])}; A must be finite")
        x = "x0" if self._p.x0 else "x"
        raise DataError(f"row {row}: {x} isn't finite, or A {x} overflows")

    # ---- of A

    def product(self, a: Any, x: Any, out: Any) -> None:
        """Compute A x for the device's rows."""
        for first in range(0, len(out), self._rows_per_call):
            block = slice(first, first + self._rows_per_call)
            self._xp.matmul(a[block], x, out=out[block])

    def diagonal(self, rows: Rows, a: Any) -> Any:
        return a[self._xp.arange(rows.count), self._xp.arange(rows.first, rows.stop)]

    def row(self, a: Any, index: int) -> Any:
        return a[index]
