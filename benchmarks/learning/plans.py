"""How far plans are from the bound by the models: of one device, of whole machines.

Devices are drawn at random: fixed costs of 5 to 30 us, 5 to 316 us a unit and phase, memory for 4
units to all of 64 to 4,096, one or two copy engines.

Machines: 1 to 64 cores of 1 to 4 ms a unit (equal, or up to twice as slow as each other), 1 to 4
GPUs of 3 to 100 times a core's speed behind links of 10 to 100 GB/s each way (2 MiB a unit), 2 to
200 units a device. All in virtual time: nothing is computed.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.learning import Verdict
from hetsched.config import load_profile
from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.plans import Overlap, best_plan, lower_bound, price
from hetsched.simulate.machine import (
    SimulatedDevice,
    SimulatedMachine,
    ideal_plan,
    learn,
    makespan,
)
from hetsched.simulate.profile import machine_of

UNITS, MIN_ROOM, LARGE_ROOM = (64, 4096), 4, 8
GAPS, DECADES = (5e-6, 30e-6), (-5.3, -3.5)
"""Seconds; powers of ten of seconds per unit."""
SMALL_UNITS = (-6.0, -4.0)
"""For comparison: units so small that fixed costs dominate."""
MAX_GAPS = {DECADES: (0.003, 0.012), SMALL_UNITS: (0.007, 0.02)}
"""Mean and 90th percentile of the gaps to the bound."""
MAX_WORST = 0.10
CORES, GPUS, LOADS = (1, 64), (1, 4), (2, 200)
CORE_UNIT, GPU_SPEEDUP = (1e-3, 4e-3), (3, 100)
UNIT_BYTES, RATE = 2 << 20, (10e9, 100e9)
MAX_MEDIAN, MAX_90TH = 0.006, 0.035
"""Of the gaps of whole machines."""
PROFILES = {"desktop": 40.0e-3, "h100": 9.45e-3}
RUNS, NOISE, MAX_EXCESS = 4, 0.02, 0.02
DEVICES_PER_SEED, MACHINES_PER_SEED = 100, 20


@dataclass(frozen=True)
class Case:
    """A share for one device. `room`: units that its memory holds."""

    seed: int
    share: int
    room: int
    phases: tuple[Affine, Affine, Affine]
    overlap: Overlap

    @property
    def model(self) -> DeviceModel:
        copy_in, compute, copy_out = self.phases
        return DeviceModel(Affine(0.0, 1.0), compute, copy_in, copy_out)

    @property
    def memory(self) -> MemoryDemand:
        return MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=0, limit=self.room)


def draw(seed: int, decades: tuple[float, float]) -> Case:
    """Draw a device and a share; log-uniform, except fixed costs."""
    rng = random.Random(seed)
    share = round(_log_uniform(rng, UNITS))
    room = min(round(_log_uniform(rng, (MIN_ROOM, 2 * share))), share)
    phases = [Affine(rng.uniform(*GAPS), 10 ** rng.uniform(*decades)) for _ in range(3)]
    overlap = rng.choice([Overlap.SINGLE, Overlap.FULL])
    return Case(seed, share, room, (phases[0], phases[1], phases[2]), overlap)


def gap(case: Case) -> float:
    """Return the relative distance of the best plan of `case` to the bound."""
    plan = best_plan(case.share, case.model, case.memory, overlap=case.overlap)
    bound = lower_bound(case.share, case.model, case.memory, case.overlap)
    return price(plan, case.model, case.overlap) / bound - 1


def verdicts(cases: Sequence[Case], decades: tuple[float, float]) -> Iterator[Verdict]:
    mean, ninetieth = MAX_GAPS[decades]
    gaps = [gap(case) for case in cases]
    with_room = [each for each, case in zip(gaps, cases, strict=True) if case.room >= LARGE_ROOM]
    low, high = (10**power * 1e6 for power in decades)
    name = f"gap to the bound, {len(gaps)} devices of {low:.0f} to {high:.0f} us a unit"
    yield Verdict(name, gaps, max_mean=mean)
    yield Verdict("the same, 90th percentile", [_ninetieth(gaps)], max_worst=ninetieth)
    yield Verdict(f"the same, from {LARGE_ROOM} units of memory on", with_room, None, MAX_WORST)


def devices(seeds: int) -> Iterator[Verdict]:
    """Plans of one device, of large units and of small ones."""
    for decades in MAX_GAPS:
        count = seeds * DEVICES_PER_SEED
        yield from verdicts([draw(seed, decades) for seed in range(count)], decades)


def machines(seeds: int) -> Iterator[Verdict]:
    """Two known machines, their fourth run from nothing, and random ones."""
    for name, limit in PROFILES.items():
        machine = machine_of(*load_profile(name))
        best = makespan(machine.play(ideal_plan(machine)))
        yield Verdict(f"{name}, ms", [best * 1e3], max_worst=limit * 1e3)
        fourth = (learn(machine, RUNS, NOISE, seed)[-1].noiseless for seed in range(seeds))
        excess = [seconds / best - 1 for seconds in fourth]
        yield Verdict(f"{name}, run {RUNS} from nothing, excess", excess, max_worst=MAX_EXCESS)
    gaps = []
    for seed in range(seeds * MACHINES_PER_SEED):
        machine = machine_of_seed(seed)
        gaps.append(makespan(machine.play(ideal_plan(machine))) / machine.bound() - 1)
    yield Verdict(f"gap to the bound, {len(gaps)} machines", gaps, max_worst=MAX_WORST)
    yield Verdict("the same, median", [statistics.median(gaps)], max_worst=MAX_MEDIAN)
    yield Verdict("the same, 90th percentile", [_ninetieth(gaps)], max_worst=MAX_90TH)


def _ninetieth(values: Sequence[float]) -> float:
    return sorted(values)[int(0.9 * len(values))]


def machine_of_seed(seed: int) -> SimulatedMachine:
    chance = random.Random(seed)
    cores, gpus = round(_log_uniform(chance, CORES)), chance.randint(*GPUS)
    load = round((cores + gpus) * _log_uniform(chance, LOADS))
    unit, equal = _log_uniform(chance, CORE_UNIT), chance.random() < 0.5
    devices = []
    for number in range(cores):
        curve = Affine(0.0, unit if equal else unit * chance.uniform(1, 2))
        info = DeviceInfo(name=f"cpu{number}", kind="cpu", identity=f"{curve.slope}")
        devices.append(SimulatedDevice(info, DeviceModel(curve, curve), _demand(None)))
    devices += [_gpu(chance, number, unit, load) for number in range(gpus)]
    return SimulatedMachine(load, tuple(devices))


def _gpu(chance: random.Random, number: int, unit: float, load: int) -> SimulatedDevice:
    capacity = round(_log_uniform(chance, (MIN_ROOM, max(load, 2 * MIN_ROOM))))
    compute, copy_in, copy_out = (
        Affine(chance.uniform(*GAPS), slope)
        for slope in (
            unit / _log_uniform(chance, GPU_SPEEDUP),
            UNIT_BYTES / _log_uniform(chance, RATE),
            UNIT_BYTES / _log_uniform(chance, RATE),
        )
    )
    limit = capacity * 2 * UNIT_BYTES
    info = DeviceInfo(
        name=f"gpu{number}", kind="cuda", identity=f"{number}", link=True, memory=limit,
        engines=chance.choice((1, 2)),
    )  # fmt: skip
    model = DeviceModel(PiecewiseLinear(), compute, copy_in, copy_out)
    return SimulatedDevice(info, model, _demand(limit))


def _demand(limit: int | None) -> MemoryDemand:
    return MemoryDemand(input_bytes=UNIT_BYTES, work_bytes=0, output_bytes=UNIT_BYTES, limit=limit)


def _log_uniform(chance: random.Random, ends: tuple[float, float]) -> float:
    return math.exp(chance.uniform(math.log(ends[0]), math.log(ends[1])))
