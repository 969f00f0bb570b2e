"""The tail of jobs on real cores: a neighbour that comes and goes, and units of unequal cost.

The kernels of the fixed splits and of the ideal run on pinned threads of this process; the
product's, in its device process. Rounds are interleaved, in random order.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hetsched
from benchmarks.results import Bar, Result
from hetsched.config import Config, DeviceConfig
from hetsched.paths import cache_dir
from hetsched.workload import KernelContext, Workload, find

TESTS = Path(__file__).parent.parent / "tests"
IRREGULAR = "irregular_workload:Irregular"
"""The test plug-in: units that cost 1 to 20 times the least."""
ROUNDS, QUICK_ROUNDS = 80, 4
WARM_UP, QUICK_WARM_UP = 40, 4
"""Jobs before the first round: variants are measured, and the variation is learnt."""
ON_SECONDS = OFF_SECONDS = 1.0
"""Of the neighbour."""
SPLITS = tuple(n / 20 for n in range(5, 12))
"""Fixed shares of the core that has the neighbour."""
SHAPE = (64, 512, 512)
UNITS, UNIT_ROUNDS = 512, 12
"""Irregular units, and rounds of the cheapest: some 0.2 s on two cores."""
MAX_OVER_FIXED, MAX_OVER_IDEAL = 1.10, 1.05
NEIGHBOUR = """
import os, sys, time
os.sched_setaffinity(0, [int(sys.argv[1])])
while True:
    end = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end:
        pass
    time.sleep(float(sys.argv[3]))
"""

Job = Callable[[], float]


def measure(quick: bool) -> Result:
    columns = ("case", "hetsched, ms", "compared with, ms", "ratio", "bar")
    result = Result("tail", "The tail of jobs on cores of varying speed", columns)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    warm_up = QUICK_WARM_UP if quick else WARM_UP
    busy_neighbour(result, rounds, warm_up)
    irregular_units(result, rounds, warm_up)
    return result


def busy_neighbour(result: Result, rounds: int, warm_up: int) -> None:
    """Compare mean times with those of the fixed splits by the same variant."""
    cores = sorted(os.sched_getaffinity(0))
    with engine() as local, neighbour(cores[0]):
        x, y = (local.empty(SHAPE, "complex64") for _ in range(2))
        x[...] = np.random.default_rng(1).standard_normal(SHAPE[1:])
        y[...] = 0

        def job() -> float:
            start = time.perf_counter()
            local.submit("fft", x, out=y).result()
            return time.perf_counter() - start

        for _ in range(warm_up):
            job()
        done = local.submit("fft", x, out=y)
        done.result()
        assert done.report is not None
        variant = done.report.devices[0].variant
        kernels = [fft_kernel(variant) for _ in cores]
        contestants: dict[str, Job] = {"hetsched": job}
        for part in SPLITS:
            sizes = split_sizes(SHAPE[0], part, len(cores))
            contestants[f"{part:.2f}"] = fixed(kernels, cores, sizes, x, y)
            contestants[f"{part:.2f}"]()
        times = interleaved(contestants, rounds)
    means = {name: statistics.fmean(values) for name, values in times.items()}
    best = min((name for name in means if name != "hetsched"), key=lambda name: means[name])
    title = f"neighbour 1 s on, 1 s off; best fixed split {best} ({variant})"
    result.data.append({"case": "busy neighbour", "variant": variant, "times": times})
    add(result, title, means["hetsched"], means[best], MAX_OVER_FIXED)


def irregular_units(result: Result, rounds: int, warm_up: int) -> None:
    """Compare with the load over the sum of the cores' speeds, each beside the others' load."""
    cores = sorted(os.sched_getaffinity(0))
    with plug_in(), engine() as local:
        from irregular_workload import costs

        workload = find(IRREGULAR)
        params = workload.Params(units=UNITS, rounds=UNIT_ROUNDS)
        kernels = [make_kernel(workload, params, "numpy") for _ in cores]
        seeds = iter(range(1 << 30))
        y = local.empty((UNITS, *workload.arrays(params)[1].unit_shape), "float64")
        y[...] = 0
        x = local.empty((UNITS,), "float64")

        def job() -> float:
            start = time.perf_counter()
            local.submit(IRREGULAR, x, out=y, units=UNITS, rounds=UNIT_ROUNDS).result()
            return time.perf_counter() - start

        for _ in range(warm_up):
            x[...] = costs(next(seeds), 0, UNITS)
            job()
        measured, ideals = [], []
        for _ in range(rounds):
            x[...] = costs(next(seeds), 0, UNITS)
            measured.append(job())
            ideals.append(ideal_seconds(kernels, cores, x, y.shape))
    result.data.append({"case": "irregular", "times": measured, "ideals": ideals})
    title = f"{UNITS} units whose costs vary 20-fold; ideal"
    ratio = statistics.median(a / b for a, b in zip(measured, ideals, strict=True))
    add(
        result,
        title,
        statistics.median(measured),
        statistics.median(ideals),
        MAX_OVER_IDEAL,
        ratio,
    )


def add(
    result: Result, title: str, ours: float, peer: float, bar: float, ratio: float | None = None
) -> None:
    value = ours / peer if ratio is None else ratio
    row = (title, f"{1e3 * ours:.1f}", f"{1e3 * peer:.1f}", f"{value:.3f}", f"{bar:g}")
    result.rows.append(row)
    result.bars.append(Bar(f"{title}: time over it", value, bar, at_least=False))


@contextlib.contextmanager
def engine() -> Iterator[hetsched.Local]:
    device = DeviceConfig(kind="cpu", team=False)
    with hetsched.Local(Config(device=(device,)), learn=False) as local:
        yield local


@contextlib.contextmanager
def neighbour(core: int) -> Iterator[None]:
    """Run a process that is busy on `core` half of the time."""
    command = [sys.executable, "-c", NEIGHBOUR, str(core), str(ON_SECONDS), str(OFF_SECONDS)]
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def plug_in() -> Iterator[None]:
    """Let this process and device processes import the test plug-in."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(TESTS), before)))
    sys.path.insert(0, str(TESTS))
    try:
        yield
    finally:
        sys.path.remove(str(TESTS))
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def fft_kernel(variant: str) -> Callable[..., None]:
    workload = find("fft")
    params = workload.Params(batch="x".join(map(str, SHAPE)))
    return make_kernel(workload, params, variant)


