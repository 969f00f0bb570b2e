"""Records which NVML queries work on this host and how long they take."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import time
from collections.abc import Callable
from typing import Any

from benchmarks.gpu.common import Report, seconds
from hetsched.devices.cuda.nvml import snapshot

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
    state = snapshot()
    report.put(snapshot=dataclasses.asdict(state), snapshot_seconds=time.perf_counter() - start)
    if not state.gpus:
        if not report.dry:
            raise RuntimeError(state.problem)
        return
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByUUID(state.gpus[0].uuid)
    for name, arguments in QUERIES.items():
        report.row(
            "queries", name=name, **ask(lambda n=name, a=arguments: getattr(nvml, n)(handle, *a))
        )
    energy(report, nvml, handle)


def ask(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        value = call()
    except Exception as error:
        return {"error": str(error)}
    return {"value": str(value), "seconds": seconds(call)}


def energy(report: Report, nvml: Any, handle: Any) -> None:
    """Measure how often the energy counter changes."""
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
