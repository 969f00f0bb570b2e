"""A small workload, and a bench that runs it on an accelerator over a simulated runtime."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hetsched.device import Chunk, ChunkTimes, DeviceInfo, Slot
from hetsched.device_process.arrays import ArenaArray, FileArray
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.runtime import Fault
from hetsched.devices.accelerator.simulated import SimulatedError, SimulatedRuntime
from hetsched.devices.base import DeviceJob, HostArray
from hetsched.errors import DataError
from hetsched.memory import MemoryDemand
from hetsched.plans.slots import slot_bytes
from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext, Variant, Workload

INFO = DeviceInfo(name="gpu0", kind="cuda", identity="simulated GPU", link=True)


def simulated_gpu(seed: int) -> tuple[DeviceInfo, Callable[[DeviceInfo], Accelerator]]:
    """A device for `IteratingBench`."""
    return INFO, lambda info: Accelerator(info, SimulatedRuntime(seed=seed))


class AffineParams(msgspec.Struct, frozen=True):
    units: int = 12
    width: int = 64
    in_place: bool = False


SMALL = AffineParams()


class Affine(Workload):
    """y = 2 x + b, b resident: wrong wherever a wait, a slot or an address is."""

    name = "affine"
    Params = AffineParams
    inputs = ("x", "b")

    def load(self, p: AffineParams) -> int:
        return p.units

    def arrays(self, p: AffineParams) -> Sequence[ArraySpec]:
        return (
            ArraySpec("x", "split", (p.width,), "float32"),
            ArraySpec("b", "resident", (p.width,), "float64"),
            ArraySpec("y", "out", (p.width,), "float32"),
        )

    def demand(self, p: AffineParams, kind: str) -> MemoryDemand:
        unit = p.width * 4
        return MemoryDemand(
            input_bytes=unit,
            work_bytes=unit,
            output_bytes=0 if p.in_place else unit,
            resident_bytes=p.width * 8,
            work="max",
        )

    def flops(self, p: AffineParams, x: int) -> float:
        return 2.0 * x * p.width

    def variants(self, kind: str) -> Sequence[Variant]:
        return (
            Variant("plain", "1", make),
            Variant("in place", "1", make, in_place={"y": "x"}),
            Variant("broken", "1", make_broken),
            Variant("greedy", "1", make_greedy),
            Variant("modest", "1", make_modest),
            Variant("fickle", "1", make_fickle),
            Variant("hungry", "1", make_hungry),
            Variant("strict", "1", make_strict),
        )

    def generate(self, p: Any, seed: int, array: str, first: int, out: np.ndarray) -> None:
        out[...] = np.random.default_rng([seed, first]).standard_normal(out.shape)

    def reference(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        return {"y": 2 * inputs["x"][i] + inputs["b"]}

    def residual(self, p: Any, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        worst = np.abs(2 * inputs["x"] + inputs["b"] - outputs["y"]).max(axis=1)
        return np.asarray(worst, np.float64) / 1e-5


class PlainAffine(Affine):
    """Has the variant that works only."""

    name = "plain_affine"

    def variants(self, kind: str) -> Sequence[Variant]:
        return (Variant("plain", "1", make),)


def make(p: AffineParams, chunk: int, context: KernelContext) -> Kernel:
    assert context.allocate is not None
    context.allocate(chunk * p.width * 4)

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        context.xp.multiply(inputs["x"], 2, out=outputs["y"])
        outputs["y"][...] += inputs["b"]

    return kernel


def make_greedy(p: AffineParams, chunk: int, context: KernelContext) -> Kernel:
    assert context.allocate is not None
    context.allocate(1 << 40)
    raise AssertionError("there is no such memory")


def make_modest(p: AffineParams, chunk: int, context: KernelContext) -> Kernel:
    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        context.xp.multiply(inputs["x"], 2, out=outputs["y"])

    return kernel


def make_hungry(p: AffineParams, chunk: int, context: KernelContext) -> Kernel:
    """Keep 2 MiB for plans."""
    assert context.allocate is not None
    plans = context.allocate(2 << 20)

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        assert plans.nbytes
        context.xp.multiply(inputs["x"], 2, out=outputs["y"])

    return kernel


computed_sizes: list[int] = []
"""Sizes of the chunks that kernels of `make_strict` have computed."""


def make_strict(p: AffineParams, chunk: int, context: KernelContext) -> Kernel:
    plain = make(p, chunk, context)

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        computed_sizes.append(len(inputs["x"]))
        if not np.isfinite(inputs["x"]).all():
            raise DataError("x must be finite")
        plain(inputs, outputs)

    return kernel


class FailedPlan(SimulatedError):
    """Like an internal error of cuFFT."""

    def __init__(self) -> None:
        super().__init__(Fault.PLAN, "a plan")


failing_plans: list[Exception] = []
"""What the next calls of `make_fickle` raise."""


def make_fickle(p: AffineParams, chunk: int, context: KernelContext) -> Kernel:
    """Make plans as long as the libraries can."""
    if failing_plans:
        raise failing_plans.pop()
    return make_modest(p, chunk, context)


def make_broken(p: AffineParams, chunk: int, context: KernelContext) -> Kernel:
    raise ValueError("not to be made")


class Bench:
    """A job's arrays on the host, and a device that runs it. `place`: "arena", "file", "plain"."""

    def __init__(
        self,
        runtime: SimulatedRuntime,
        place: str = "arena",
        folder: Path | None = None,
        params: AffineParams = SMALL,
        chunk: int = 2,
        slots: int = 3,
        **settings: Any,
    ) -> None:
        self.runtime, self.params, self.chunk, self.slots = runtime, params, chunk, slots
        self.device = Accelerator(INFO, runtime, **settings)
        specs = {spec.name: spec for spec in Affine().arrays(params)}
        rng = np.random.default_rng(0)
        self.x = shared((params.units, params.width), "float32")
        self.b = shared((params.width,), "float64")
        self.y = shared((params.units, params.width), "float32")
        self.x[...] = rng.standard_normal(self.x.shape)
        self.b[...] = rng.standard_normal(self.b.shape)
        self.y[...] = np.nan
        self._files: list[Any] = []
        self.hosts: dict[str, HostArray] = {"b": ArenaArray(specs["b"], self.b)}
        for name in ("x", "y"):
            self.hosts[name] = self._host(specs[name], getattr(self, name), place, folder)

    def job(self, say: Callable[[str], None] = lambda text: None) -> DeviceJob:
        demand = Affine().demand(self.params, "cuda")
        return DeviceJob(
            workload=Affine(),
            params=self.params,
            variant="in place" if self.params.in_place else "plain",
            inputs={name: self.hosts[name] for name in ("x", "b")},
            outputs={"y": self.hosts["y"]},
            chunk=self.chunk,
            demand=demand,
            memory=self.slots * slot_bytes(demand, self.chunk),
            slots=self.slots,
            say=say,
        )

    def run(
        self,
        window: int | None = None,
        barriers: int = 0,
        say: Callable[[str], None] = lambda text: None,
    ) -> list[ChunkTimes]:
        """Prepare, then run the whole load in a ring; `barriers`: every so many chunks."""
        job = self.job(say)
        self.device.prepare(job)
        stride = slot_bytes(job.demand, self.chunk)
        window = self.slots + 1 if window is None else window
        waiting: list[Chunk] = []
        times: list[ChunkTimes] = []
        for number, first in enumerate(range(0, self.params.units, self.chunk)):
            count = min(self.chunk, self.params.units - first)
            barrier = bool(barriers and number % barriers == 0)
            chunk = Chunk(number, first, count, barrier=barrier)
            if len(waiting) == window:
                times.append(self.device.wait(waiting.pop(0)))
            index = number % self.slots
            slot = Slot(index, index * stride)
            self.device.copy_in(chunk, slot)
            self.device.compute(chunk, slot)
            self.device.copy_out(chunk, slot)
            waiting.append(chunk)
        return times + [self.device.wait(chunk) for chunk in waiting]

    def is_right(self) -> bool:
        """Whether the output on the host is correct."""
        for file in self._files:
            file.flush()
        if self._files:
            self.y[...] = np.fromfile(self._files[-1].name, "float32").reshape(self.y.shape)
        # x is float32: 2x is exact, and the sum is rounded once or twice
        return bool(np.allclose(self.y, 2 * self.x + self.b, rtol=1e-5, atol=1e-5))

    def close(self) -> None:
        self.device.close()
        for file in self._files:
            file.close()

    def _host(
        self, spec: ArraySpec, array: np.ndarray, place: str, folder: Path | None
    ) -> HostArray:
        if place == "arena":
            return ArenaArray(spec, array)
        if place == "plain":
            array = np.array(array)
            setattr(self, spec.name, array)
            return ArenaArray(spec, array)
        assert folder is not None
        array.tofile(folder / spec.name)
        self._files.append((folder / spec.name).open("r+b"))
        return FileArray(spec, self._files[-1].fileno(), array.shape, "float32")


def shared(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array in a mapping of its own, like one in the arena."""
    mapping = mmap.mmap(-1, max(1, int(np.prod(shape)) * np.dtype(dtype).itemsize))
    return np.frombuffer(mapping, dtype, int(np.prod(shape))).reshape(shape)
