"""Kernels of a GPU that are no straight line.

One GPU behind a link and two cores, 256 units. Each case is a kernel's time as a function of the
chunk; copies are straight lines. A run counts by the time of its plan without noise, over that of
the best plan known.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.learning.best_known import best_known_seconds
from benchmarks.results import Bar, Result
from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.simulate.learning import learn
from hetsched.simulate.machine import SimulatedDevice, SimulatedMachine

RUNS, COUNTED_FROM = 100, 6
"""Runs of each seed; the first run that counts."""
NOISE = 0.02
GAP, UNIT = 40e-6, 100e-6
"""Of the kernel: seconds of a launch, and of a unit."""
COPY = Affine(20e-6, 60e-6)
CORE = Affine(0.0, 400e-6)
MAX_RATIO, MAX_MEAN, MAX_AFFINE_MEAN = 1.10, 1.03, 1.02
"""Of any run, and of a case's mean; of a kernel that is a straight line."""
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

    @property
    def max_mean(self) -> float:
        return MAX_AFFINE_MEAN if self.kernel is KERNELS[0] else MAX_MEAN

    def machine(self) -> SimulatedMachine:
        """Return the machine: memory holds all units twice, so it doesn't limit the chunks."""
        memory = 2 * self.load * 2 * UNIT_BYTES
        gpu = SimulatedDevice(
            DeviceInfo(
                name="gpu0",
                kind="emulated",
                identity="gpu",
                link=True,
                memory=memory,
                engines=2,
                clock="virtual",
            ),
            DeviceModel(PiecewiseLinear(), self.kernel, COPY, COPY),
            MemoryDemand(
                input_bytes=UNIT_BYTES, work_bytes=0, output_bytes=UNIT_BYTES, limit=memory
            ),
        )
        return SimulatedMachine(self.load, (gpu, *map(_core, range(self.cores))))


def _core(number: int) -> SimulatedDevice:
    return SimulatedDevice(
        DeviceInfo(
            name=f"cpu{number}",
            kind="cpu",
            identity="core",
            link=False,
            memory=None,
            engines=0,
            clock="virtual",
        ),
        DeviceModel(CORE, CORE),
        MemoryDemand(input_bytes=UNIT_BYTES, work_bytes=0, output_bytes=UNIT_BYTES, limit=None),
    )


CASES = (
    *(Case(kernel, 0, 256) for kernel in KERNELS),
    *(Case(kernel) for kernel in KERNELS),
    *(Case(random_step_kernel(seed), 0, 256) for seed in range(RANDOM_KERNELS)),
)


@cache
def best_seconds(case: Case) -> float:
    """Return the seconds of the best plan known for this case."""
    return best_known_seconds(case.machine())


def ratios(case: Case, seed: int, runs: int = RUNS) -> list[float]:
    """Return each run's time without noise over that of the best plan known."""
    learning = learn(case.machine(), runs, NOISE, seed)
    return [run.noiseless / best_seconds(case) for run in learning]


def measure(seeds: int) -> Result:
    columns = ("case", "worst from run 6 on", "mean from run 6 on", "last run, worst", "bar")
    result = Result("learning_kernels", "Learning: kernels that are no straight line", columns)
    for case in CASES:
        trials = [ratios(case, seed) for seed in range(seeds)]
        counted = np.array([trial[COUNTED_FROM - 1 :] for trial in trials])
        figures = (float(counted.max()), float(counted.mean()), float(counted[:, -1].max()))
        bars = f"{MAX_RATIO:g}, mean {case.max_mean:g}"
        result.rows.append((case.name, *(f"{figure:.3f}" for figure in figures), bars))
        result.data.append({"case": case.name, "ratios": trials})
        title = f"{case.name}: run {COUNTED_FROM} on, {seeds} seeds, over the best plan"
        result.bars.append(Bar(f"{title}, worst", figures[0], MAX_RATIO, at_least=False))
        result.bars.append(Bar(f"{title}, mean", figures[1], case.max_mean, at_least=False))
    return result
