"""Processor time to plan whole machines, and to split loads.

Each machine is new to the planner, so no plan is cached for it; then the request is repeated
(`again`), and the plan explained. Other programs hardly change processor time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import msgspec
import numpy as np

from benchmarks import contest
from benchmarks.contest import Found, Measured, milliseconds
from hetsched.device import DeviceInfo
from hetsched.explain import Explanation
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.partition import geometric
from hetsched.planner.explanation import explain_job
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import JobPlan
from hetsched.planner.totals import PlanCache
from hetsched.simulate.machine import SimulatedDevice, SimulatedMachine

TITLE = "Time to plan"
UNIT_BYTES, MEMORY = 2 << 20, 1 << 30
SIZES = (1, 2, 4, 8, 16, 33)
"""Shares at which cores were measured."""
POINTS, EACH = 30, 100
"""Knots of a curve, and units per device, of `geometric`."""
ROUNDS = 5
COLUMNS = ("case", "plan, ms", "again, ms", "explain, ms")


def measure(case: str, rounds: int) -> contest.Benchmarks:
    count = iter(range(rounds + 1))
    planned(256, 1, 1, -1)  # the first plan of a process includes imports
    return contest.race(case, {case: lambda: Measured(PLANS[case](next(count)))}, rounds)


def planned(
    load: int, gpus: int, cores: int, seed: int, unit_bytes: int = UNIT_BYTES
) -> dict[str, float]:
    return once(machine(load, gpus, cores, seed, unit_bytes))


def equal_cores(count: int, seed: int) -> dict[str, float]:
    """Plan for a GPU and equal cores of known speed, 100 units each."""
    twin = core(random.Random(0), 0)
    twin = replace(twin, model=DeviceModel(Affine(0.0, 2.1e-3), Affine(0.0, 2.1e-3)))
    infos = [msgspec.structs.replace(twin.info, name=f"cpu{i}") for i in range(count)]
    named = [replace(twin, info=info) for info in infos]
    return once(SimulatedMachine(EACH * count, (gpu(random.Random(seed), 0), *named)))


def once(subject: SimulatedMachine) -> dict[str, float]:
    """Plan, plan again and explain."""
    cache, candidates = PlanCache(), subject.candidates()

    def plan() -> JobPlan:
        return plan_job(subject.load, candidates, cache=cache)

    first, again = _seconds(plan), _seconds(plan)
    job, done = Explanation(job=None, state="planned", workload="rows", load=subject.load), plan()
    explained = _seconds(lambda: str(explain_job(job, done, cache=cache)))
    return {"plan": first, "again": again, "explain": explained}


def geometric_split(devices: int, seed: int) -> dict[str, float]:
    models = curves(devices)
    return {"plan": _seconds(lambda: geometric(models, EACH * devices))}


@cache
def curves(devices: int) -> list[PiecewiseLinear]:
    """Fit curves to noisy observations of devices whose speeds differ up to 10x."""
    rng, x = np.random.default_rng(1), np.linspace(10, 5000, POINTS)
    models = []
    for speed in rng.uniform(50, 500, devices):
        noisy = x / (speed * rng.uniform(0.8, 1.2, POINTS))
        models.append(PiecewiseLinear(zip(x.tolist(), noisy.tolist(), strict=True)))
        _ = models[-1].segments
    return models


PLANS: dict[str, Callable[[int], dict[str, float]]] = {
    "256 units, 1 GPU, 8 cores": partial(planned, 256, 1, 8),
    "64 units, 2 cores": partial(planned, 64, 0, 2),
    "4096 units, 1 GPU, 16 cores": partial(planned, 4096, 1, 16),
    "100000 units, 8 GPUs, 128 cores": partial(planned, 100_000, 8, 128),
    "1000 equal cores and a GPU": partial(equal_cores, 1000),
    "10000 equal cores and a GPU": partial(equal_cores, 10_000),
    "100000 equal cores and a GPU": partial(equal_cores, 100_000),
    "10^7 units of 4 KiB, 1 GPU, 8 cores": partial(planned, 10**7, 1, 8, unit_bytes=4096),
    "geometric, 16 devices": partial(geometric_split, 16),
    "geometric, 1000 devices": partial(geometric_split, 1000),
    "geometric, 100000 devices": partial(geometric_split, 100_000),
}
"""Case -> what plans the machine of a seed and returns seconds."""
CASES = tuple(PLANS)
QUICK = CASES[:4]


def row(case: str, found: Found, facts: object) -> tuple[str, ...]:
    times = (found.get(what) for what in ("plan", "again", "explain"))
    return (case, *("" if seconds is None else milliseconds(seconds) for seconds in times))


def _seconds(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def machine(
    load: int, gpus: int, cores: int, seed: int, unit_bytes: int = UNIT_BYTES
) -> SimulatedMachine:
    """Draw GPUs behind PCIe 2 and cores of about 2.1 ms per 2 MiB, all slightly different."""
    chance = random.Random(f"{load} {gpus} {cores} {seed}")
    devices = [gpu(chance, number, unit_bytes) for number in range(gpus)]
    devices += [core(chance, number, unit_bytes) for number in range(cores)]
    return SimulatedMachine(load, tuple(devices))


def gpu(chance: random.Random, number: int, unit_bytes: int = UNIT_BYTES) -> SimulatedDevice:
    slower = chance.uniform(0.7, 1.4)
    phases = [
        Affine(gap, unit_bytes / rate * slower)
        for gap, rate in ((30e-6, 21e9), (10e-6, 6.0e9), (10e-6, 6.5e9))
    ]
    info = DeviceInfo(
        name=f"gpu{number}", kind="cuda", identity="g", link=True, engines=2, memory=MEMORY
    )
    model = DeviceModel(PiecewiseLinear(), *phases)
    return SimulatedDevice(info, model, demand(MEMORY, unit_bytes))


def core(chance: random.Random, number: int, unit_bytes: int = UNIT_BYTES) -> SimulatedDevice:
    """Return a core with a model learnt from a few runs."""
    unit = unit_bytes / 1e9 * chance.uniform(0.98, 1.02)
    total = PiecewiseLinear(
        [(size, size * unit * chance.uniform(0.98, 1.02)) for size in SIZES * 3]
    )
    info = DeviceInfo(name=f"cpu{number}", kind="cpu", identity="c")
    return SimulatedDevice(info, DeviceModel(total, total), demand(None, unit_bytes))


def demand(limit: int | None, unit_bytes: int) -> MemoryDemand:
    return MemoryDemand(input_bytes=unit_bytes, work_bytes=0, output_bytes=unit_bytes, limit=limit)
