"""Runs the toy workloads on a device through the real pipeline, for all device tests."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from device_toys import Affine, AffineParams, Update, UpdateParams

from hetsched.config import Cost, DeviceConfig
from hetsched.device import Chunk, ChunkTimes, DeviceInfo
from hetsched.device_process.arrays import ArenaArray, FileArray
from hetsched.device_process.prepared_job import Pipeline
from hetsched.devices.base import Device, DeviceJob, HostArray
from hetsched.plans.slots import SlotAllocator, slot_bytes
from hetsched.workload import ArraySpec, Workload

MEMORY = 8 << 10

LINKED = DeviceConfig(
    kind="emulated",
    memory=str(MEMORY),
    compute=Cost(gap="10us", unit="20us"),
    h2d=Cost(gap="5us", unit="10us"),
    d2h=Cost(gap="5us", unit="10us"),
)
VIRTUAL = msgspec.structs.replace(LINKED, clock="virtual")


def info_of(config: DeviceConfig) -> DeviceInfo:
    virtual = config.clock == "virtual"
    return DeviceInfo(
        name="emu0",
        kind="emulated",
        identity="test",
        link=config.link,
        memory=config.memory_bytes() if config.link else None,
        engines=config.engines,
        clock="virtual" if virtual else "wall",
    )


def shared(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Zeros in memory of a mapping, as the arena's are."""
    size = max(1, int(np.prod(shape)) * np.dtype(dtype).itemsize)
    return np.ndarray(shape, dtype, mmap.mmap(-1, size))


def stored(
    spec: ArraySpec, values: np.ndarray, folder: Path | None, order: str = "C"
) -> HostArray:
    """A host array that holds `values`: in memory, or in a file of `folder` behind 7 bytes."""
    if folder is None:
        return ArenaArray(spec, values)
    path = folder / f"{spec.name}{len(os.listdir(folder))}"
    path.write_bytes(b"7 bytes" + values.tobytes(order="F" if order == "F" else "C"))
    fd = os.open(path, os.O_RDWR)  # lives as long as the test process: a few of them
    return FileArray(spec, fd, values.shape, values.dtype.str, 7, order)


class Bench:
    """One job of a toy workload and its arrays.

    Parameters
    ----------
    folder : Path or None
        Where split and out arrays are files; None: in memory.
    dtypes : mapping
        Array name -> stored dtype, where it isn't what kernels expect.
    """

    def __init__(
        self,
        workload: Workload | None = None,
        params: Any = None,
        folder: Path | None = None,
        dtypes: dict[str, str] | None = None,
        variant: str = "numpy",
    ) -> None:
        self.workload = workload or Affine()
        self.params = params or self.workload.Params()
        self.variant = variant
        self.inputs: dict[str, HostArray] = {}
        self.outputs: dict[str, HostArray] = {}
        self.values: dict[str, np.ndarray] = {}
        load = self.workload.load(self.params)
        for spec in self.workload.arrays(self.params):
            shape = spec.unit_shape if spec.role == "resident" else (load, *spec.unit_shape)
            dtype = (dtypes or {}).get(spec.name, spec.dtype)
            where = None if spec.role == "resident" else folder
            if spec.is_input:
                made = np.empty(shape, spec.dtype)
                self.workload.generate(self.params, 1, spec.name, 0, made)
                values = shared(shape, dtype)
                values[...] = np.round(made * 100) if np.dtype(dtype).kind == "i" else made
                self.values[spec.name] = values.astype(spec.dtype)
                self.inputs[spec.name] = stored(spec, values, where)
            if spec.is_output:
                self.outputs[spec.name] = stored(spec, shared(shape, spec.dtype), where)

    def job(self, kind: str, chunk: int, slots: int = 2, memory: int | None = None) -> DeviceJob:
        demand = self.workload.demand(self.params, kind)
        need = slots * slot_bytes(demand, chunk)
        return DeviceJob(
            workload=self.workload,
            params=self.params,
            variant=self.variant,
            inputs=self.inputs,
            outputs=self.outputs,
            chunk=chunk,
            demand=demand,
            memory=need if memory is None else memory,
            slots=slots,
        )

    def result(self, name: str) -> np.ndarray:
        array = self.outputs[name]
        load = self.workload.load(self.params)
        values = np.empty((load, *array.spec.unit_shape), array.spec.dtype)
        array.read(0, load, values)
        return values

    def expected(self) -> np.ndarray:
        values = self.values
        if isinstance(self.workload, Update):
            return values["c"] + values["a"][:, None] * values["b"]
        return values["x"] * 2 + 1


def update_bench(units: int = 24) -> Bench:
    return Bench(Update(), UpdateParams(units))


def affine_bench(units: int, **settings: Any) -> Bench:
    return Bench(Affine(), AffineParams(units), **settings)


def cut(sizes: Sequence[int], barriers: Sequence[int] = ()) -> list[Chunk]:
    """Chunks of these sizes, one behind the other."""
    chunks = []
    first = 0
    for i, size in enumerate(sizes):
        chunks.append(Chunk(i, first, size, i in barriers, i == len(sizes) - 1))
        first += size
    return chunks


def drive(
    device: Device,
    job: DeviceJob,
    chunks: Sequence[Chunk],
    ring: bool = True,
    late_by: int = 0,
    sizes: Sequence[int] = (),
) -> dict[int, ChunkTimes]:
    """Prepare and run; the pipeline hears of a chunk only `late_by` steps after the last."""
    device.prepare(job)
    link = device.describe().link
    layout = SlotAllocator(
        lambda units: slot_bytes(job.demand, units),
        job.memory if link else 0,
        job.slots if link else 1,
        ring,
        job.chunk,
        sizes,
    )
    times: dict[int, ChunkTimes] = {}
    pipeline = Pipeline(
        device,
        layout,
        job.slots + 1 if link else 1,
        lambda chunk, found: times.update({chunk.id: found}),
    )
    for chunk in chunks:
        pipeline.add([chunk])
        for _ in range(late_by):
            if not pipeline.expects_more:
                pipeline.step()
    while pipeline.pending:
        pipeline.step()
    return times
