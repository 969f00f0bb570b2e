"""Measures the time to plan a whole machine: cold, then once more, warm.

Times are processor time, which other programs hardly change.
Every machine is new to the planner, so no plan is cached for it. Then the request is repeated.
Loads of very many small units are also explained; their peak memory is traced in a second pass.
"""

from __future__ import annotations

import random
import statistics
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from benchmarks.results import Bar, Result
from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.planner.explanation import ExplainedJob, explain_job
from hetsched.planner.job_planner import plan_job
from hetsched.planner.totals import PlanCache
from hetsched.simulate.machine import SimulatedDevice, SimulatedMachine
from hetsched.units import format_bytes

CASES = (
    (256, 1, 8, 21), (4096, 1, 16, 15), (100_000, 8, 128, 9), (64, 0, 2, 21),
)  # fmt: skip
"""Units, GPUs, cores, number of machines."""
SLOW_COPIES, SLOWED_LIMIT = (0.8, 0.9), 0.040
"""Parts of their pace that copies keep at once; limit of a plan of the first case with them."""
EQUAL_CORES = {1_000: 0.1, 10_000: 0.5, 100_000: 4.0}
"""Number of equal cores of known speed beside a GPU, 100 units each: seconds for a plan."""
QUICK = 3
COLD = {256: 0.020, 4096: 0.100, 100_000: 1.0}
WARM = {256: 0.001}
WORST = 3
"""Allowed ratio of the longest time to the median's limit."""
UNIT_BYTES, MEMORY = 2 << 20, 1 << 30
LARGE_CASES = (
    (10**7, 4096, 8 << 30),
    (10**7, 16, 8 << 30),
    (10**7, 4096, 1 << 30),
    (10**7, 4096, 2 << 20),
    (10**9, 4096, 8 << 30),
)
"""Units, bytes of a unit, device memory; one GPU and 8 cores."""
LARGE_UNITS, LARGE_MEMORY = 10**7, 1 << 30
"""Units up to which, and bytes of memory from which the limits apply. With a thousandth of that,
memory forces tens of thousands of chunks."""
MAX_PLANNING, MAX_EXPLAINING, MAX_MIB = 0.100, 1.0, 100
"""Seconds and MiB."""
KERNEL_STEPS = 40
"""Steps of a kernel that computes a whole wave at a time."""
SIZES = (1, 2, 4, 8, 16, 33)
"""Shares at which cores were measured."""


def measure(quick: bool) -> Result:
    columns = ("units", "GPUs", "cores", "cold, ms", "worst", "at most", "warm, ms", "worst")
    result = Result("planning_time", "Time to plan a whole machine", columns)
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
    slowed(result, QUICK if quick else CASES[0][3])
    for cores, limit in list(EQUAL_CORES.items())[: 1 if quick else None]:
        twin = core(random.Random(0), 0)
        twin = replace(twin, model=DeviceModel(Affine(0.0, 2.1e-3), Affine(0.0, 2.1e-3)))
        infos = [msgspec.structs.replace(twin.info, name=f"cpu{i}") for i in range(cores)]
        named = [replace(twin, info=info) for info in infos]
        many = SimulatedMachine(100 * len(named), (gpu(random.Random(0), 0), *named))
        seconds = min(once(many, PlanCache()) for _ in range(3))
        result.data.append({"equal_cores": cores, "plan": seconds})
        result.bars.append(Bar(f"{cores} equal cores and a GPU, s", seconds, limit, False))
    for units, unit_bytes, memory in LARGE_CASES:
        for has_steps in (False, True) if memory >= LARGE_MEMORY else (False,):
            large(result, units, unit_bytes, memory, has_steps)
    return result


def slowed(result: Result, machines: int) -> None:
    """Plan the first case where copies in both directions slow each other."""
    load, gpus, cores, _ = CASES[0]
    times = []
    for seed in range(machines):
        subject = machine(load, gpus, cores, seed)
        first, *others = subject.devices
        model = replace(first.model, duplex=SLOW_COPIES)
        slow = replace(subject, devices=(replace(first, model=model), *others))
        times.append(once(slow, PlanCache()))
    result.data.append({"units": load, "duplex": SLOW_COPIES, "cold": times})
    result.bars += bars(f"{load} units, cold, copies slow each other", times, SLOWED_LIMIT)


def large(result: Result, units: int, unit_bytes: int, memory: int, has_steps: bool) -> None:
    """Plan and explain a load of very many units, with a straight or a stepped kernel."""
    subject = large_machine(units, unit_bytes, memory, has_steps)
    planning, explaining = _planned_and_explained(subject)
    tracemalloc.start()
    _planned_and_explained(subject)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    kernel = ", a kernel in steps" if has_steps else ""
    name = f"{units:.0e} units of {unit_bytes} B, {format_bytes(memory)} of memory{kernel}"
    print(f"  {name}: plan {planning * 1e3:.1f} ms, explain {explaining:.2f} s, {peak:.1f} MiB")
    result.data.append(
        {"units": units, "unit_bytes": unit_bytes, "memory": memory, "steps": has_steps,
         "plan": planning, "explain": explaining, "peak_mib": peak}
    )  # fmt: skip
    if units <= LARGE_UNITS and memory >= LARGE_MEMORY:
        result.bars += [
            Bar(f"{name}: plan, ms", planning * 1e3, MAX_PLANNING * 1e3, at_least=False),
            Bar(f"{name}: explain, s", explaining, MAX_EXPLAINING, at_least=False),
            Bar(f"{name}: peak, MiB", peak, MAX_MIB, at_least=False),
        ]


def _planned_and_explained(subject: SimulatedMachine) -> tuple[float, float]:
    """Return the seconds of processor time of a plan, and of its explanation with the text."""
    candidates, cache = subject.candidates(subject.true_models), PlanCache()
    start = time.process_time()
    plan = plan_job(subject.load, candidates, cache=cache)
    planned = time.process_time()
    job = ExplainedJob(None, "planned", "rows", subject.load)
    str(explain_job(job, plan, cache=cache))
    return planned - start, time.process_time() - planned


def bars(what: str, times: Sequence[float], limit: float) -> list[Bar]:
    median, worst = statistics.median(times) * 1e3, max(times) * 1e3
    return [
        Bar(f"{what}, ms, median", median, limit * 1e3, at_least=False),
        Bar(f"{what}, ms, worst", worst, WORST * limit * 1e3, at_least=False),
    ]


def once(subject: SimulatedMachine, cache: PlanCache) -> float:
    """Return seconds of processor time for a plan."""
    candidates = subject.candidates(subject.true_models)
    start = time.process_time()
    plan_job(subject.load, candidates, cache=cache)
    return time.process_time() - start


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
