"""Processor time to plan whole machines, and to split loads.

Each machine is new to the planner, so no plan is cached for it; then the request is repeated
(`again`). Other programs hardly change processor time.
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
from hetsched.planner.totals import PlanCache
from hetsched.simulate.machine import SimulatedDevice, SimulatedMachine

TITLE = "Time to plan"
UNIT_BYTES, MEMORY = 2 << 20, 1 << 30
KERNEL_STEPS = 40
"""Steps of a kernel that computes a whole wave at a time."""
SIZES = (1, 2, 4, 8, 16, 33)
"""Shares at which cores were measured."""
POINTS, EACH = 30, 100
"""Knots of a curve, and units per device, of `geometric`."""
ROUNDS = 5
COLUMNS = ("case", "plan, ms", "again, ms", "explain, ms")


def measure(case: str, rounds: int) -> contest.Benchmarks:
    count = iter(range(rounds + 1))
    once(machine(256, 1, 1, -1), PlanCache())  # the first plan of a process includes imports
    return contest.race(case, {case: lambda: Measured(PLANS[case](next(count)))}, rounds)


def planned(load: int, gpus: int, cores: int, seed: int) -> dict[str, float]:
    subject, cache = machine(load, gpus, cores, seed), PlanCache()
    return {"plan": once(subject, cache), "again": once(subject, cache)}


def equal_cores(count: int, seed: int) -> dict[str, float]:
    """Plan for a GPU and equal cores of known speed, 100 units each."""
    twin = core(random.Random(0), 0)
    twin = replace(twin, model=DeviceModel(Affine(0.0, 2.1e-3), Affine(0.0, 2.1e-3)))
    infos = [msgspec.structs.replace(twin.info, name=f"cpu{i}") for i in range(count)]
    named = [replace(twin, info=info) for info in infos]
    subject = SimulatedMachine(EACH * count, (gpu(random.Random(seed), 0), *named))
    return {"plan": once(subject, PlanCache())}


def large(units: int, has_steps: bool, seed: int) -> dict[str, float]:
    """Plan and explain a load of very many units of 4 KiB, with a straight or stepped kernel."""
    subject, cache = large_machine(units, 4096, 8 << 30, has_steps), PlanCache()
    candidates = subject.candidates(subject.true_models)
    start = time.process_time()
    plan = plan_job(subject.load, candidates, cache=cache)
    done = time.process_time()
    job = Explanation(job=None, state="planned", workload="rows", load=subject.load)
    str(explain_job(job, plan, cache=cache))
    return {"plan": done - start, "explain": time.process_time() - done}


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
    "10^7 units, 1 GPU, 8 cores": partial(large, 10**7, False),
    "the same, a kernel in steps": partial(large, 10**7, True),
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


def once(subject: SimulatedMachine, cache: PlanCache) -> float:
    """Return seconds of processor time for a plan."""
    candidates = subject.candidates(subject.true_models)
    return _seconds(lambda: plan_job(subject.load, candidates, cache=cache))


def _seconds(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def machine(load: int, gpus: int, cores: int, seed: int) -> SimulatedMachine:
    """Draw GPUs behind PCIe 2 and cores of about 2.1 ms per unit, all slightly different."""
    chance = random.Random(f"{load} {gpus} {cores} {seed}")
    devices = [gpu(chance, number) for number in range(gpus)]
    return SimulatedMachine(load, (*devices, *(core(chance, number) for number in range(cores))))


def gpu(chance: random.Random, number: int) -> SimulatedDevice:
    slower = chance.uniform(0.7, 1.4)
    phases = (Affine(30e-6, 100e-6 * slower), *(
        Affine(10e-6, UNIT_BYTES / rate * slower) for rate in (6.0e9, 6.5e9)
    ))  # fmt: skip
    info = DeviceInfo(
        name=f"gpu{number}", kind="cuda", identity="g", link=True, engines=2, memory=MEMORY
    )
    return SimulatedDevice(info, DeviceModel(PiecewiseLinear(), *phases), demand(MEMORY))


def large_machine(units: int, unit_bytes: int, memory: int, has_steps: bool) -> SimulatedMachine:
    """Return a GPU behind PCIe 2 and 8 cores of a twentieth of its speed."""
    wave, seconds = memory // unit_bytes // KERNEL_STEPS, unit_bytes / 20e9
    steps = PiecewiseLinear(
        (size, wave * (step + 1) * seconds * (1 + 1e-4 * (size > wave * step + 1)))
        for step in range(KERNEL_STEPS)
        for size in (wave * step + 1, wave * (step + 1))
    )
    plain = gpu(random.Random(0), 0)
    link = [Affine(10e-6, unit_bytes / rate) for rate in (6.0e9, 6.5e9)]
    compute = steps if has_steps else Affine(30e-6, seconds)
    model = DeviceModel(PiecewiseLinear(), compute, *link)
    linked = replace(plain, model=model, demand=demand(memory, unit_bytes))
    cores = []
    for number in range(8):
        total = PiecewiseLinear([(size, size * unit_bytes / 1e9) for size in (100, 10**6)])
        info = DeviceInfo(name=f"cpu{number}", kind="cpu", identity="c")
        model = DeviceModel(total, total)
        cores.append(SimulatedDevice(info, model, demand(None, unit_bytes)))
    return SimulatedMachine(units, (linked, *cores))


def core(chance: random.Random, number: int) -> SimulatedDevice:
    """Return a core with a model learnt from a few runs."""
    units = 2.1e-3 * chance.uniform(0.98, 1.02)
    total = PiecewiseLinear(
        [(size, size * units * chance.uniform(0.98, 1.02)) for size in SIZES * 3]
    )
    info = DeviceInfo(name=f"cpu{number}", kind="cpu", identity="c")
    return SimulatedDevice(info, DeviceModel(total, total), demand(None))


def demand(limit: int | None, unit_bytes: int = UNIT_BYTES) -> MemoryDemand:
    return MemoryDemand(input_bytes=unit_bytes, work_bytes=0, output_bytes=unit_bytes, limit=limit)
