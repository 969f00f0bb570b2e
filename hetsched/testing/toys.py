"""Two small workloads for devices, and the arrays of a job of one."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hetsched.device_process.arrays import ArenaArray, FileArray
from hetsched.devices.base import DeviceJob, HostArray
from hetsched.memory import MemoryDemand
from hetsched.plans.slots import slot_bytes
from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext, Variant, Workload

WIDTH = 4
"""Numbers of a unit."""

Make = Callable[[Any, int, KernelContext], Kernel]


class ToyParams(msgspec.Struct, frozen=True):
    """Parameters of both."""

    units: int = 40


class Affine(Workload):
    """y = 2 x + 1, in float64; `broken` raises, where it can, when it computes."""

    name = "affine"
    Params = ToyParams

    def __init__(self, make: Make | None = None) -> None:
        self._make = make or _affine

    def load(self, p: Any) -> int:
        return int(p.units)

    def arrays(self, p: Any) -> Sequence[ArraySpec]:
        return (
            ArraySpec("x", "split", (WIDTH,), "float64"),
            ArraySpec("y", "out", (WIDTH,), "float64"),
        )

    def demand(self, p: Any, kind: str) -> MemoryDemand:
        return MemoryDemand(input_bytes=8 * WIDTH, work_bytes=0, output_bytes=8 * WIDTH)

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("plain", "1", self._make), Variant("broken", "1", _broken)]

    def expected(self, inputs: Arrays) -> np.ndarray:
        return np.asarray(2 * inputs["x"] + 1)


def _affine(p: Any, chunk: int, context: KernelContext) -> Kernel:
    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        context.xp.multiply(inputs["x"], 2, out=outputs["y"])
        y = outputs["y"]
        y += 1

    return kernel


def _broken(p: Any, chunk: int, context: KernelContext) -> Kernel:
    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        raise ZeroDivisionError("no such luck")

    return kernel


class Update(Affine):
    """c += a b, with c changed and b whole on every device."""

    name = "update"

    def __init__(self, make: Make | None = None) -> None:
        super().__init__(make or _update)

    def arrays(self, p: Any) -> Sequence[ArraySpec]:
        return (
            ArraySpec("c", "inout", (3,), "float64"),
            ArraySpec("a", "split", (), "float32"),
            ArraySpec("b", "resident", (3,), "float64"),
        )

    def demand(self, p: Any, kind: str) -> MemoryDemand:
        return MemoryDemand(input_bytes=28, work_bytes=0, output_bytes=24, resident_bytes=24)

    def expected(self, inputs: Arrays) -> np.ndarray:
        return np.asarray(inputs["c"] + inputs["a"][:, None] * inputs["b"])


def _update(p: Any, chunk: int, context: KernelContext) -> Kernel:
    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        context.xp.multiply(inputs["a"][:, None], inputs["b"], out=outputs["c"])
        c = outputs["c"]
        c += inputs["c"]

    return kernel


def shared(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return zeros in memory of a mapping, as the arena's are."""
    size = max(1, int(np.prod(shape)) * np.dtype(dtype).itemsize)
    return np.ndarray(shape, dtype, mmap.mmap(-1, size))


def stored(
    spec: ArraySpec, values: np.ndarray, folder: Path | None, order: str = "C"
) -> HostArray:
    """Return a host array of `values`: in memory, or in a file of `folder` behind 7 bytes."""
    if folder is None:
        return ArenaArray(spec, values)
    path = folder / f"{spec.name}{len(list(folder.iterdir()))}"
    path.write_bytes(b"7 bytes" + values.tobytes(order="F" if order == "F" else "C"))
    fd = os.open(path, os.O_RDWR)  # lives as long as the process: a few of them
    return FileArray(spec, fd, values.shape, values.dtype.str, 7, order)


class ToyJob:
    """The arrays of one job: files in `folder` where they are split, or in shared memory.

    `dtypes`: of stored arrays, where it isn't what kernels expect.
    """

    def __init__(
        self, workload: Any, params: Any, folder: Path | None = None,
        dtypes: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.workload, self.params = workload, params
        self.load: int = workload.load(params)
        self.inputs: dict[str, HostArray] = {}
        self.outputs: dict[str, HostArray] = {}
        self.values: dict[str, np.ndarray] = {}
        for spec in workload.arrays(params):
            dtype = (dtypes or {}).get(spec.name, spec.dtype)
            shape, where = spec.shape(self.load), None if spec.is_whole else folder
            if spec.is_input:
                made = np.empty(shape, spec.dtype)
                workload.generate(params, 1, spec.name, 0, made)
                values = shared(shape, dtype)
                values[...] = np.round(made * 100) if np.dtype(dtype).kind in "iu" else made
                self.values[spec.name] = values.astype(spec.dtype)
                self.inputs[spec.name] = stored(spec, values, where)
            if spec.is_output:
                self.outputs[spec.name] = stored(spec, shared(shape, spec.dtype), where)

    def described(
        self, kind: str, chunk: int, slots: int = 2, memory: int | None = None,
        variant: str = "plain",
    ) -> DeviceJob:  # fmt: skip
        demand = self.workload.demand(self.params, kind)
        if memory is None:
            memory = slots * slot_bytes(demand, chunk)
        return DeviceJob(
            self.workload, self.params, variant, self.inputs, self.outputs, chunk, demand,
            memory=memory, slots=slots,
        )  # fmt: skip

    @property
    def is_direct(self) -> bool:
        """Whether chunks are copied from and to the host's memory as they are."""
        split = [*self.inputs.values(), *self.outputs.values()]
        return all(a.spec.is_whole or a.direct(0, 1) is not None for a in split)

    def result(self) -> np.ndarray:
        array = next(iter(self.outputs.values()))
        values = np.empty(array.spec.shape(self.load), array.spec.dtype)
        array.read(0, self.load, values)
        return values

    def is_right(self) -> bool:
        expected = self.workload.expected(self.values)
        return bool(np.allclose(self.result(), expected, rtol=1e-6, atol=1e-6)) and all(
            self.is_unchanged(name) for name in self.inputs if name not in self.outputs
        )

    def is_unchanged(self, name: str) -> bool:
        array, values = self.inputs[name], np.empty_like(self.values[name])
        whole = array.direct(0, 0) if array.spec.is_whole else None
        if whole is None:
            array.read(0, 0 if array.spec.is_whole else self.load, values)
        return np.array_equal(values if whole is None else whole, self.values[name])
