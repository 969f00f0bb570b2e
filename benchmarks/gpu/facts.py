"""Records GPU, driver and libraries, and the time to open them."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import msgspec

from benchmarks import machine
from benchmarks.gpu.common import Report, device_info, open_runtime
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.cuda.nvml import snapshot

ATTRIBUTES = {
    "async_engines": 40,
    "can_map_host_memory": 19,
    "host_register_supported": 99,
    "host_register_read_only_supported": 113,
    "kernel_exec_timeout": 17,
    "compute_preemption": 90,
    "multiprocessors": 16,
    "l2_bytes": 38,
}
"""Of cudaDeviceAttr."""


def measure(report: Report) -> None:
    state = snapshot()
    report.put(machine=machine.describe(), nvml=dataclasses.asdict(state))
    before = [gpu.memory_free for gpu in state.gpus]
    start = time.perf_counter()
    runtime = open_runtime(report.dry)
    report.put(open_seconds=time.perf_counter() - start, facts=dataclasses.asdict(runtime.facts))
    after = [gpu.memory_free for gpu in snapshot().gpus]
    context_bytes = [b - a for a, b in zip(after, before, strict=False) if a and b]
    report.put(context_and_cublas_bytes=context_bytes)
    device = Accelerator(device_info(report.dry), runtime)
    report.put(device=msgspec.to_builtins(device.describe()), loaded=machine.loaded())
    if not report.dry:
        report.put(**libraries(runtime.xp))


def libraries(cupy: Any) -> dict[str, Any]:
    calls = cupy.cuda.runtime
    return {
        "cupy": cupy.__version__,
        "runtime_version": calls.runtimeGetVersion(),
        "driver_version": calls.driverGetVersion(),
        "cufft_version": cupy.cuda.cufft.getVersion(),
        "attributes": {
            name: calls.deviceGetAttribute(number, 0) for name, number in ATTRIBUTES.items()
        },
    }
