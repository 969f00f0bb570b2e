"""How much the GPU's copies and the cores' FFTs slow each other down when both run."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import scipy.fft

from benchmarks.gpu.common import Report, device_info, open_runtime
from benchmarks.gpu.ring import Load, passes
from hetsched.devices.cuda.device import CudaDevice

SECONDS = 4.0


def measure(report: Report) -> None:
    runtime = open_runtime(report.dry)
    device = CudaDevice(device_info(report.dry), runtime)
    variant = "cufft" if runtime.kernels == "cuda" else "scipy"
    load = Load.make("16x64x64" if report.dry else "256x512x512")
    runs = passes(device, load, variant, 2 if report.dry else 8, 3, runtime.kernels)
    planes = np.ones((32, 128, 128) if report.dry else (64, 512, 512), "complex64")
    lasts = 0.2 if report.dry else SECONDS
    next(runs)
    cores(planes, lambda: False)
    alone = ring(runs, lasts)
    solo = cores(planes, until(lasts))
    together: list[float] = []
    stop = threading.Event()
    thread = threading.Thread(
        target=lambda: together.append(cores(planes, lambda: not stop.is_set()))
    )
    thread.start()
    beside = ring(runs, lasts)
    stop.set()
    thread.join()
    report.put(
        ring_seconds_alone=alone,
        ring_seconds_beside=beside,
        ring_slowdown=beside / alone,
        cores_planes_alone=solo,
        cores_planes_beside=together[0],
        cores_slowdown=solo / together[0],
        cores=os.cpu_count(),
    )


def ring(runs, lasts: float) -> float:  # type: ignore[no-untyped-def]
    """Median seconds of a run, over so many seconds."""
    more, walls = until(lasts), []
    while more() or not walls:
        walls.append(next(runs)[0])
    return float(np.median(walls))


def cores(planes: np.ndarray, more) -> float:  # type: ignore[no-untyped-def]
    """Planes a second on all cores, as long as `more` says so."""
    done, start = 0, time.perf_counter()
    while True:
        scipy.fft.fft2(planes, workers=os.cpu_count())
        done += len(planes)
        if not more():
            return done / (time.perf_counter() - start)


def until(lasts: float):  # type: ignore[no-untyped-def]
    end = time.perf_counter() + lasts
    return lambda: time.perf_counter() < end
