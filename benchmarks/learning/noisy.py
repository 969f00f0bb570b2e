"""Noise costs little: four cores whose runs are noisy, and now and then take far longer.

Each core's time of a run is off by 5 % (log-normal), and one run in a hundred takes 20 times as
long on one core. Unlike cores learn alone, equal ones together. A run counts by the time of its
plan without noise.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from statistics import fmean

from benchmarks.results import Bar, Result
from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel
from hetsched.planner.records import JobPlan
from hetsched.simulate.learning import ideal_plan, learn
from hetsched.simulate.machine import ChunkTimings, SimulatedDevice, SimulatedMachine, makespan

CORES, LOAD = 4, 1000
RUNS, COUNTED_FROM = 200, 6
NOISE, WILD, FACTOR = 0.05, 0.01, 20.0
PACES = (1e-3, 4e-3)
"""Bounds of a core's seconds per unit, by the seed."""
MAX_MEAN = 1.02


@dataclass(frozen=True)
class NoisyCores(SimulatedMachine):
    """Cores with the noise of whole runs."""

    def play(
        self, plan: JobPlan, noise: float = 0.0, rng: random.Random | None = None
    ) -> dict[str, ChunkTimings]:
        """Run `plan`, without noise if there is no `rng`."""
        timings = super().play(plan)
        if rng is None:
            return timings
        noisy: dict[str, ChunkTimings] = {}
        for device, chunks in timings.items():
            factor = math.exp(rng.gauss(0.0, noise)) * (FACTOR if rng.random() < WILD else 1.0)
            noisy[device] = tuple(
                (units, ChunkTimes(compute=(factor * times.start, factor * times.end)))
                for units, times in chunks
            )
        return noisy


def machine(seed: int, *, are_equal: bool) -> NoisyCores:
    """Return the machine of a seed."""
    rng = random.Random(seed)
    paces = [rng.uniform(*PACES) for _ in range(CORES)]
    demand = MemoryDemand(input_bytes=1 << 20, work_bytes=0, output_bytes=1 << 20)
    devices = []
    for number, pace in enumerate(paces):
        curve = Affine(0.0, paces[0] if are_equal else pace)
        identity = "core" if are_equal else f"core {number}"
        info = DeviceInfo(name=f"cpu{number}", kind="cpu", identity=identity)
        devices.append(SimulatedDevice(info, DeviceModel(curve, curve), demand))
    return NoisyCores(LOAD, tuple(devices))


def mean_ratio(seed: int, runs: int = RUNS, *, are_equal: bool) -> float:
    """Return the mean time over that of the best plan."""
    cores = machine(seed, are_equal=are_equal)
    best = makespan(cores.play(ideal_plan(cores)))
    learning = learn(cores, runs, NOISE, seed)
    return fmean(run.noiseless / best for run in learning[COUNTED_FROM - 1 :])


def measure(seeds: int) -> Result:
    columns = ("cores", "mean", "worst seed", "bar")
    result = Result("learning_noisy", "Learning: noisy cores, 200 runs", columns)
    for name, are_equal in (("unlike", False), ("equal", True)):
        ratios = [mean_ratio(seed, are_equal=are_equal) for seed in range(seeds)]
        figures = f"{fmean(ratios):.4f}", f"{max(ratios):.4f}"
        result.rows.append((name, *figures, f"{MAX_MEAN:g}"))
        result.data.append({"cores": name, "mean_ratios": ratios})
        title = f"{name} cores: run {COUNTED_FROM} on, mean of {seeds} seeds, over the best plan"
        result.bars.append(Bar(title, fmean(ratios), MAX_MEAN, at_least=False))
    return result
