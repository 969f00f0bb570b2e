"""Plans of whole machines: how far above the bounds, on both profiles and on random machines.

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
from hetsched.planner.analysis.machine_bound import fluid_bound, whole_unit_bound
from hetsched.planner.job_planner import JobPlan
from hetsched.plans import lower_bound
from hetsched.simulate.learning import ideal_plan, learn
from hetsched.simulate.machine import SimulatedDevice, SimulatedMachine, device_seconds, makespan
from hetsched.simulate.profile import machine_of

MACHINES, QUICK = 200, 20
UNIT_BYTES = 2 << 20
CORES, GPUS, UNITS = (1, 64), (1, 4), (2, 200)
CORE_UNIT, FASTER = (1e-3, 4e-3), (3, 100)
RATE, GAP = (10e9, 100e9), (5e-6, 30e-6)
LEAST_ROOM, ROOMY = 4, 8
MEDIAN, NINETIETH, WORST_ROOMY, WORST = 0.005, 0.03, 0.06, 0.15
WORST_SHOWN = 10
PROFILES = {"desktop": 40.0e-3, "h100": 9.45e-3}
SEEDS, RUNS, NOISE, NEAR = 10, 4, 0.02, 0.02


@dataclass(frozen=True)
class Found:
    """A machine's plan. `above`: over the whole-unit bound; `fluid`: over the fluid bound."""

    seed: int
    machine: SimulatedMachine
    least_room: int
    above: float
    fluid: float
    why: str


def measure(quick: bool) -> Result:
    columns = ("machine", "units", "cores", "room of each GPU", "above its bound, %", "why")
    result = Result("machines_plan", "Plans of whole machines", columns)
    profiles(result)
    found = [judged(seed) for seed in range(QUICK if quick else MACHINES)]
    for one in sorted(found, key=lambda one: -one.above)[:WORST_SHOWN]:
        result.rows.append(row(one))
    result.data += [facts(one) for one in found]
    gaps = sorted(one.above for one in found)
    roomy = max(one.above for one in found if one.least_room >= ROOMY)
    fluid = statistics.median(one.fluid for one in found)
    result.rows.append(("median", "", "", "", f"{100 * gaps[len(gaps) // 2]:.2f}",
                        f"{100 * fluid:.2f} above the fluid bound"))  # fmt: skip
    result.bars += [
        Bar("gap to the whole-unit bound, median", statistics.median(gaps), MEDIAN, False),
        Bar("the same, 90th percentile", gaps[int(0.9 * len(gaps))], NINETIETH, False),
        Bar("the same, worst with 8 units of memory or more", roomy, WORST_ROOMY, False),
        Bar("the same, worst of all", gaps[-1], WORST, False),
    ]
    return result


def profiles(result: Result) -> None:
    for name, most in PROFILES.items():
        machine = machine_of(*load_profile(name))
        best = makespan(machine.play(ideal_plan(machine)))
        result.bars.append(Bar(f"{name}, ms", best * 1e3, most * 1e3, False))
        for way in ("planned", "measured"):
            loops = [
                learn(machine, RUNS, NOISE, seed, uses_measured_total=way == "measured")
                for seed in range(SEEDS)
            ]
            above = [[run.noiseless / best - 1 for run in loop] for loop in loops]
            worst = max(runs[-1] for runs in above)
            if way == "planned":
                what = f"{name}, from nothing with 2 % noise, run 4, worst of 10 seeds"
                result.bars.append(Bar(what, worst, NEAR, False))
            result.data.append({"profile": name, "total": way, "seconds": best, "above": above})


def judged(seed: int) -> Found:
    machine = draw(seed)
    plan = ideal_plan(machine)
    took = makespan(machine.play(plan))
    parts = machine.bound_devices()
    above = took / whole_unit_bound(machine.load, parts) - 1
    fluid = took / fluid_bound(machine.load, parts) - 1
    return Found(seed, machine, min(rooms(machine)), above, fluid, why(machine, plan))


