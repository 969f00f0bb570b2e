"""Measures how much the GPU's copies and the cores' FFTs slow each other down."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import scipy.fft

from benchmarks.gpu.common import Report, device_info, open_runtime
from benchmarks.gpu.ring import Load, passes
from hetsched.devices.accelerator.device import Accelerator

SECONDS = 4.0


def measure(report: Report) -> None:
    runtime = open_runtime(report.dry)
    device = Accelerator(device_info(report.dry), runtime)
    variant = "cufft" if runtime.kernels == "cuda" else "scipy"
    load = Load.make("16x64x64" if report.dry else "256x512x512")
    runs = passes(device, load, variant, 2 if report.dry else 8, 3, runtime.kernels)
    planes = np.ones((32, 128, 128) if report.dry else (64, 512, 512), "complex64")
    duration = 0.2 if report.dry else SECONDS
    next(runs)
    cores(planes, lambda: False)
    ring_alone = ring(runs, duration)
    cores_alone = cores(planes, until(duration))
    shared_rates: list[float] = []
    stop = threading.Event()
    thread = threading.Thread(
        target=lambda: shared_rates.append(cores(planes, lambda: not stop.is_set()))
    )
    thread.start()
    ring_shared = ring(runs, duration)
    stop.set()
    thread.join()
    report.put(
        ring_seconds_alone=ring_alone,
        ring_seconds_beside=ring_shared,
        ring_slowdown=ring_shared / ring_alone,
        cores_planes_alone=cores_alone,
        cores_planes_beside=shared_rates[0],
        cores_slowdown=cores_alone / shared_rates[0],
        cores=os.cpu_count(),
    )


def ring(runs, duration: float) -> float:  # type: ignore[no-untyped-def]
    """Return the median seconds of a run, over `duration` seconds."""
    is_running, walls = until(duration), []
    while is_running() or not walls:
        walls.append(next(runs)[0])
    return float(np.median(walls))


def cores(planes: np.ndarray, is_running) -> float:  # type: ignore[no-untyped-def]
    """Return planes per second on all cores, until `is_running` returns False."""
    done, start = 0, time.perf_counter()
    while True:
        scipy.fft.fft2(planes, workers=os.cpu_count())
        done += len(planes)
        if not is_running():
            return done / (time.perf_counter() - start)


def until(duration: float):  # type: ignore[no-untyped-def]
    end = time.perf_counter() + duration
    return lambda: time.perf_counter() < end
