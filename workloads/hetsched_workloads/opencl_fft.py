"""Fourier transforms on OpenCL devices, by a library whose plan takes seconds to compile.

So there is one, for a unit, with arrays of its own: kernels of libraries know of no offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyopencl.array

from hetsched.errors import UsageError
from hetsched.workload import KernelContext
from hetsched_workloads.opencl_program import computes

PAD = """
__kernel void pad(OUT(COMPLEX, z), IN(REAL, x), int rows, int cols)
{
    TO(COMPLEX, z); AT(REAL, x);
    const ulong col = get_global_id(0), row = get_global_id(1);
    COMPLEX value = 0;
    if (row < rows && col < cols)
        value.x = x[row * cols + col];
    z[row * get_global_size(0) + col] = value;
}
"""
"""A real matrix as a complex one, of at least its size."""


Transform = Callable[..., None]
"""transform(target, source, is_inverse=False) of arrays that begin with their buffers: forward
unscaled, inverse by 1/n."""
MakeTransform = Callable[[Any, tuple[int, ...], Any, tuple[int, ...]], Transform]
"""make(queue, shape, dtype, axes)"""


class Plan(NamedTuple):
    transform: Transform
    before: Any
    after: Any


class Plans:
    """Those of one kernel, for arrays of complex numbers made of `real` ones."""

    def __init__(
        self,
        library: str,
        context: KernelContext,
        shape: tuple[int, ...],
        real: str,
        axes: tuple[int, ...],
    ) -> None:
        self._make = {"pyvkfft": _pyvkfft, "reikna": _reikna}[library]()
        self._shape, self._axes = shape, axes
        self._context, self._real = context, real
        self._plans: dict[Any, Plan] = {}

    def on(self, queue: Any) -> Plan:
        """Raises UsageError: the device has no double precision."""
        if queue not in self._plans:
            if not computes(queue.device, self._real):
                raise UsageError(f"{queue.device.name} computes no {self._real}")
            shape, dtype = self._shape, np.result_type(self._real, np.complex64)
            size = "x".join(map(str, shape))
            self._context.say(f"planning {size} {dtype} for OpenCL ...")
            transform = self._make(queue, shape, dtype, self._axes)
            arrays = (pyopencl.array.empty(queue, shape, dtype) for _ in range(2))
            self._plans[queue] = Plan(transform, *arrays)
        return self._plans[queue]


def _pyvkfft() -> MakeTransform:
    """Several times as fast as reikna where it can be built."""
    from pyvkfft.opencl import VkFFTApp

    def make(queue: Any, shape: tuple[int, ...], dtype: Any, axes: tuple[int, ...]) -> Transform:
        app = VkFFTApp(shape, dtype, queue, axes=axes, inplace=False, norm=1)

        def transform(target: Any, source: Any, is_inverse: bool = False) -> None:
            (app.ifft if is_inverse else app.fft)(source, target)

        return transform

    return make


def _reikna() -> MakeTransform:
    """Pure Python, which generates its kernels."""
    import reikna.cluda
    import reikna.core
    import reikna.fft

    def make(queue: Any, shape: tuple[int, ...], dtype: Any, axes: tuple[int, ...]) -> Transform:
        plan = reikna.fft.FFT(reikna.core.Type(dtype, shape), axes=axes)
        compiled: Transform = plan.compile(reikna.cluda.ocl_api().Thread(queue))
        return compiled

    return make
