"""Tiny workloads for the tests of devices and device processes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext, Variant, Workload

WIDTH = 4


class AffineParams(msgspec.Struct, frozen=True):
    units: int = 40
    dtype: str = "float64"


class Affine(Workload):
    """y = 2 x + 1 on units of four numbers. Variants "broken" and "fatal" misbehave."""

    name = "affine"
    Params = AffineParams

    def load(self, p: Any) -> int:
        return p.units

    def arrays(self, p: Any) -> Sequence[ArraySpec]:
        return (
            ArraySpec("x", "split", (WIDTH,), p.dtype),
            ArraySpec("y", "out", (WIDTH,), p.dtype),
        )

    def demand(self, p: Any, kind: str) -> MemoryDemand:
        size = WIDTH * np.dtype(p.dtype).itemsize
        return MemoryDemand(input_bytes=size, work_bytes=0, output_bytes=size)

    def flops(self, p: Any, x: int) -> float:
        return 2.0 * WIDTH * x

    def variants(self, kind: str) -> Sequence[Variant]:
        makers = {"numpy": affine, "broken": broken, "fatal": fatal, "talkative": talkative}
        return [Variant(name, np.__version__, make) for name, make in makers.items()]

    def generate(self, p: Any, seed: int, array: str, first: int, out: np.ndarray) -> None:
        for i, unit in enumerate(out):
            unit[...] = np.random.default_rng([seed, first + i]).standard_normal(unit.shape)

    def reference(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        return {"y": inputs["x"][i] * 2.0 + 1.0}

    def residual(self, p: Any, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        wrong = outputs["y"].sum(axis=1) - 2.0 * inputs["x"].sum(axis=1) - WIDTH
        return np.abs(wrong) * 1e6


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
