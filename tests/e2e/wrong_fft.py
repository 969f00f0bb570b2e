"""A 2D FFT with errors on demand, which `--verify` must detect. Loaded by device processes too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hetsched_workloads.fft import Fft, FftParams

from hetsched.workload import Arrays, Kernel, KernelContext, Variant


class WrongParams(FftParams, frozen=True, kw_only=True):
    """`fault`: what goes wrong, in each kernel's first chunk. `draw`: seed of where."""

    fault: str = "none"
    draw: int = 0


def zeroed(y: np.ndarray, rng: np.random.Generator) -> None:
    y[_value(y, rng)] = 0


def turned(y: np.ndarray, rng: np.random.Generator) -> None:
    y[_value(y, rng)] *= -1


def scaled(y: np.ndarray, rng: np.random.Generator) -> None:
    y[rng.integers(len(y))] *= 1.001


def transposed(y: np.ndarray, rng: np.random.Generator) -> None:
    unit = rng.integers(len(y))
    y[unit] = y[unit].T.copy()


def swapped(y: np.ndarray, rng: np.random.Generator) -> None:
    a, b = rng.choice(len(y), 2, replace=False)
    y[[a, b]] = y[[b, a]]


FAULTS = {f.__name__: f for f in (zeroed, turned, scaled, transposed, swapped)}


def _value(y: np.ndarray, rng: np.random.Generator) -> tuple[int, int, int]:
    """A value of a random unit, of at least the plane's median magnitude."""
    unit = int(rng.integers(len(y)))
    size = np.abs(y[unit])
    row, column = rng.choice(np.argwhere(size >= np.median(size)))
    return unit, int(row), int(column)


class WrongFft(Fft):
    name = "wrong_fft"
    Params = WrongParams

    def variants(self, kind: str) -> Sequence[Variant]:
        return [_wrongly(variant) for variant in super().variants(kind)[:1]]


def _wrongly(variant: Variant) -> Variant:
    def make(p: Any, chunk: int, context: KernelContext) -> Kernel:
        return _wrong(variant, p, chunk, context)

    return Variant(variant.name, variant.version, make)


def _wrong(variant: Variant, p: Any, chunk: int, context: KernelContext) -> Kernel:
    compute = variant.make(p, chunk, context)
    rng = np.random.default_rng(p.draw)
    calls = 0

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        nonlocal calls
        calls += 1
        if p.fault == "left_out" and calls == p.draw % 4 + 1:
            return
        compute(inputs, outputs)
        if p.fault in FAULTS and calls == 1:
            FAULTS[p.fault](outputs["y"], rng)

    return kernel
