"""Devices that slow each other down.

A GPU behind a link and some cores. Each case is a table: the part of its pace that each device
keeps while others run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import msgspec
import numpy as np

from benchmarks.learning import Verdict
from benchmarks.learning.cores import core
from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.planner.job_planner import plan_job
from hetsched.planner.neighbours import device_sets
from hetsched.planner.records import JobPlan
from hetsched.simulate.machine import (
    ChunkTimings,
    LearningRun,
    SimulatedDevice,
    SimulatedMachine,
    device_seconds,
    learn,
    makespan,
)

LOAD, RUNS, NOISE, TABLES = 400, 50, 0.02, 20
GPU_UNIT, CORE_UNIT = 0.5e-3, 7.26e-3
"""Seconds: alone, the GPU takes 200 ms for all units."""
GAP, COPY = 30e-6, 0.1e-3
"""Seconds: a launch or the start of a copy; a unit's copy."""
MEMORY = LOAD << 21


KeptPace = Callable[[str, frozenset[str]], float]
"""(device, other devices that run at present) -> the part of its pace that it keeps, <= 1."""

Progress = list[tuple[float, float]]
"""(time, seconds of its own timeline that it has done by then), with constant pace between."""


@dataclass(frozen=True)
class ContendedMachine(SimulatedMachine):
    """A machine whose devices have their costs only when alone."""

    kept_pace: KeptPace = field(kw_only=True)

    def play(
        self, plan: JobPlan, noise: float = 0.0, rng: random.Random | None = None
    ) -> dict[str, ChunkTimings]:
        """Run `plan` as `SimulatedMachine.play`, each device slowed down while others run."""
        alone = super().play(plan, noise, rng)
        seconds = {device: device_seconds(chunks) for device, chunks in alone.items()}
        progress = progress_of(seconds, self.kept_pace)
        return {device: _stretched(chunks, progress[device]) for device, chunks in alone.items()}


def progress_of(seconds: Mapping[str, float], kept_pace: KeptPace) -> dict[str, Progress]:
    """Return the progress of devices that start together; `seconds`: what each takes alone."""
    progress: dict[str, Progress] = {device: [(0.0, 0.0)] for device in seconds}
    running, now = dict(seconds), 0.0
    while running:
        paces = {d: kept_pace(d, frozenset(running) - {d}) for d in running}
        step = min(remaining / paces[device] for device, remaining in running.items())
        now += step
        for device in list(running):
            running[device] -= step * paces[device]
            if running[device] <= 1e-12 * seconds[device]:
                del running[device]
            done = seconds[device] - running.get(device, 0.0)
            progress[device].append((now, done))
    return progress


def _stretched(chunks: ChunkTimings, progress: Progress) -> ChunkTimings:
    times, done = zip(*progress, strict=True)

    def moment(own: float) -> float:
        return float(np.interp(own, done, times))

    def span(own: tuple[float, float] | None) -> tuple[float, float] | None:
        return None if own is None else (moment(own[0]), moment(own[1]))

    return tuple(
        (
            units,
            msgspec.structs.replace(
                chunk,
                copy_in=span(chunk.copy_in),
                compute=span(chunk.compute),
                copy_out=span(chunk.copy_out),
            ),
        )
        for units, chunk in chunks
    )


@dataclass(frozen=True)
class Contention:
    """The parts of their pace that a GPU and cores keep."""

    name: str
    core_unit: float  # seconds
    gpu_kept: tuple[float, ...]  # beside 0, 1, ... busy cores
    core_kept: tuple[float, ...]  # beside 0, 1, ... other busy cores
    beside_gpu: float  # of a core, while the GPU runs

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


CASES = (BUSY_CORES_SLOW_GPU, *(random_table(number) for number in range(TABLES)))


def machine_with(contention: Contention) -> ContendedMachine:
    """Return a machine of a GPU and cores with this contention."""
    copy = Affine(GAP, COPY)
    gpu = SimulatedDevice(
        DeviceInfo(name="gpu0", kind="cuda", identity="gpu", link=True, memory=MEMORY, engines=2),
        DeviceModel(PiecewiseLinear(), Affine(GAP, GPU_UNIT), copy, copy),
        MemoryDemand(input_bytes=1 << 20, work_bytes=0, output_bytes=1 << 20, limit=MEMORY),
    )
    cores = (core(number, contention.core_unit) for number in range(contention.cores))
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


def co_runners(
    seeds: int, cases: Sequence[Contention] = CASES, runs: int = RUNS
) -> Iterator[Verdict]:
    """Compare with the best set from the 13th run on, and count what the search costs."""
    for contention in cases:
        machine = machine_with(contention)
        infos = [device.info for device in machine.devices]
        best = min(best_seconds(contention, s.names) for s in device_sets(infos))
        trials = [learn(machine, runs, NOISE, seed) for seed in range(seeds)]
        ratios = [fmean(run.noiseless / best for run in trial[12:]) for trial in trials]
        yield Verdict(f"{contention.name}, over the best set", ratios, max_worst=1.03)
        costs = [search_cost(trial, best) / RUNS for trial in trials]
        yield Verdict(f"{contention.name}, search, part of {RUNS} runs", costs, max_worst=0.05)
