"""FFT on an OpenCL device, plane by plane, by a library whose plan takes seconds to compile.

So there is one. Its kernels know of no offsets: planes are sub-buffers, where the device lets one
begin there, and else pass through a buffer of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array

from hetsched.errors import UsageError
from hetsched.workload import Arrays, Kernel, KernelContext
from hetsched_workloads.fft.declaration import DTYPES, FftParams

Transform = Callable[[Any, Any, bool], Any]
"""transform(target, source, is_inverse), for planes that begin with their buffers."""
MakePlan = Callable[[Any, FftParams], Transform]
"""plan(queue, params), for one unit: forward unscaled, inverse by 1/n"""


class PlaneTransform:
    """Transforms planes in one queue.

    Raises
    ------
    UsageError
        The device has no double precision.
    """

    def __init__(self, p: FftParams, queue: Any, plan: MakePlan) -> None:
        if DTYPES[p.dtype].is_double and "cl_khr_fp64" not in queue.device.extensions:
            raise UsageError(f"{queue.device.name} computes no {p.dtype}")
        self._queue = queue
        self._shape, self._dtype = p.shape, np.dtype(p.dtype)
        self._direction = p.direction
        self._alignment = max(1, queue.device.mem_base_addr_align // 8)
        self._transform = plan(queue, p)
        power = {"backward": 0.0, "ortho": 0.5, "forward": 1.0}[p.norm]
        powers = {"forward": -power, "inverse": power, "roundtrip": 0.0}
        self._factor = np.dtype(DTYPES[p.dtype].real).type(p.points ** powers[p.direction])
        self._source, self._middle, self._target = (
            pyopencl.array.empty(queue, self._shape, self._dtype) for _ in range(3)
        )

    def run(self, source: Any, target: Any) -> None:
        """Transform a plane; `source` and `target` have its shape."""
        x, y = self._aligned(source), self._aligned(target)
        if x is None:
            x = self._source
            self._copy(source, x)
        result = self._target if y is None else y
        if self._direction == "roundtrip":
            self._transform(self._middle, x, False)
            self._transform(result, self._middle, True)
        else:
            self._transform(result, x, self._direction == "inverse")
        if self._factor != 1:
            result *= self._factor
        if y is None:
            self._copy(result, target)

    def _aligned(self, plane: Any) -> Any:
        """Return the plane as an array without an offset; None if the device doesn't allow it."""
        if plane.offset % self._alignment:
            return None
        buffer = plane.base_data.get_sub_region(plane.offset, plane.nbytes)
        return pyopencl.array.Array(self._queue, self._shape, self._dtype, data=buffer)

    def _copy(self, source: Any, target: Any) -> None:
        cl.enqueue_copy(
            self._queue,
            target.base_data,
            source.base_data,
            src_offset=source.offset,
            dst_offset=target.offset,
            byte_count=source.nbytes,
        )


def make_kernel(p: FftParams, context: KernelContext, plan: MakePlan) -> Kernel:
    """Return a kernel for any number of planes, in the queue of its arrays."""
    transforms: dict[Any, PlaneTransform] = {}

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        x, y = inputs["x"], outputs["y"]
        if y.queue not in transforms:
            size = "x".join(map(str, p.shape))
            context.say(f"planning {size} {p.dtype} for OpenCL ...")
            transforms[y.queue] = PlaneTransform(p, y.queue, plan)
        for plane in range(len(x)):
            transforms[y.queue].run(x[plane], y[plane])

    return kernel
