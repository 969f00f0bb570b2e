"""A flow by NumPy and its BLAS, in blocks of rows that stay in the cache."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hetsched.workload import KernelContext, StageKernel
from hetsched_workloads.lbm.array_stages import array_stages
from hetsched_workloads.lbm.declaration import LbmParams

BLOCK_BYTES = 1 << 20
"""About the second-level cache; a quarter of that is 10 % slower."""


def make(p: LbmParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage."""
    return array_stages(p, load, np, BLOCK_BYTES)
