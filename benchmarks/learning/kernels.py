"""Kernels of a GPU that are no straight line (`docs/models.md`, "Phases that aren't lines").

One GPU behind a link and two cores, 256 units. Each case is a kernel's time as a function of the
chunk; copies are straight lines. A run counts by the time of its plan without noise, over that of
the best plan known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.results import Bar, Result
from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.simulate.learning import ideal_plan, learn
from hetsched.simulate.machine import SimulatedDevice, SimulatedMachine, makespan

LOAD, RUNS, COUNTED_FROM = 256, 12, 6
"""Units; runs of each seed; the first run that counts."""
NOISE = 0.02
GAP, UNIT = 40e-6, 100e-6
"""Of the kernel: seconds of a launch, and of a unit."""
COPY = 20e-6, 60e-6
CORE_UNIT = 900e-6
MEMORY = LOAD << 21
"""Bytes: all units and their results fit, so that memory doesn't limit the choice of chunks."""
MAX_RATIO, MAX_AFFINE_RATIO = 1.03, 1.01

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
    Kernel("small batches slow", lambda x: GAP + UNIT * x * (1 + 1 / (1 + (x / 8) ** 2))),
)


def machine_with(kernel: Kernel) -> SimulatedMachine:
    """Return a machine of a GPU with this kernel and two cores."""
    copy = Affine(*COPY)
    gpu = SimulatedDevice(
        DeviceInfo(
            name="gpu0",
            kind="emulated",
            identity="gpu",
            link=True,
            memory=MEMORY,
            engines=2,
            clock="virtual",
        ),
        DeviceModel(PiecewiseLinear(), kernel, copy, copy),
        MemoryDemand(input_bytes=1 << 20, work_bytes=0, output_bytes=1 << 20, limit=MEMORY),
    )
    return SimulatedMachine(LOAD, (gpu, *(_core(number) for number in range(2))))


def _core(number: int) -> SimulatedDevice:
    curve = Affine(0.0, CORE_UNIT)
    return SimulatedDevice(
        DeviceInfo(
            name=f"cpu{number}",
            kind="emulated",
            identity="core",
            link=False,
            memory=None,
            engines=0,
            clock="virtual",
        ),
        DeviceModel(curve, curve),
        MemoryDemand(input_bytes=1 << 20, work_bytes=0, output_bytes=1 << 20, limit=None),
    )


@cache
def best_known(kernel: Kernel) -> float:
    """Return the seconds of the best plan known for this kernel."""
    machine = machine_with(kernel)
    return makespan(machine.play(ideal_plan(machine)))


def ratios(kernel: Kernel, seed: int, runs: int = RUNS) -> list[float]:
    """Return each run's time without noise over that of the best plan known."""
    learning = learn(machine_with(kernel), runs, NOISE, seed)
    return [run.noiseless / best_known(kernel) for run in learning]


def measure(seeds: int) -> Result:
    columns = ("kernel", "worst from run 6 on", "mean from run 6 on", "run 12, worst", "bar")
    result = Result("learning_kernels", "Learning: kernels that are no straight line", columns)
    for kernel in KERNELS:
        trials = [ratios(kernel, seed) for seed in range(seeds)]
        counted = np.array([trial[COUNTED_FROM - 1 :] for trial in trials])
        bar = MAX_AFFINE_RATIO if kernel.name == "affine" else MAX_RATIO
        figures = (float(counted.max()), float(counted.mean()), float(counted[:, -1].max()))
        result.rows.append((kernel.name, *(f"{figure:.3f}" for figure in figures), f"{bar:g}"))
        result.data.append({"kernel": kernel.name, "ratios": trials})
        title = f"{kernel.name}: run {COUNTED_FROM} on, worst of {seeds} seeds, over the best plan"
        result.bars.append(Bar(title, figures[0], bar, at_least=False))
    return result
