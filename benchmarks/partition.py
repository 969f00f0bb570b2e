"""Partitioners: the time to make a split, and whether it is optimal in thousands of cases."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.partition_cases import Case, arbitrary, learnt, monotone, sawtooth
from benchmarks.results import Bar, Result
from benchmarks.stats import Sample
from hetsched.partition import Distribution, geometric, optimal

POINTS, EACH = 30, 100
"""Knots of a curve, and units per device."""
DEVICES = {16: (300, 0.5), 1_000: (50, 5.0), 100_000: (7, 1000.0)}
"""Number of devices: repetitions, and allowed median in milliseconds."""
NEAR_LINEAR = 4.0
"""Allowed ratio of the time per device, 100,000 to 1,000: the models no longer fit in caches."""
MEMORY_GIB = 1.0
SAWTOOTH = (16, 10_000, 7, 100.0)
"""Devices, units, repetitions, allowed milliseconds."""
MONOTONE, ARBITRARY = 10_000, 1_000
EXACT = 1e-12
"""Relative difference up to which makespans count as equal."""


def measure(quick: bool) -> Result:
    columns = ("what", "median (least), ms", "at most, ms")
    result = Result("partition", "Partitioners", columns)
    _many_devices(result, quick)
    devices, load, repeats, allowed = SAWTOOTH
    models = sawtooth(devices, load)
    took = _timed(partial(optimal, models, load), repeats)
    _add(result, f"`optimal`, {devices} devices, {load} units, sawtooth", took, allowed)
    part = 50 if quick else 1
    _exact(result, "`geometric`", geometric, monotone, MONOTONE // part)
    _exact(result, "`optimal`", optimal, arbitrary, ARBITRARY // part)
    return result


def _many_devices(result: Result, quick: bool) -> None:
    """Time splits into whole units for many devices with fitted models."""
    each: dict[int, float] = {}
    for devices, (repeats, allowed) in DEVICES.items():
        if quick and devices > 1_000:
            continue
        models = learnt(devices, POINTS)
        split = partial(geometric, models, EACH * devices)
        took = _timed(split, repeats)
        each[devices] = took.median / devices
        _add(result, f"`geometric`, {devices} devices, {POINTS} points", took, allowed)
        if devices == 100_000:
            peak = _peak(split)
            result.data[-1]["peak_gib"] = peak
            result.bars.append(
                Bar(f"`geometric`, {devices} devices: memory, GiB", peak, MEMORY_GIB, False)
            )
    if not quick:
        ratio = each[100_000] / each[1_000]
        what = "`geometric`: time a device, 100,000 against 1,000"
        result.bars.append(Bar(what, ratio, NEAR_LINEAR, False))


def _exact(
    result: Result,
    name: str,
    method: Callable[..., Distribution],
    make: Callable[[int], Case],
    cases: int,
) -> None:
    """Count the cases, of the first `cases`, whose makespan equals that of exhaustive search."""
    right, worst = 0, 0.0
    for seed in range(cases):
        case = make(seed)
        least = case.least()
        off = abs(method(case.models, case.load, case.limits).makespan / least - 1)
        right += off <= EXACT
        worst = max(worst, off)
    what = f"{name}: splits that are the optimum, of {cases} random cases"
    result.data.append({"what": what, "right": right, "worst": worst})
    result.bars.append(Bar(what, right, cases))


def _timed(call: Callable[[], Any], repeats: int) -> Sample:
    call()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return Sample(tuple(seconds))


def _peak(call: Callable[[], Any]) -> float:
    """Return the peak GiB allocated by `call`, including NumPy's arrays, without the models."""
    gc.collect()
    tracemalloc.start()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 2**30


def _add(result: Result, what: str, took: Sample, allowed: float) -> None:
    result.rows.append((what, took.text(), f"{allowed:g}"))
    result.data.append({"what": what, "seconds": list(took.seconds)})
    result.bars.append(Bar(f"{what}, ms", took.median * 1e3, allowed, False))
