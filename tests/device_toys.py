"""A tiny workload for the tests of devices: the toy with a kernel that says what it plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from toys import Toy
from toys import ToyParams as AffineParams

from hetsched.workload import Arrays, Kernel, KernelContext, Variant

__all__ = ["Affine", "AffineParams"]


class Affine(Toy):
    name = "affine"

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("numpy", np.__version__, affine)]


def affine(p: Any, chunk: int, context: KernelContext) -> Kernel:
    context.say(f"planning {chunk} units")

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        np.multiply(inputs["x"], 2, out=outputs["y"])
        outputs["y"] += 1

    return kernel
