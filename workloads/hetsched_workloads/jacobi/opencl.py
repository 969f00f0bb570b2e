"""The stages of Jacobi's method on an OpenCL device; vectors pass through the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyopencl.array

from hetsched.workload import KernelContext, Rows, StageCall, StageKernel
from hetsched_workloads.jacobi import JacobiParams
from hetsched_workloads.jacobi.kernels import JacobiKernels
from hetsched_workloads.opencl_program import Program

ON_DEVICE = {"A", "gathered"}
GROUP = 64
"""Work items that share a row of A."""
SOURCE = """
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void product(OUT(REAL, y), IN(REAL, a), IN(REAL, x), int n) {
    TO(REAL, y); AT(REAL, a); AT(REAL, x);
    __local REAL sums[GROUP];
    const int item = get_local_id(0);
    const long row = get_group_id(0);
    REAL sum = 0;
    for (int i = item; i < n; i += GROUP) sum += a[row * n + i] * x[i];
    sums[item] = sum;
    for (int span = GROUP / 2; span > 0; span /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < span) sums[item] += sums[item + span];
    }
    if (item == 0) y[row] = sums[0];
}
__kernel void diagonal(OUT(REAL, y), IN(REAL, a), int n, long first) {
    TO(REAL, y); AT(REAL, a);
    y[get_global_id(0)] = a[(long)get_global_id(0) * n + first + get_global_id(0)];
}
"""


def make(p: JacobiParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    kernels = _OpenClKernels(p, Program(SOURCE, p.dtype, context, "a product", GROUP=GROUP))
    return {name: _on_host(kernel) for name, kernel in kernels.stages().items()}


class _OpenClKernels(JacobiKernels):
    """A and the gathered x are the device's arrays, other vectors NumPy's."""

    def __init__(self, p: JacobiParams, program: Program) -> None:
        super().__init__(p, np, p.n)
        self._program = program

    def write_product(self, a: Any, x: Any, out: Any) -> None:
        y = pyopencl.array.empty(a.queue, len(out), out.dtype)
        size = (len(out) * GROUP,)
        self._program("product", size, (GROUP,), y, a, x, np.int32(len(x)))
        y.get(ary=out)

    def diagonal(self, rows: Rows, a: Any) -> Any:
        y = pyopencl.array.empty(a.queue, rows.count, a.dtype)
        numbers = np.int32(rows.load), np.int64(rows.first)
        self._program("diagonal", (rows.count,), None, y, a, *numbers)
        return y.get()

    def row(self, a: Any, index: int) -> Any:
        return a[index].get()


def _on_host(kernel: StageKernel) -> StageKernel:
    def on_device(call: StageCall) -> None:
        outputs = call.outputs
        there = {n: a if n in ON_DEVICE else a.get() for n, a in call.inputs.items()}
        new = {n: a if n in ON_DEVICE else np.empty(a.shape, a.dtype) for n, a in outputs.items()}
        kernel(call._replace(inputs=there, outputs=new))
        for name in outputs.keys() - ON_DEVICE:
            outputs[name].set(new[name])

    return on_device
