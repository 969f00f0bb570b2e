"""Checks that a faulting kernel is a DeviceFault and out of memory isn't; records the statuses."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from benchmarks.gpu.common import FAKE, MIB, Report, device_info, open_runtime
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.runtime import Copy, Fault, translated
from hetsched.devices.base import DeviceFault, DeviceOutOfMemory
from hetsched.testing.simulated import StrictRuntime

WILD = r"""
extern "C" __global__ void wild(float* where) { where[threadIdx.x] = 1.0f; }
"""


def measure(report: Report) -> None:
    runtime = open_runtime(report.dry)
    device = Accelerator(device_info(report.dry), runtime)
    memory(report, runtime)
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


def memory(report: Report, runtime: Any) -> None:
    """Request more memory than the device has."""
    try:
        with translated("gpu0", runtime.classify):
            runtime.allocate(runtime.memory().total + MIB)
    except DeviceOutOfMemory as error:
        report.put(out_of_memory=str(error), cause=repr(error.__cause__))
    else:
        raise RuntimeError("an allocation larger than the device's memory succeeded")


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
