"""A toy device: every operation is done when its call returns, on the device's arrays."""

from __future__ import annotations

import time

import numpy as np

from hetsched.config import DeviceConfig
from hetsched.device import Chunk, ChunkTimes, DeviceInfo, Slot
from hetsched.devices.base import DeviceJob
from hetsched.workload import KernelContext


def open_device(info: DeviceInfo, config: DeviceConfig) -> ToyDevice:
    return ToyDevice(info)


class ToyDevice:
    """The six methods of `hetsched.devices.base.Device`."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self.job: DeviceJob | None = None
        self.inputs: dict[str, np.ndarray] = {}
        self.outputs: dict[str, np.ndarray] = {}
        self.times: dict[int, ChunkTimes] = {}

    def describe(self) -> DeviceInfo:
        return self.info

    def prepare(self, job: DeviceJob | None) -> None:
        self.job = job
        if job is not None:
            variants = {v.name: v for v in job.workload.variants("toy")}
            context = KernelContext("toy", job.threads, job.cache, np, None, job.say)
            self.kernel = variants[job.variant].make(job.params, job.chunk, context)

    def copy_in(self, chunk: Chunk, slot: Slot) -> None:
        assert self.job is not None
        self.inputs = {}
        for name, array in self.job.inputs.items():
            self.inputs[name] = np.empty((chunk.count, *array.spec.unit_shape), array.spec.dtype)
            array.read(chunk.first, chunk.count, self.inputs[name])

    def compute(self, chunk: Chunk, slot: Slot) -> None:
        assert self.job is not None
        self.outputs = {
            name: np.empty((chunk.count, *array.spec.unit_shape), array.spec.dtype)
            for name, array in self.job.outputs.items()
        }
        start = time.monotonic()
        self.kernel(self.inputs, self.outputs)
        self.times[chunk.id] = ChunkTimes(compute=(start, time.monotonic()))

    def copy_out(self, chunk: Chunk, slot: Slot) -> None:
        assert self.job is not None
        for name, array in self.job.outputs.items():
            array.write(chunk.first, chunk.count, self.outputs[name])

    def wait(self, chunk: Chunk) -> ChunkTimes:
        return self.times.pop(chunk.id)
