"""Which NVML queries work here and how long they take."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import time
from collections.abc import Callable
from typing import Any

from benchmarks.gpu.common import Report, seconds
from hetsched.devices.cuda.nvml import snapshot, throttled

QUERIES: dict[str, tuple[Any, ...]] = {
    "nvmlDeviceGetMemoryInfo": (),
    "nvmlDeviceGetCurrentClocksEventReasons": (),
    "nvmlDeviceGetTotalEnergyConsumption": (),
    "nvmlDeviceGetPowerUsage": (),
    "nvmlDeviceGetCurrPcieLinkGeneration": (),
    "nvmlDeviceGetMaxPcieLinkGeneration": (),
    "nvmlDeviceGetCurrPcieLinkWidth": (),
    "nvmlDeviceGetPcieThroughput": (0,),
    "nvmlDeviceGetComputeMode": (),
    "nvmlDeviceGetMigMode": (),
    "nvmlDeviceGetEccMode": (),
    "nvmlDeviceGetDisplayActive": (),
    "nvmlDeviceGetPersistenceMode": (),
    "nvmlDeviceGetSupportedEventTypes": (),
    "nvmlDeviceGetComputeRunningProcesses": (),
}


def measure(report: Report) -> None:
    start = time.perf_counter()
    seen = snapshot()
    report.put(snapshot=dataclasses.asdict(seen), snapshot_seconds=time.perf_counter() - start)
    if not seen.gpus:
        if not report.dry:
            raise RuntimeError(seen.problem)
        return
    report.put(throttled=throttled(seen.gpus[0].uuid))
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByUUID(seen.gpus[0].uuid)
    for name, more in QUERIES.items():
        report.row(
            "queries", name=name, **ask(lambda n=name, m=more: getattr(nvml, n)(handle, *m))
        )
    energy(report, nvml, handle)


def ask(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        value = call()
    except Exception as error:
        return {"error": str(error)}
    return {"value": str(value), "seconds": seconds(call)}


def energy(report: Report, nvml: Any, handle: Any) -> None:
    """How often the energy counter moves."""
    try:
        values = []
        end = time.perf_counter() + 1.0
        while time.perf_counter() < end:
            values.append((time.perf_counter(), nvml.nvmlDeviceGetTotalEnergyConsumption(handle)))
    except Exception as error:
        report.put(energy_error=str(error))
        return
    moves = [b[0] for a, b in itertools.pairwise(values) if b[1] != a[1]]
    steps = [b - a for a, b in itertools.pairwise(moves)]
    report.put(energy_step_seconds=steps)
