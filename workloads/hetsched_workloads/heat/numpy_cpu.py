"""Diffusion by NumPy, in blocks of rows that stay in the cache."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hetsched.workload import KernelContext, StageKernel
from hetsched_workloads.heat.array_step import array_load, array_step
from hetsched_workloads.heat.declaration import HeatParams
from hetsched_workloads.heat.stages import stages

BLOCK_BYTES = 256 << 10
"""Half of what blocks of 4096 columns may have before they get slower; three areas are in use."""


def make(p: HeatParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage."""
    return stages(p, np, array_step(p, np, BLOCK_BYTES), array_load(p, np, BLOCK_BYTES))
