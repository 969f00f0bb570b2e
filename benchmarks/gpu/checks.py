"""What the GPU and its libraries are; the conformance suites on it; what becomes of faults."""

from __future__ import annotations

import dataclasses
import os
import time
import traceback
from typing import Any

import msgspec
import numpy as np

from benchmarks import machine
from benchmarks.gpu.common import FAKE, MIB, Report, device_info, open_runtime
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.runtime import Copy, Fault, Runtime, translated
from hetsched.devices.base import Device, DeviceFault, DeviceOutOfMemory
from hetsched.devices.cuda.nvml import snapshot
from hetsched.testing import DeviceSuite, RuntimeSuite
from hetsched.testing.simulated import StrictRuntime

LIMIT = 8 << 10
"""Bytes of the GPU that the suite of devices may use."""
WILD = r"""
extern "C" __global__ void wild(float* where) { where[threadIdx.x] = 1.0f; }
"""


def facts(report: Report) -> None:
    """Record GPU, driver and libraries, and the time to open them."""
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
    report.put(device=msgspec.to_builtins(device.describe()))
    if not report.dry:
        calls = runtime.xp.cuda.runtime
        report.put(
            cupy=runtime.xp.__version__,
            runtime_version=calls.runtimeGetVersion(),
            driver_version=calls.driverGetVersion(),
            cufft_version=runtime.xp.cuda.cufft.getVersion(),
        )


def conformance(report: Report) -> None:
    runtime, info = open_runtime(report.dry), device_info(report.dry)

    class OnGpu(DeviceSuite, RuntimeSuite):
        def open_device(self) -> Device:
            return Accelerator(info, runtime, limit=LIMIT)

        def open_runtime(self) -> Runtime:
            return runtime

    suites: tuple[type, ...] = (RuntimeSuite, DeviceSuite)
    wrong = 0
    for suite in suites:
        for name in [name for name in vars(suite) if name.startswith("test_")]:
            problem = ""
            try:
                tested = OnGpu()
                tested.opened = suite.opened.__get__(tested)  # type: ignore[attr-defined, method-assign]
                getattr(tested, name)()
            except Exception:
                problem = traceback.format_exc()
                wrong += 1
            report.row("checks", suite=suite.__name__, name=name, problem=problem)
    report.put(wrong=wrong)
    if wrong:
        raise RuntimeError(f"{wrong} checks failed")


def faults(report: Report) -> None:
    """Check that a faulting kernel is a DeviceFault and out of memory isn't."""
    runtime: Any = open_runtime(report.dry)
    device = Accelerator(device_info(report.dry), runtime)
    try:
        with translated("gpu0", runtime.classify):
            runtime.allocate(runtime.memory().total + MIB)
    except DeviceOutOfMemory as error:
        report.put(out_of_memory=str(error), cause=repr(error.__cause__))
    else:
        raise RuntimeError("an allocation larger than the device's memory succeeded")
    device.prepare(None)
    report.put(usable_after_out_of_memory=True)
    if report.dry:
        runtime = StrictRuntime(faults={0: Fault.STICKY})
        device = Accelerator(FAKE, runtime)
    wild(report, runtime)
    try:
        device.prepare(None)
    except DeviceFault as fault:
        report.put(device_fault=str(fault))
    else:
        raise RuntimeError("the device continued after a sticky fault")
    os.sync()


def wild(report: Report, runtime: Any) -> None:
    """Write to address 64, by a kernel on a GPU; fail with a copy on the simulated runtime."""
    queue, event = runtime.queue(), runtime.event()
    errors = []
    try:
        if runtime.kernels == "cuda":
            kernel = runtime.xp.RawKernel(WILD, "wild")
            queue.launch(lambda: kernel((1,), (32,), (np.intp(64),)), 1)
            queue.record(event)
        else:
            queue.copy_in([Copy(runtime.allocate(64), 0, np.zeros(8))], 1)
        event.wait()
    except Exception as error:
        errors.append([type(error).__name__, runtime.classify(error).name, str(error)])
    report.put(after_wild_write=errors)
