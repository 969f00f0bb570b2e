"""Kernels of a GPU that are no straight line.

One GPU behind a link, alone or with two cores. Each case is a kernel's time as a function of the
chunk; copies are straight lines. Runs count from the sixth on, by the time of the plan without
noise over that with exactly known costs. A local search finds a faster plan for set bits (1.1 %)
and waves (0.7 %) only.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.learning import Verdict
from benchmarks.learning.cores import core
from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.simulate.machine import (
    SimulatedDevice,
    SimulatedMachine,
    ideal_plan,
    learn,
    makespan,
)

RUNS, NOISE = 100, 0.02
GAP, UNIT = 40e-6, 100e-6
"""Of the kernel: seconds of a launch, and of a unit."""
COPY = Affine(20e-6, 60e-6)
CORE_UNIT = 400e-6
UNIT_BYTES = 1 << 20
RANDOM_KERNELS = 20
STEPS, STEP_SIZES, STEP_FACTORS = (1, 3), (6, 100), (1.3, 3.5)
"""Of a random kernel: number of steps, their units, and the factor of the time per unit."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Kernel:
    """A kernel whose time per chunk is `seconds`, a function of (n,) float64 units."""

    name: str
    seconds: Callable[[Floats], Floats]

    def time(self, x: Any, /) -> Any:
        """Return the seconds for `x` units (number or array)."""
        values = self.seconds(np.asarray(x, dtype=np.float64))
        return float(values) if np.ndim(x) == 0 else values

    def speed(self, x: Any, /) -> Any:
        """Return units per second at `x` > 0 units (number or array)."""
        return x / self.time(x)


KERNELS = (
    Kernel("affine", lambda x: GAP + UNIT * x),
    Kernel("3.5 times slower from 20 on", lambda x: GAP + UNIT * x * np.where(x < 20, 1, 3.5)),
    Kernel("twice as slow from 12 on", lambda x: GAP + UNIT * x * np.where(x < 12, 1, 2)),
    Kernel("waves of 16", lambda x: GAP + UNIT * 16 * np.ceil(x / 16)),
    Kernel("flat to 24", lambda x: GAP + UNIT * np.maximum(x, 24)),
    Kernel("set bits", lambda x: GAP * np.bitwise_count(np.ceil(x).astype(int)) + UNIT * x),
    Kernel("small batches slow", lambda x: GAP + UNIT * x * (1 + 1 / (1 + (x / 8) ** 2))),
)


def random_step_kernel(seed: int) -> Kernel:
    """Return a kernel that takes longer per unit from each of a few random sizes on."""
    rng = random.Random(seed)
    low, high = map(math.log, STEP_SIZES)
    steps = [
        (round(math.exp(rng.uniform(low, high))), rng.uniform(*STEP_FACTORS))
        for _ in range(rng.randint(*STEPS))
    ]

    def seconds(x: Floats) -> Floats:
        pace = UNIT * np.ones_like(x)
        for size, factor in steps:
            pace = np.where(x >= size, pace * factor, pace)
        return GAP + pace * x

    return Kernel(f"random steps {seed}", seconds)


@dataclass(frozen=True)
class Case:
    """A kernel on a machine of a GPU and `cores`, for `load` units."""

    kernel: Kernel
    cores: int = 2
    load: int = 512

    @property
    def name(self) -> str:
        return f"{self.kernel.name}, {f'{self.cores} cores' if self.cores else 'alone'}"

    def machine(self) -> SimulatedMachine:
        """Return the machine: memory holds all units twice, so it doesn't limit the chunks."""
        memory = 4 * self.load * UNIT_BYTES
        info = DeviceInfo(
            name="gpu0", kind="emulated", identity="gpu", link=True, memory=memory, engines=2,
            clock="virtual",
        )  # fmt: skip
        model = DeviceModel(PiecewiseLinear(), self.kernel, COPY, COPY)
        demand = MemoryDemand(
            input_bytes=UNIT_BYTES, work_bytes=0, output_bytes=UNIT_BYTES, limit=memory
        )
        cores = (core(number, CORE_UNIT) for number in range(self.cores))
        return SimulatedMachine(self.load, (SimulatedDevice(info, model, demand), *cores))


CASES = (
    *(Case(kernel, 0, 256) for kernel in KERNELS),
    *(Case(kernel) for kernel in KERNELS),
    *(Case(random_step_kernel(seed), 0, 256) for seed in range(RANDOM_KERNELS)),
)


def kernels(seeds: int, cases: Sequence[Case] = CASES, runs: int = RUNS) -> Iterator[Verdict]:
    for case in cases:
        machine = case.machine()
        best = makespan(machine.play(ideal_plan(machine)))
        ratios = [
            run.noiseless / best
            for seed in range(seeds)
            for run in learn(machine, runs, NOISE, seed)[5:]
        ]
        yield Verdict(case.name, ratios, 1.02 if case.kernel is KERNELS[0] else 1.03, 1.10)
