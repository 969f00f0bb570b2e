"""Diffusion on a GPU by CuPy's array operations."""

from __future__ import annotations

from collections.abc import Mapping

import cupy as cp

from hetsched.workload import KernelContext, StageKernel
from hetsched_workloads.heat.array_step import array_load, array_step
from hetsched_workloads.heat.declaration import HeatParams
from hetsched_workloads.heat.stages import stages

BLOCK_BYTES = 32 << 20
"""Large enough for full speed, and a block may stay in the second-level cache of large GPUs."""


def make(p: HeatParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage."""
    return stages(p, cp, array_step(p, cp, BLOCK_BYTES), array_load(p, cp, BLOCK_BYTES))
