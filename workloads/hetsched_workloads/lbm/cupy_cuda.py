"""A flow on a GPU by CuPy's array operations and cuBLAS."""

from __future__ import annotations

from collections.abc import Mapping

import cupy as cp

from hetsched.workload import KernelContext, StageKernel
from hetsched_workloads.lbm.array_stages import array_stages
from hetsched_workloads.lbm.declaration import LbmParams

BLOCK_BYTES = 64 << 20
"""Large enough for full speed, small beside the memory of any GPU."""


def make(p: LbmParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage."""
    return array_stages(p, load, cp, BLOCK_BYTES)
