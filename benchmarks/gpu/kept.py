"""What a device keeps between jobs, how long it takes to release and to make it again."""

from __future__ import annotations

import dataclasses
import time

from benchmarks.gpu.common import Report, device_info, open_runtime
from benchmarks.gpu.ring import Load
from hetsched.devices.accelerator.device import Accelerator


def measure(report: Report) -> None:
    runtime = open_runtime(report.dry)
    device = Accelerator(device_info(report.dry), runtime)
    variant = "cufft" if runtime.kernels == "cuda" else "scipy"
    load = Load.make("16x64x64" if report.dry else "256x512x512")
    job = load.job(variant, 8, 3, runtime.kernels)
    report.put(free_at_start=runtime.memory().free, usable_at_start=device.usable_memory())
    for attempt in ("first", "warm", "after release"):
        if attempt == "after release":
            start = time.perf_counter()
            device.release_memory()
            report.put(
                release_seconds=time.perf_counter() - start,
                after_release=dataclasses.asdict(runtime.memory()),
            )
        start = time.perf_counter()
        device.prepare(job)
        report.row("prepare", attempt=attempt, seconds=time.perf_counter() - start)
        device.prepare(None)
        start = time.perf_counter()
        usable = device.usable_memory()
        report.row(
            "memory",
            attempt=attempt,
            usable=usable,
            read_seconds=time.perf_counter() - start,
            is_short=device.is_memory_short(),
            **dataclasses.asdict(runtime.memory()),
        )
    if device.is_memory_short():
        raise RuntimeError("the device takes its own memory for that of other processes")
