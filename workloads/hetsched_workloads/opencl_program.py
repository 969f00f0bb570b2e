"""A program for OpenCL devices, and calls of its kernels in the queue of their arrays."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array

from hetsched.errors import UsageError
from hetsched.workload import KernelContext

HEADER = """
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#pragma OPENCL FP_CONTRACT OFF
#define IN(T, name) __global const T *name##_start, ulong name##_offset
#define OUT(T, name) __global T *name##_start, ulong name##_offset
#define AT(T, name) __global const T *name = AT_BYTES(const, T, name)
#define TO(T, name) __global T *name = AT_BYTES(, T, name)
#define AT_BYTES(C, T, name) (__global C T *)((__global C char *)name##_start + name##_offset)
"""
"""Sums are rounded as on a core. A pointer alone can't say where in its buffer an array begins."""
MAX_PROGRAMS = 32
"""Compiled programs that a process keeps for its next jobs."""


@functools.lru_cache(maxsize=MAX_PROGRAMS)
def _kept(context: cl.Context, source: str, options: tuple[str, ...]) -> dict[str, cl.Kernel]:
    """Return the kernels of a program by name; empty: it isn't compiled yet."""
    return {}


class Program:
    """`source`, compiled for the device of the first call.

    REAL is the type of `dtype`, COMPLEX that of two of them.
    """

    def __init__(
        self, source: str, dtype: str, context: KernelContext, what: str, **defines: int
    ) -> None:
        self._source = HEADER + source
        self._dtype = dtype
        real = "double" if dtype == "float64" else "float"
        defined = {"REAL": real, "COMPLEX": f"{real}2", **defines}
        self._options = tuple(f"-D{name}={value}" for name, value in defined.items())
        self._context, self._what = context, what

    def __call__(
        self, name: str, size: tuple[int, ...], group: tuple[int, ...] | None, *arguments: Any
    ) -> None:
        """Start a kernel in the queue of the first argument; numbers are NumPy's.

        Raises UsageError if the device has no double precision.
        """
        queue = arguments[0].queue
        kernels = _kept(queue.context, self._source, self._options)
        if not kernels:
            check_precision(queue.device, self._dtype)
            self._context.say(f"compiling {self._what} for OpenCL ...")
            program = cl.Program(queue.context, self._source).build(list(self._options))
            kernels |= {kernel.function_name: kernel for kernel in program.all_kernels()}
        plain: list[Any] = []
        for argument in arguments:
            if isinstance(argument, pyopencl.array.Array):
                plain += [argument.base_data, np.uint64(argument.offset)]
            else:
                plain.append(argument)
        kernels[name](queue, size, group, *plain)


def check_precision(device: Any, dtype: str) -> None:
    if dtype == "float64" and "cl_khr_fp64" not in device.extensions:
        raise UsageError(f"{device.name} computes no {dtype}")
