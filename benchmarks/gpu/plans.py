"""cuFFT plans: time to make them, assumed and actual work area, time to run."""

from __future__ import annotations

import time
from typing import Any

from hetsched_workloads.fft import Fft, FftParams

from benchmarks.gpu.common import Report, Span, open_runtime

PLANES = (512, 256, 1024, 2048, 480, 509)
BATCHES = (1, 4, 16, 64)
RUNS = 10


def measure(report: Report) -> None:
    if report.dry:
        report.put(skipped="needs cuFFT")
        return
    runtime = open_runtime(report.dry)
    for size in PLANES:
        for batch in BATCHES:
            for dtype in ("complex64", "complex128"):
                report.row("plans", **measure_plan(runtime, size, batch, dtype))


def measure_plan(runtime: Any, size: int, batch: int, dtype: str) -> dict[str, Any]:
    cupy = runtime.xp
    cufft = cupy.cuda.cufft
    params = FftParams(batch=f"{batch}x{size}x{size}", dtype=dtype)
    kind = cufft.CUFFT_C2C if dtype == "complex64" else cufft.CUFFT_Z2Z
    layout = ((size, size), 1, size * size)
    block = runtime.allocate(batch * params.plane_bytes)
    queue = runtime.queue()
    array = queue.array(block, 0, (batch, size, size), dtype)
    array.fill(0)
    free, _ = cupy.cuda.runtime.memGetInfo()
    start = time.perf_counter()
    plan = cufft.PlanNd((size, size), *layout, *layout, kind, batch, "C", 1, None)
    runtime.synchronize()
    plan_seconds = time.perf_counter() - start
    free_after, _ = cupy.cuda.runtime.memGetInfo()
    span = Span(runtime, queue)
    queue.launch(lambda: plan.fft(array, array, cufft.CUFFT_FORWARD), 1)
    span.start()
    start = time.perf_counter()
    for _ in range(RUNS):
        queue.launch(lambda: plan.fft(array, array, cufft.CUFFT_FORWARD), 1)
    host = (time.perf_counter() - start) / RUNS
    span.stop()
    return {
        "size": size,
        "batch": batch,
        "dtype": dtype,
        "make_seconds": plan_seconds,
        "assumed_work_bytes": Fft().demand(params, "cuda").workspace(batch),
        "work_bytes": plan.work_area.mem.size,
        "taken_bytes": free - free_after,
        "seconds": span.seconds() / RUNS,
        "host_seconds": host,
    }
