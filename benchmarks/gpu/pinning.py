"""Measures touching, registering and unregistering host memory, cold and repeated, by slice."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.gpu.common import MIB, Report, mapped, open_runtime
from hetsched.devices.accelerator.pinned import default_quota, ranges
from hetsched.devices.accelerator.runtime import Runtime


def measure(report: Report) -> None:
    runtime = open_runtime(report.dry)
    total = 64 * MIB if report.dry else 1024 * MIB
    report.put(quota=default_quota())
    start = time.perf_counter()
    memory = mapped(total)
    report.put(first_touch_seconds_per_gib=per_gib(time.perf_counter() - start, total))
    for slice_mib in (64, 256, 1024):
        for attempt in ("cold", "again"):
            register(report, runtime, memory, slice_mib, attempt)
    if not report.dry:
        allocate(report, runtime, total)


def register(
    report: Report, runtime: Runtime, memory: np.ndarray, slice_mib: int, attempt: str
) -> None:
    total = memory.nbytes
    slices = [memory[first:end] for first, end in ranges(0, total, slice_mib * MIB)]
    longest = 0.0
    start = time.perf_counter()
    for part in slices:
        began = time.perf_counter()
        runtime.pin(part)
        longest = max(longest, time.perf_counter() - began)
    registered = time.perf_counter()
    for part in slices:
        runtime.unpin(part)
    report.row(
        "register",
        slice_mib=slice_mib,
        attempt=attempt,
        seconds_per_gib=per_gib(registered - start, total),
        longest_call=longest,
        unregister_seconds_per_gib=per_gib(time.perf_counter() - registered, total),
    )


def allocate(report: Report, runtime: Runtime, total: int) -> None:
    """Measure cudaHostAlloc, which allocates and pins pages in one call."""
    calls = runtime.xp.cuda.runtime
    start = time.perf_counter()
    address = calls.hostAlloc(total, 1)
    allocated = time.perf_counter()
    calls.freeHost(address)
    report.put(
        host_alloc_seconds_per_gib=per_gib(allocated - start, total),
        host_free_seconds_per_gib=per_gib(time.perf_counter() - allocated, total),
    )


def per_gib(seconds: float, nbytes: int) -> float:
    return seconds * (1024 * MIB) / nbytes
