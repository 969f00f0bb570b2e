"""The conjugate gradient method on a core, in loops that numba compiles.

Medians on two cores, 10^6 rows with 7 nonzeros in float64, milliseconds: `multiply` 2.9, SciPy
5.2; `measure` 0.6, NumPy 1.1; `direct` 1.9, NumPy 2.1. Compiled in `make`, for about two seconds,
once per dtype and machine.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numba
import numpy as np

from hetsched.workload import Arrays, KernelContext, Rows, StageKernel, Values
from hetsched_workloads.compiling import compiling
from hetsched_workloads.pcg import numba_loops, scipy_cpu
from hetsched_workloads.pcg.declaration import PcgParams
from hetsched_workloads.pcg.kernels import direction_weight, step_length

MIN_NONZEROS = 1 << 20
"""Of a matrix that no cache holds. SciPy's product of smaller ones takes as long, and nothing has
to be compiled."""

_settings: Any = numba.config


def make(p: PcgParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage; compiles on small arrays first, or returns SciPy's."""
    if p.nonzeros < MIN_NONZEROS or _settings.DISABLE_JIT:  # a prefetch can't be interpreted
        return scipy_cpu.make(p, load, context)
    _compile(p.dtype, p.index_dtype)
    return CompiledKernels(p).stages()


class CompiledKernels(scipy_cpu.ScipyKernels):
    """Iterations in compiled loops; the start as in `scipy_cpu`."""

    def multiply(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        data, columns, pointers = self.own(rows, inputs)
        numba_loops.multiply(
            pointers,
            columns,
            data,
            inputs["direction"],
            outputs["product"],
            np.uint64(rows.first),
            self._granule,
            self._own(partials["pq"], rows),
        )

    def measure(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        numba_loops.measure(
            inputs["residual"],
            inputs["product"],
            self._weight(rows, inputs),
            self._number(step_length(values)),
            self._granule,
            self._own(partials["rr"], rows),
            self._own(partials["rz"], rows),
        )

    def direct(
        self, rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        if self._p.preconditioner == "cholesky":
            super().direct(rows, inputs, outputs, values, partials)
            return
        p = inputs["direction"][rows.first : rows.stop]
        numba_loops.direct(
            (inputs["residual"], inputs["product"], inputs["iterate"], p),
            self._weight(rows, inputs),
            self._number(step_length(values)),
            self._number(direction_weight(values)),
            (outputs["residual"], outputs["iterate"], outputs["direction"]),
        )

    def _own(self, partial: np.ndarray, rows: Rows) -> np.ndarray:
        """Return the sums of own granules; those of others become 0."""
        partial[...] = 0
        return partial[rows.first // self._granule : -(-rows.stop // self._granule)]

    def _number(self, value: float) -> Any:
        return np.dtype(self._p.dtype).type(value)


@compiling
@functools.cache
def _compile(dtype: str, index_dtype: str) -> None:
    vector, sums = np.zeros(1, dtype), np.zeros(1)
    pointers = np.zeros(2, index_dtype)
    number = vector.dtype.type(0)
    numba_loops.multiply(pointers, pointers, vector, vector, vector, np.uint64(0), 1, sums)
    numba_loops.measure(vector, vector, vector, number, 1, sums, sums)
    numba_loops.direct((vector,) * 4, vector, number, number, (vector,) * 3)
