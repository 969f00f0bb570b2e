"""Kernels whose calls are expensive.

Two equal cores of one process; a chunk of n units takes a + b n seconds, as a matrix product that
packs its right side in each call. The loop learns the cost and chooses longer chunks; a run counts
by the time of its plan without noise, over that of the fewest equal chunks of the longest kind.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.learning.dispatched import run_dispatched
from benchmarks.results import Bar, Result
from hetsched.device import Chunk, DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel
from hetsched.planner.chunks import MAX_COSTLY_CHUNK_SECONDS
from hetsched.planner.records import JobPlan
from hetsched.simulate.learning import LearningRun, learn
from hetsched.simulate.machine import ChunkTimings, SimulatedDevice, SimulatedMachine

CORES = 2
RUNS, COUNTED_FROM = 12, 6
"""Runs of each seed; the first run that counts."""
NOISE = 0.02
MAX_RATIO = 1.03
UNIT_BYTES = 32 << 10


@dataclass(frozen=True)
class Case:
    """`units` in all; a call costs `call` seconds, a unit `unit`."""

    name: str
    units: int
    call: float
    unit: float


CASES = (
    Case("a call costs as much as 42 units, 5 s", 8192, 55e-3, 1.3e-3),
    Case("a call costs as much as 42 units, 1 s", 1536, 55e-3, 1.3e-3),
    Case("a call costs as much as 100 units, 0.4 s", 4096, 20e-3, 0.2e-3),
    Case("a call costs as much as 50 units, 0.2 s", 4096, 5e-3, 0.1e-3),
    Case("calls cost nothing, 1 s", 4096, 0.0, 0.5e-3),
)


@dataclass(frozen=True)
class CostlyCalls(SimulatedMachine):
    """Equal cores of one process; each of a run's chunks takes `call` plus its units' seconds."""

    call: float = 0.0

    def play(
        self, plan: JobPlan, noise: float = 0.0, rng: random.Random | None = None
    ) -> dict[str, ChunkTimings]:
        """Run `plan` through the dispatcher."""

        def seconds(pace: float) -> Callable[[Chunk, float], float]:
            def of_chunk(chunk: Chunk, start: float) -> float:
                error = rng.gauss(0.0, noise) if rng is not None else 0.0
                return (self.call + pace * chunk.count) * math.exp(error)

            return of_chunk

        return run_dispatched(
            plan, {d.name: seconds(float(d.model.total.time(1.0))) for d in self.devices}
        )


def machine(case: Case) -> CostlyCalls:
    """Return the machine of a case."""
    curve = Affine(0.0, case.unit)
    demand = MemoryDemand(input_bytes=UNIT_BYTES, work_bytes=0, output_bytes=UNIT_BYTES)
    devices = tuple(
        SimulatedDevice(
            DeviceInfo(name=f"cpu{number}", kind="cpu", identity="core", tail_group="cpu"),
            DeviceModel(curve, curve),
            demand,
        )
        for number in range(CORES)
    )
    return CostlyCalls(case.units, devices, call=case.call)


def best_seconds(case: Case) -> float:
    """Return the time of equal shares in the fewest calls, each about as long as is allowed."""
    share = -(-case.units // CORES)
    calls = max(1, round(share * case.unit / (MAX_COSTLY_CHUNK_SECONDS - case.call)))
    return calls * case.call + share * case.unit


def runs(case: Case, seed: int, count: int = RUNS) -> list[LearningRun]:
    """Return the runs of the loop."""
    return learn(machine(case), count, NOISE, seed)


def ratios(case: Case, seed: int, count: int = RUNS) -> list[float]:
    """Return each run's time over the best."""
    return [run.noiseless / best_seconds(case) for run in runs(case, seed, count)]


def measure(seeds: int) -> Result:
    columns = ("case", "first run", f"worst, run {COUNTED_FROM} on", "mean", "bar")
    result = Result("learning_calls", "Learning: kernels whose calls are expensive", columns)
    for case in CASES:
        trials = np.array([ratios(case, seed) for seed in range(seeds)])
        counted = trials[:, COUNTED_FROM - 1 :]
        figures = (float(trials[:, 0].max()), float(counted.max()), float(counted.mean()))
        texts = (f"{figure:.3f}" for figure in figures)
        result.rows.append((case.name, *texts, f"{MAX_RATIO:g}"))
        result.data.append({"case": case.name, "worst": figures[1], "mean": figures[2]})
        title = f"{case.name}: run {COUNTED_FROM} on, worst of {seeds} seeds, over the best plan"
        result.bars.append(Bar(title, figures[1], MAX_RATIO, at_least=False))
    return result