def draw(seed: int) -> SimulatedMachine:
    """The machine number `seed`."""
    chance = random.Random(seed)
    cores, gpus = round(skewed(chance, CORES)), chance.randint(*GPUS)
    load = round((cores + gpus) * skewed(chance, UNITS))
    unit, equal = skewed(chance, CORE_UNIT), chance.random() < 0.5
    devices = []
    for number in range(cores):
        own = unit if equal else unit * chance.uniform(1, 2)
        model = DeviceModel(Affine(0.0, own), Affine(0.0, own))
        info = DeviceInfo(name=f"cpu{number}", kind="cpu", identity=f"{own}")
        devices.append(SimulatedDevice(info, model, demand(None)))
    devices += [gpu(chance, number, unit, load) for number in range(gpus)]
    return SimulatedMachine(load, tuple(devices))


def gpu(chance: random.Random, number: int, unit: float, load: int) -> SimulatedDevice:
    room = round(skewed(chance, (LEAST_ROOM, max(load, 2 * LEAST_ROOM))))
    compute, copy_in, copy_out = (
        Affine(chance.uniform(*GAP), slope)
        for slope in (
            unit / skewed(chance, FASTER),
            UNIT_BYTES / skewed(chance, RATE),
            UNIT_BYTES / skewed(chance, RATE),
        )
    )
    limit = room * 2 * UNIT_BYTES
    info = DeviceInfo(
        name=f"gpu{number}", kind="cuda", identity=f"{number}", link=True, memory=limit,
        engines=chance.choice((1, 2)),
    )  # fmt: skip
    model = DeviceModel(PiecewiseLinear(), compute, copy_in, copy_out)
    return SimulatedDevice(info, model, demand(limit))


def skewed(chance: random.Random, ends: tuple[float, float]) -> float:
    """Between both, their logarithm evenly."""
    return math.exp(chance.uniform(math.log(ends[0]), math.log(ends[1])))


def demand(limit: int | None) -> MemoryDemand:
    return MemoryDemand(input_bytes=UNIT_BYTES, work_bytes=0, output_bytes=UNIT_BYTES, limit=limit)


def rooms(machine: SimulatedMachine) -> list[int]:
    limits = [one.demand.limit for one in machine.devices]
    return [limit // (2 * UNIT_BYTES) for limit in limits if limit is not None]


def why(machine: SimulatedMachine, plan: JobPlan) -> str:
    """Who ends last, and how good its own plan is."""
    played = machine.play(plan)
    last = max(played, key=lambda name: device_seconds(played[name]))
    one = next(device for device in machine.devices if device.info.name == last)
    share = sum(units for units, _ in played[last])
    if not one.info.link:
        return f"{last} ends last: {share} units, whole ones"
    bound = lower_bound(share, one.model, one.demand, one.overlap)
    own = 100 * (device_seconds(played[last]) / bound - 1)
    room = (one.demand.limit or 0) // (2 * UNIT_BYTES)
    engines = f"{one.info.engines} engine{'s' * (one.info.engines > 1)}"
    return (
        f"{last} ends last: {share} units through room for {room}, {engines}; its plan is"
        f" {own:.1f} % above its own bound"
    )


def row(one: Found) -> tuple[str, ...]:
    cores = sum(not device.info.link for device in one.machine.devices)
    listed = " ".join(map(str, rooms(one.machine)))
    above = f"{100 * one.above:.2f}"
    return str(one.seed), str(one.machine.load), str(cores), listed, above, one.why


def facts(one: Found) -> dict[str, Any]:
    return {
        "seed": one.seed,
        "units": one.machine.load,
        "devices": len(one.machine.devices),
        "rooms": rooms(one.machine),
        "above_whole_unit_bound": one.above,
        "above_fluid_bound": one.fluid,
        "why": one.why,
    }
