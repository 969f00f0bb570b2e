"""Tiny workloads for the tests of devices and device processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from toys import Toy
from toys import ToyParams as AffineParams

from hetsched.workload import Arrays, Kernel, KernelContext, Variant

__all__ = ["Affine", "AffineParams"]


class Affine(Toy):
    """The toy with variants that misbehave."""

    name = "affine"

    def variants(self, kind: str) -> Sequence[Variant]:
        makers = {"numpy": affine, "broken": broken, "fatal": fatal, "talkative": talkative}
        return [Variant(name, np.__version__, make) for name, make in makers.items()]


class Picky(Affine):
    """Whose kernel fails everywhere but on cores."""

    name = "picky"

    def variants(self, kind: str) -> Sequence[Variant]:
        working, broken, *_ = super().variants(kind)
        return [working if kind == "cpu" else broken]


def affine(p: Any, chunk: int, context: KernelContext) -> Kernel:
    context.say(f"planning {chunk} units")

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        np.multiply(inputs["x"], 2, out=outputs["y"])
        outputs["y"] += 1

    return kernel


def broken(p: Any, chunk: int, context: KernelContext) -> Kernel:
    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        raise ZeroDivisionError("no such luck")

    return kernel


def fatal(p: Any, chunk: int, context: KernelContext) -> Kernel:
    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        os.kill(os.getpid(), 9)

    return kernel


def talkative(p: Any, chunk: int, context: KernelContext) -> Kernel:
    context.say("x" * 1_000_000)
    return affine(p, chunk, context)
