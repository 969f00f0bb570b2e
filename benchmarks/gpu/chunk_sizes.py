"""The FFT of a chunk by its number of planes: each power of two in it is one call of cuFFT.

The kernel's times are those that its speed function is learnt from.
"""

from __future__ import annotations

import statistics

from benchmarks.gpu.common import Report, device_info, open_runtime
from benchmarks.gpu.ring import Load, passes
from hetsched.devices.accelerator.device import Accelerator

PLANES = (1, 31, 32, 33, 48, 63, 64, 95, 96, 112, 120, 124, 126, 127, 128)
REPEAT = 5


def measure(report: Report) -> None:
    runtime = open_runtime(report.dry)
    device = Accelerator(device_info(report.dry), runtime)
    variant = "cufft" if runtime.kernels == "cuda" else "scipy"
    size = 16 if report.dry else 512
    for planes in PLANES:
        load = Load.make(f"{2 * planes}x{size}x{size}")
        runs = passes(device, load, variant, planes, 1, runtime.kernels)
        next(runs)
        chunks = [times for _ in range(REPEAT) for times in next(runs)[1]]
        compute = statistics.median(t.compute[1] - t.compute[0] for t in chunks)
        report.row(
            "chunks",
            planes=planes,
            calls=planes.bit_count(),
            compute_seconds=compute,
            seconds_per_plane=compute / planes,
            error=load.error(),
        )
