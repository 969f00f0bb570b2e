"""Devices that slow each other down.

A GPU behind a link and some cores. Each case is a table: the part of its pace that each device
keeps while others run. A run counts by the time of its plan without noise, over that of the best
set of devices.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.learning.contention import ContendedMachine
from benchmarks.results import Bar, Result
from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.planner.job_planner import plan_job
from hetsched.planner.neighbours import device_sets
from hetsched.simulate.learning import LearningRun, learn
from hetsched.simulate.machine import SimulatedDevice, makespan

LOAD, RUNS, COUNTED_FROM = 400, 50, 13
"""Units; runs of each seed; the first run that counts: after 12."""
NOISE = 0.02
TABLES = 20
MAX_RATIO, MAX_SEARCH = 1.03, 0.05
GPU_UNIT, CORE_UNIT = 0.5e-3, 7.26e-3
"""Seconds of the issue's case: alone, the GPU takes 200 ms for all units."""
GAP, COPY = 30e-6, 0.1e-3
"""Seconds: a launch or the start of a copy; a unit's copy."""
MEMORY = LOAD << 21


@dataclass(frozen=True)
class Contention:
    """A machine's contention.

    Attributes
    ----------
    name : str
    core_unit : float, seconds
    gpu_kept : tuple of float
        The GPU's pace beside 0, 1, ... busy cores.
    core_kept : tuple of float
        A core's pace beside 0, 1, ... other busy cores.
    beside_gpu : float
        A core's pace while the GPU runs.
    """

    name: str
    core_unit: float
    gpu_kept: tuple[float, ...]
    core_kept: tuple[float, ...]
    beside_gpu: float

    @property
    def cores(self) -> int:
        return len(self.core_kept)

    def kept_pace(self, device: str, others: Collection[str]) -> float:
        """Return the part of its pace that `device` keeps beside `others`."""
        busy_cores = sum(other.startswith("cpu") for other in others)
        if device == "gpu0":
            return self.gpu_kept[busy_cores]
        return self.core_kept[busy_cores] * (self.beside_gpu if "gpu0" in others else 1.0)


BUSY_CORES_SLOW_GPU = Contention(
    "GPU at 75 % beside two cores", CORE_UNIT, (1.0, 0.87, 0.75), (1.0, 1.0), 1.0
)


def random_table(seed: int) -> Contention:
    """Draw a table: 2, 4 or 8 cores that do 5 to 60 % of the work, and how all slow down."""
    draw = random.Random(f"contention {seed}")
    cores = draw.choice((2, 4, 8))
    part = draw.uniform(0.05, 0.6)
    gpu_loss, core_loss, loss_by_gpu = (draw.uniform(0.0, most) for most in (0.45, 0.5, 0.4))
    shape = draw.choice((0.5, 1.0, 2.0))
    gpu_kept = tuple(1 - gpu_loss * (k / cores) ** shape for k in range(cores + 1))
    core_kept = tuple(1 - core_loss * (k / max(1, cores - 1)) ** shape for k in range(cores))
    core_unit = GPU_UNIT * cores * (1 - part) / part
    return Contention(f"table {seed}", core_unit, gpu_kept, core_kept, 1 - loss_by_gpu)


def machine_with(contention: Contention) -> ContendedMachine:
    """Return a machine of a GPU and cores with this contention."""
    copy = Affine(GAP, COPY)
    gpu = SimulatedDevice(
        DeviceInfo(name="gpu0", kind="cuda", identity="gpu", link=True, memory=MEMORY, engines=2),
        DeviceModel(PiecewiseLinear(), Affine(GAP, GPU_UNIT), copy, copy),
        MemoryDemand(input_bytes=1 << 20, work_bytes=0, output_bytes=1 << 20, limit=MEMORY),
    )
    core = Affine(0.0, contention.core_unit)
    cores = (
        SimulatedDevice(
            DeviceInfo(name=f"cpu{number}", kind="cpu", identity="core"),
            DeviceModel(core, core),
            MemoryDemand(input_bytes=1 << 20, work_bytes=0, output_bytes=1 << 20),
        )
        for number in range(contention.cores)
    )
    return ContendedMachine(LOAD, (gpu, *cores), kept_pace=contention.kept_pace)