def make_kernel(workload: Workload, params: Any, variant: str) -> Callable[..., None]:
    (make,) = (v.make for v in workload.variants("cpu") if v.name == variant)
    return make(params, workload.load(params), KernelContext(kind="cpu", cache=str(cache_dir())))


def split_sizes(load: int, first: float, cores: int) -> list[int]:
    """Return the units of each core: the first one's part of the load, the rest evenly."""
    rest = load - round(first * load)
    others = [rest // (cores - 1) + (i < rest % (cores - 1)) for i in range(cores - 1)]
    return [load - rest, *others]


def fixed(
    kernels: Sequence[Callable[..., None]],
    cores: Sequence[int],
    sizes: Sequence[int],
    x: np.ndarray,
    y: np.ndarray,
) -> Job:
    """Return a run of a fixed split, each part on a pinned thread; returns its seconds."""
    firsts = [sum(sizes[:i]) for i in range(len(sizes))]

    def run() -> float:
        def compute(index: int) -> None:
            part = slice(firsts[index], firsts[index] + sizes[index])
            kernels[index]({"x": x[part]}, {"y": y[part]})

        return on_cores(cores, compute)

    return run


def on_cores(cores: Sequence[int], work: Callable[[int], None]) -> float:
    """Run ``work(index)`` on a pinned thread per core; return the seconds of all together."""
    barrier = threading.Barrier(len(cores) + 1)

    def run(index: int) -> None:
        os.sched_setaffinity(0, [cores[index]])  # 0: this thread
        barrier.wait()
        work(index)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(cores))]
    for thread in threads:
        thread.start()
    barrier.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def ideal_seconds(
    kernels: Sequence[Callable[..., None]],
    cores: Sequence[int],
    x: np.ndarray,
    shape: tuple[int, ...],
) -> float:
    """Return the load over the sum of the speeds of the cores, each beside the others' load.

    All cores compute the whole load at once; one that is done goes on until all are.
    """
    seconds = [0.0] * len(cores)
    outputs = [np.zeros(shape) for _ in cores]

    def compute(index: int) -> None:
        def whole_load() -> None:
            kernels[index]({"x": x}, {"y": outputs[index]})

        start = time.perf_counter()
        whole_load()
        seconds[index] = time.perf_counter() - start
        while not all(seconds):
            kernels[index]({"x": x[:8]}, {"y": outputs[index][:8]})

    on_cores(cores, compute)
    return 1 / sum(1 / value for value in seconds)


def interleaved(contestants: dict[str, Job], rounds: int) -> dict[str, list[float]]:
    """Run each contestant once per round, in random order, at random phases of the neighbour."""
    rng = random.Random(1)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name in rng.sample(sorted(contestants), len(contestants)):
            time.sleep(rng.uniform(0.0, 0.1))
            times[name].append(contestants[name]())
    return times
