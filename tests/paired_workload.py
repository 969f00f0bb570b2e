"""A workload with two outputs: y = 2 x + 1 and z = -x."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from device_toys import WIDTH, Affine, affine

from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext, Variant

PAIRED = f"{__name__}:Paired"


class Paired(Affine):
    name = "paired"

    def arrays(self, p: Any) -> Sequence[ArraySpec]:
        return (*super().arrays(p), ArraySpec("z", "out", (WIDTH,), p.dtype))

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("numpy", np.__version__, make_paired)]


def make_paired(p: Any, chunk: int, context: KernelContext) -> Kernel:
    kernel = affine(p, chunk, context)

    def paired_kernel(inputs: Arrays, outputs: Arrays) -> None:
        kernel(inputs, outputs)
        np.negative(inputs["x"], out=outputs["z"])

    return paired_kernel
