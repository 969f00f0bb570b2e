"""The conjugate gradient method on a core, in loops that numba compiles, by granules of rows.

Sums are in double precision. Only they may be computed in any order, which depends on the number
of a granule's rows and nothing else, so no bit depends on the split. Medians on two cores, 10^6
rows with 7 nonzeros in float64, milliseconds: `multiply` 2.9, SciPy 5.2. Compiled in `make`, for
about two seconds, once per dtype and machine.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numba
import numpy as np

from hetsched.workload import KernelContext, StageCall, StageKernel
from hetsched_workloads.compiling import compiled, compiling, prefetch
from hetsched_workloads.pcg import PcgParams, kernels

MIN_NONZEROS = 1 << 20
"""Of a matrix that no cache holds. SciPy's product of smaller ones takes as long, and nothing has
to be compiled."""
AHEAD = 256
"""Nonzeros between what is computed and what is prefetched: 64 to 1024 are nearly as good."""

_settings: Any = numba.config


def make(p: PcgParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage; compiles on small arrays first, or returns SciPy's."""
    if p.nonzeros < MIN_NONZEROS or _settings.DISABLE_JIT:  # a prefetch can't be interpreted
        return kernels.make(p, load, context)
    _compile(p.dtype, p.index_dtype)
    return _CompiledKernels(p).stages()


class _CompiledKernels(kernels.PcgKernels):
    """Iterations in compiled loops, but for incomplete Cholesky factors."""

    def multiply(self, call: StageCall) -> None:
        data, columns, pointers = self.own(call)
        first, p, q = np.uint64(call.rows.first), call.inputs["direction"], call.outputs["product"]
        own = self._own_granules(call, "pq")
        _multiply(pointers, columns, data, p, q, first, self._granule, own)

    def advance(self, call: StageCall) -> None:
        if self._p.preconditioner == "cholesky":
            super().advance(call)
            return
        given, new = call.inputs, call.outputs
        alpha = self._number(kernels.step_length(call.values))
        rr, rz = (self._own_granules(call, name) for name in ("rr", "rz"))
        _advance(
            given["residual"], given["product"], self.weights(call), alpha, self._granule,
            new["residual"], new["preconditioned"], rr, rz,
        )  # fmt: skip

    def direct(self, call: StageCall) -> None:
        given, new = call.inputs, call.outputs
        own = given["direction"][call.rows.first : call.rows.stop]
        alpha = self._number(kernels.step_length(call.values))
        beta = self._number(kernels.direction_weight(call.values))
        x, z = given["iterate"], given["preconditioned"]
        _direct(x, own, z, alpha, beta, new["iterate"], new["direction"])

    def _own_granules(self, call: StageCall, name: str) -> np.ndarray:
        granule, rows = self._granule, call.rows
        own: np.ndarray = call.partials[name][rows.first // granule : -(-rows.stop // granule)]
        return own

    def _number(self, value: float) -> Any:
        return np.dtype(self._p.dtype).type(value)


@compiling
@functools.cache
def _compile(dtype: str, index_dtype: str) -> None:
    vector, sums, pointers = np.zeros(1, dtype), np.zeros(1), np.zeros(2, index_dtype)
    number = vector.dtype.type(0)
    _multiply(pointers, pointers, vector, vector, vector, np.uint64(0), 1, sums)
    _advance(vector, vector, vector, number, 1, vector, vector, sums, sums)
    _direct(vector, vector, vector, number, number, vector, vector)


@compiled()
def _multiply(
    pointers: Any, columns: Any, values: Any, p: Any, q: Any, first: Any, granule: int, sums: Any
) -> None:
    """Write the rows of A p to q, and p.q of each granule to `sums`; p is whole.

    Indices are unsigned, since numba would test others for negative values.
    """
    unit, ahead = np.uint64(1), np.uint64(AHEAD)
    place = np.uint64(pointers[0])
    for part in range(len(sums)):
        total = 0.0
        for i in range(part * granule, min((part + 1) * granule, len(q))):
            row = np.uint64(i)
            end = np.uint64(pointers[row + unit])
            prefetch(values, place + ahead)
            prefetch(columns, place + ahead)
            product = values.dtype.type(0)
            while place < end:
                product += values[place] * p[np.uint64(columns[place])]
                place += unit
            q[row] = product
            total += np.float64(product) * p[first + row]
        sums[part] = total


@compiled()
def _advance(
    r: Any, q: Any, weights: Any, alpha: Any, granule: int, new: Any, z: Any, rr: Any, rz: Any
) -> None:
    """Write r - alpha q to `new` and `weights` times that to z; r.r and r.z of each granule."""
    for part in range(len(rr)):
        own = slice(part * granule, (part + 1) * granule)
        rr[part], rz[part] = _advance_granule(
            r[own], q[own], weights[own], alpha, new[own], z[own]
        )


@compiled("nsz", "reassoc")
def _advance_granule(r: Any, q: Any, weights: Any, alpha: Any, new: Any, z: Any) -> Any:
    squares, weighted = 0.0, 0.0
    for i in range(len(r)):
        value = r[i] - alpha * q[i]
        product = value * weights[i]
        new[i] = value
        z[i] = product
        squares += np.float64(value) * np.float64(value)
        weighted += np.float64(value) * np.float64(product)
    return squares, weighted


@compiled()
def _direct(x: Any, p: Any, z: Any, alpha: Any, beta: Any, new_x: Any, new_p: Any) -> None:
    for i in range(len(x)):
        new_x[i] = x[i] + alpha * p[i]
        new_p[i] = z[i] + beta * p[i]
