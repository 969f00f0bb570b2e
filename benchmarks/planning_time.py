"""Measures the time to plan a whole machine, both bounds included: cold, then once more, warm.

Every machine is new to the planner, so no plan is cached for it. Then the request is repeated.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence

from benchmarks.results import Bar, Result
from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.planner.analysis.machine_bound import fluid_bound, whole_unit_bound
from hetsched.planner.job_planner import plan_job
from hetsched.planner.plan_cache import PlanCache
from hetsched.simulate.machine import SimulatedDevice, SimulatedMachine

CASES = ((256, 1, 16, 21), (4096, 1, 16, 15), (100_000, 8, 128, 9), (64, 0, 2, 21))
"""Units, GPUs, cores, number of machines."""
QUICK = 3
COLD = {256: 0.020, 4096: 0.100, 100_000: 1.0}
WARM = {256: 0.001}
WORST = 3
"""Allowed ratio of the longest time to the median's limit."""
UNIT_BYTES, MEMORY = 2 << 20, 1 << 30
SIZES = (1, 2, 4, 8, 16, 33)
"""Shares at which cores were measured."""


def measure(quick: bool) -> Result:
    columns = ("units", "GPUs", "cores", "cold, ms", "worst", "at most", "warm, ms", "worst")
    result = Result("planning_time", "Time to plan a whole machine, bounds included", columns)
    once(machine(256, 1, 1, -1), PlanCache())  # the first plan of a process includes imports
    for load, gpus, cores, count in CASES:
        pairs = []
        for seed in range(QUICK if quick else count):
            subject = machine(load, gpus, cores, seed)
            cache = PlanCache()
            pairs.append((once(subject, cache), once(subject, cache)))
        cold, warm = ([pair[i] for pair in pairs] for i in (0, 1))
        limit = COLD.get(load)
        result.rows.append((
            str(load), str(gpus), str(cores), *formatted(cold),
            "" if limit is None else f"{limit * 1e3:g}", *formatted(warm),
        ))  # fmt: skip
        result.data.append(
            {"units": load, "gpus": gpus, "cores": cores, "cold": cold, "warm": warm}
        )
        for name, times, limits in (("cold", cold, COLD), ("warm", warm, WARM)):
            if load in limits:
                result.bars += bars(f"{load} units, {name}", times, limits[load])
        print(f"  {' | '.join(result.rows[-1])}", flush=True)
    return result


def bars(what: str, times: Sequence[float], limit: float) -> list[Bar]:
    median, worst = statistics.median(times) * 1e3, max(times) * 1e3
    return [
        Bar(f"{what}, ms, median", median, limit * 1e3, at_least=False),
        Bar(f"{what}, ms, worst", worst, WORST * limit * 1e3, at_least=False),
    ]


def once(subject: SimulatedMachine, cache: PlanCache) -> float:
    """Return seconds for a plan and both bounds."""
    candidates, parts = subject.candidates(subject.true_models), subject.bound_devices()
    start = time.perf_counter()
    plan_job(subject.load, candidates, cache=cache)
    whole_unit_bound(subject.load, parts, cache=cache)
    fluid_bound(subject.load, parts, cache=cache)
    return time.perf_counter() - start


def formatted(times: Sequence[float]) -> tuple[str, str]:
    return f"{statistics.median(times) * 1e3:.3g}", f"{max(times) * 1e3:.3g}"


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


def core(chance: random.Random, number: int) -> SimulatedDevice:
    """Return a core with a model learnt from a few runs."""
    units = 2.1e-3 * chance.uniform(0.98, 1.02)
    total = PiecewiseLinear(
        [(size, size * units * chance.uniform(0.98, 1.02)) for size in SIZES * 3]
    )
    info = DeviceInfo(name=f"cpu{number}", kind="cpu", identity="c")
    return SimulatedDevice(info, DeviceModel(total, total), demand(None))


def demand(limit: int | None) -> MemoryDemand:
    return MemoryDemand(input_bytes=UNIT_BYTES, work_bytes=0, output_bytes=UNIT_BYTES, limit=limit)
