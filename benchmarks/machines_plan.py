"""Plans of whole machines: their distance to the bounds, for both profiles and random machines.

Machines are drawn at random: 1 to 64 cores of 1 to 4 ms a unit (equal ones, or up to twice as
slow as each other), 1 to 4 GPUs of 3 to 100 times a core's speed behind links of 10 to 100 GB/s
each way (2 MiB a unit), 5 to 30 us to start a copy or a kernel, one or two copy engines, memory
for 4 units to the whole load, 2 to 200 units a device. All virtual time: nothing is computed.
"""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import dataclass
from typing import Any

from benchmarks.results import Bar, Result
from hetsched.config import load_profile
from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.planner.job_planner import JobPlan
from hetsched.plans import lower_bound
from hetsched.simulate.learning import ideal_plan, learn
from hetsched.simulate.machine import SimulatedDevice, SimulatedMachine, device_seconds, makespan
from hetsched.simulate.profile import machine_of

MACHINES, QUICK = 200, 20
UNIT_BYTES = 2 << 20
CORES, GPUS, UNITS = (1, 64), (1, 4), (2, 200)
CORE_UNIT, GPU_SPEEDUP = (1e-3, 4e-3), (3, 100)
RATE, GAP = (10e9, 100e9), (5e-6, 30e-6)
MIN_MEMORY_UNITS = 4
MAX_MEDIAN, MAX_90TH, MAX_WORST = 0.006, 0.035, 0.10
WORST_SHOWN = 10
PROFILES = {"desktop": 40.0e-3, "h100": 9.45e-3}
SEEDS, RUNS, NOISE, MAX_EXCESS = 10, 4, 0.02, 0.02


@dataclass(frozen=True)
class Judgement:
    """A machine's plan and its relative distance to the bound."""

    seed: int
    machine: SimulatedMachine
    gap: float
    explanation: str


def measure(quick: bool) -> Result:
    columns = ("machine", "units", "cores", "memory of each GPU", "above its bound, %", "why")
    result = Result("machines_plan", "Plans of whole machines", columns)
    profiles(result)
    judgements = [judged(seed) for seed in range(QUICK if quick else MACHINES)]
    by_gap = sorted(judgements, key=lambda judgement: judgement.gap)
    result.rows += [row(judgement) for judgement in by_gap[: -WORST_SHOWN - 1 : -1]]
    result.data += [facts(judgement) for judgement in judgements]
    gaps = [judgement.gap for judgement in by_gap]
    result.rows.append(("median", "", "", "", f"{100 * gaps[len(gaps) // 2]:.2f}", ""))
    result.bars += [
        Bar("gap to the bound, median", statistics.median(gaps), MAX_MEDIAN, False),
        Bar("the same, 90th percentile", gaps[int(0.9 * len(gaps))], MAX_90TH, False),
        Bar("the same, worst of all", gaps[-1], MAX_WORST, False),
    ]
    return result


def profiles(result: Result) -> None:
    for name, limit in PROFILES.items():
        machine = machine_of(*load_profile(name))
        best = makespan(machine.play(ideal_plan(machine)))
        result.bars.append(Bar(f"{name}, ms", best * 1e3, limit * 1e3, False))
        for total in ("planned", "measured"):
            loops = [
                learn(machine, RUNS, NOISE, seed, uses_measured_total=total == "measured")
                for seed in range(SEEDS)
            ]
            excess = [[run.noiseless / best - 1 for run in loop] for loop in loops]
            worst = max(runs[-1] for runs in excess)
            if total == "planned":
                title = f"{name}, from nothing with 2 % noise, run 4, worst of 10 seeds"
                result.bars.append(Bar(title, worst, MAX_EXCESS, False))
            result.data.append({"profile": name, "total": total, "seconds": best, "above": excess})


def judged(seed: int) -> Judgement:
    """Compare the plan of machine number `seed` with the bound."""
    machine = draw(seed)
    plan = ideal_plan(machine)
    seconds = makespan(machine.play(plan))
    gap = seconds / machine.bound() - 1
    return Judgement(seed, machine, gap, explain(machine, plan))