def best_seconds(contention: Contention, names: Collection[str]) -> float:
    """Return the time of the best plan on these devices, with their costs beside each other."""
    machine = machine_with(contention)
    models = {
        device.name: slowed(
            device.model, contention.kept_pace(device.name, set(names) - {device.name})
        )
        for device in machine.devices
    }
    chosen = [c for c in machine.candidates(models) if c.info.name in names]
    return makespan(machine.play(plan_job(LOAD, chosen)))


def slowed(model: DeviceModel, kept: float) -> DeviceModel:
    """Return the model of a device that keeps this part of its pace."""

    def line(curve: object) -> Affine:
        assert isinstance(curve, Affine)
        return Affine(curve.gap / kept, curve.slope / kept)

    if model.h2d is None or model.d2h is None:
        return DeviceModel(line(model.total), line(model.compute))
    return DeviceModel(model.total, line(model.compute), line(model.h2d), line(model.d2h))


@cache
def set_seconds(contention: Contention) -> dict[frozenset[str], float]:
    """Return the best time of each set of devices that the planner considers."""
    infos = [device.info for device in machine_with(contention).devices]
    return {s.names: best_seconds(contention, s.names) for s in device_sets(infos)}


@cache
def best_of_any_set(contention: Contention) -> float:
    """Return the best time of any number of cores, with the GPU or without."""
    cores = [f"cpu{number}" for number in range(contention.cores)]
    counts = range(contention.cores + 1)
    names = [[*gpu, *cores[:count]] for gpu in (["gpu0"], []) for count in counts]
    return min(best_seconds(contention, chosen) for chosen in names if chosen)


def runs_of(contention: Contention, seed: int, runs: int = RUNS) -> list[LearningRun]:
    """Return the runs of the learning loop on this machine."""
    return learn(machine_with(contention), runs, NOISE, seed)


def search_cost(learning: Sequence[LearningRun], best: float) -> float:
    """Return what trials of sets took longer than the run before them, in runs of time `best`."""
    excess = 0.0
    present = learning[0].noiseless
    for run in learning:
        if any("which may be faster" in reason for reason in run.plan.reasons):
            excess += max(0.0, run.noiseless - present)
        else:
            present = run.noiseless
    return excess / best


def measure(seeds: int) -> Result:
    columns = (
        "contention", "cores", "all devices", "any set", "run 13 on, mean", "worst",
        "search, worst",
    )  # fmt: skip
    title = "Learning: devices that slow each other down"
    result = Result("learning_co_runners", title, columns)
    cases = [BUSY_CORES_SLOW_GPU, *(random_table(number) for number in range(TABLES))]
    for contention in cases:
        best = min(set_seconds(contention).values())
        trials = [runs_of(contention, seed) for seed in range(seeds)]
        counted = np.array(
            [[run.noiseless / best for run in trial[COUNTED_FROM - 1 :]] for trial in trials]
        )
        ratios = counted.mean(axis=1)
        costs = [search_cost(trial, best) / RUNS for trial in trials]
        names = frozenset(d.name for d in machine_with(contention).devices)
        figures = (
            set_seconds(contention)[names] / best,
            best_of_any_set(contention) / best,
            float(ratios.mean()),
            float(ratios.max()),
            max(costs),
        )
        result.rows.append(
            (contention.name, str(contention.cores), *(f"{figure:.3f}" for figure in figures))
        )
        result.data.append(
            {
                "contention": contention.name,
                "best": best,
                "ratios": [[run.noiseless / best for run in trial] for trial in trials],
                "search": costs,
            }
        )
        print(f"  {' | '.join(result.rows[-1])}", flush=True)
        result.bars += [
            Bar(f"{contention.name}: after 12 runs, over the best set, worst of {seeds} seeds",
                figures[3], MAX_RATIO, at_least=False),
            Bar(f"{contention.name}: search, part of {RUNS} runs, worst of {seeds} seeds",
                figures[4], MAX_SEARCH, at_least=False),
        ]  # fmt: skip
    return result
