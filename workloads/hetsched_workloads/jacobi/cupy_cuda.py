"""Jacobi's method on a GPU: one cuBLAS product per iteration, on the current stream."""

from __future__ import annotations

from collections.abc import Mapping

import cupy

from hetsched.workload import KernelContext, StageKernel
from hetsched_workloads.jacobi.declaration import JacobiParams
from hetsched_workloads.jacobi.kernels import stage_kernels


def make(p: JacobiParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage."""
    return stage_kernels(p, cupy, load)