def draw(seed: int) -> SimulatedMachine:
    """Draw machine number `seed`."""
    chance = random.Random(seed)
    cores, gpus = round(skewed(chance, CORES)), chance.randint(*GPUS)
    load = round((cores + gpus) * skewed(chance, UNITS))
    unit, equal = skewed(chance, CORE_UNIT), chance.random() < 0.5
    devices = []
    for number in range(cores):
        core_unit = unit if equal else unit * chance.uniform(1, 2)
        model = DeviceModel(Affine(0.0, core_unit), Affine(0.0, core_unit))
        info = DeviceInfo(name=f"cpu{number}", kind="cpu", identity=f"{core_unit}")
        devices.append(SimulatedDevice(info, model, demand(None)))
    devices += [gpu(chance, number, unit, load) for number in range(gpus)]
    return SimulatedMachine(load, tuple(devices))


def gpu(chance: random.Random, number: int, unit: float, load: int) -> SimulatedDevice:
    capacity = round(skewed(chance, (MIN_MEMORY_UNITS, max(load, 2 * MIN_MEMORY_UNITS))))
    compute, copy_in, copy_out = (
        Affine(chance.uniform(*GAP), slope)
        for slope in (
            unit / skewed(chance, GPU_SPEEDUP),
            UNIT_BYTES / skewed(chance, RATE),
            UNIT_BYTES / skewed(chance, RATE),
        )
    )
    limit = capacity * 2 * UNIT_BYTES
    info = DeviceInfo(
        name=f"gpu{number}", kind="cuda", identity=f"{number}", link=True, memory=limit,
        engines=chance.choice((1, 2)),
    )  # fmt: skip
    model = DeviceModel(PiecewiseLinear(), compute, copy_in, copy_out)
    return SimulatedDevice(info, model, demand(limit))


def skewed(chance: random.Random, ends: tuple[float, float]) -> float:
    """Draw a number between both ends, log-uniform."""
    return math.exp(chance.uniform(math.log(ends[0]), math.log(ends[1])))


def demand(limit: int | None) -> MemoryDemand:
    return MemoryDemand(input_bytes=UNIT_BYTES, work_bytes=0, output_bytes=UNIT_BYTES, limit=limit)


def memory_units(machine: SimulatedMachine) -> list[int]:
    limits = [device.demand.limit for device in machine.devices]
    return [limit // (2 * UNIT_BYTES) for limit in limits if limit is not None]


def explain(machine: SimulatedMachine, plan: JobPlan) -> str:
    """Describe which device ends last, and how good its plan is."""
    played = machine.play(plan)
    last = max(played, key=lambda name: device_seconds(played[name]))
    device = next(device for device in machine.devices if device.info.name == last)
    share = sum(units for units, _ in played[last])
    if not device.info.link:
        return f"{last} ends last: {share} units, whole ones"
    bound = lower_bound(share, device.model, device.demand, device.overlap)
    gap = 100 * (device_seconds(played[last]) / bound - 1)
    capacity = (device.demand.limit or 0) // (2 * UNIT_BYTES)
    engines = f"{device.info.engines} engine{'s' * (device.info.engines > 1)}"
    return (
        f"{last} ends last: {share} units, memory for {capacity}, {engines}; its plan is"
        f" {gap:.1f} % above its own bound"
    )


def row(judgement: Judgement) -> tuple[str, ...]:
    machine = judgement.machine
    cores = sum(not device.info.link for device in machine.devices)
    listed_memories = " ".join(map(str, memory_units(machine)))
    gap = f"{100 * judgement.gap:.2f}"
    seed, load = str(judgement.seed), str(machine.load)
    return seed, load, str(cores), listed_memories, gap, judgement.explanation


def facts(judgement: Judgement) -> dict[str, Any]:
    return {
        "seed": judgement.seed,
        "units": judgement.machine.load,
        "devices": len(judgement.machine.devices),
        "memory_units": memory_units(judgement.machine),
        "above_bound": judgement.gap,
        "why": judgement.explanation,
    }
