"""Checks that a faulting kernel is a DeviceFault and out of memory isn't; records the statuses."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from benchmarks.gpu.common import FAKE, MIB, Report, device_info, open_runtime
from hetsched.devices.base import DeviceFault, DeviceOutOfMemory
from hetsched.devices.cuda.device import CudaDevice
from hetsched.devices.cuda.fake.runtime import FakeRuntime
from hetsched.devices.cuda.faults import classify, status_of, translated

WILD = r"""
extern "C" __global__ void wild(float* where) { where[threadIdx.x] = 1.0f; }
"""


def measure(report: Report) -> None:
    runtime = open_runtime(report.dry)
    device = CudaDevice(device_info(report.dry), runtime)
    memory(report, runtime)
    device.prepare(None)
    report.put(usable_after_out_of_memory=True)
    if report.dry:
        runtime = FakeRuntime(faults={0: 700})
        device = CudaDevice(FAKE, runtime)
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
        with translated("gpu0"):
            runtime.allocate(runtime.facts.total + MIB)
    except DeviceOutOfMemory as error:
        report.put(out_of_memory=str(error), cause=repr(error.__cause__))
    else:
        raise RuntimeError("an allocation larger than the device's memory succeeded")


def wild(report: Report, runtime: Any) -> None:
    """Write to address 64, by a kernel on a GPU and by a copy on the fake."""
    stream, event = runtime.stream(), runtime.event()
    statuses = []
    try:
        if runtime.kernels == "cuda":
            kernel = runtime.xp.RawKernel(WILD, "wild")
            stream.launch(lambda: kernel((1,), (32,), (np.intp(64),)))
            stream.record(event)
        else:
            stream.copy(64, np.zeros(8).ctypes.data, 64, 1)
        event.block()
    except Exception as error:
        statuses.append([*vars(status_of(error)).values(), classify(error).name, str(error)])
    report.put(after_wild_write=statuses, event_status=event.status())
