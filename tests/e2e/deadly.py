"""y = 2 x + 1, whose device process kills itself in a phase of a chunk, once. See `PHASES`.

The phase itself does it: no clock is involved, and no other process.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from hetsched.device_process.pipeline import Pipeline
from hetsched.devices.host_arrays import ArenaArray
from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext, Variant, Workload

WIDTH = 32
PHASES = ("preparing", "copy in", "compute", "copy out", "between", "window")
"""In the middle of a phase; "between": after a chunk was reported; "window": before a chunk begins
while others of the window wait."""


class DeadlyParams(msgspec.Struct, frozen=True):
    """`phase` number `number` of a process is its last, if `folder` has no file "killed" yet.

    `folder` also gets first and count of chunks: in "computed" of those that a kernel began, in
    "reported" of those reported to the engine.
    """

    units: int = 48
    phase: str = ""
    number: int = 1
    folder: str = ""


class Deadly(Workload):
    name = "deadly"
    Params = DeadlyParams
    inputs = ("x",)

    def load(self, p: DeadlyParams) -> int:
        return p.units

    def arrays(self, p: DeadlyParams) -> Sequence[ArraySpec]:
        return (
            ArraySpec("x", "split", (WIDTH,), "float64"),
            ArraySpec("y", "out", (WIDTH,), "float64"),
        )

    def demand(self, p: DeadlyParams, kind: str) -> MemoryDemand:
        return MemoryDemand(input_bytes=WIDTH * 8, work_bytes=0, output_bytes=WIDTH * 8)

    def flops(self, p: DeadlyParams, x: int) -> float:
        return 2.0 * WIDTH * x

    def speed_key(self, p: DeadlyParams) -> str:
        """A separate kind of job each: models of one must not change the chunks of another."""
        return f"{p.phase} {p.number}"

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("numpy", np.__version__, make)] if kind == "cpu" else []

    def generate(self, p: Any, seed: int, array: str, first: int, out: np.ndarray) -> None:
        out[...] = np.arange(first, first + len(out))[:, None]

    def reference(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        return {"y": inputs["x"][i] * 2 + 1}

    def residual(self, p: Any, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        return np.abs(outputs["y"] - inputs["x"] * 2 - 1).max(axis=1) * 1e9


def make(p: DeadlyParams, chunk: int, context: KernelContext) -> Kernel:
    """Only device processes make kernels: so the classes below are changed in those alone."""
    Reaper.arm(p)
    Reaper.reach("preparing")

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        x, half = inputs["x"], len(inputs["x"]) // 2
        if p.folder:
            note(Path(p.folder) / "computed", f"{x[0, 0]:.0f} {len(x)}\n")
        outputs["y"][:half] = x[:half] * 2 + 1
        Reaper.reach("compute")
        outputs["y"][half:] = x[half:] * 2 + 1

    return kernel


class Reaper:
    """Counts the phases of this process, and kills it in the one configured."""

    params: ClassVar[DeadlyParams] = DeadlyParams()
    counts: ClassVar[dict[str, Iterator[int]]] = {}
    hooked: ClassVar[bool] = False

    @classmethod
    def arm(cls, p: DeadlyParams) -> None:
        if p != cls.params:
            cls.params, cls.counts = p, {phase: itertools.count(1) for phase in PHASES}
        if not cls.hooked:
            cls.hooked = True
            hook_copies()
            hook_pipeline()

    @classmethod
    def reach(cls, phase: str) -> None:
        if phase == cls.params.phase and next(cls.counts[phase]) == cls.params.number:
            die_once(Path(cls.params.folder) / "killed")


def hook_copies() -> None:
    """Copies stop half-way."""
    read, write = ArenaArray.read, ArenaArray.write

    def reading(self: ArenaArray, first: int, count: int, into: np.ndarray) -> None:
        read(self, first, count // 2, into[: count // 2])
        Reaper.reach("copy in")
        read(self, first, count, into)

    def writing(self: ArenaArray, first: int, count: int, values: np.ndarray) -> None:
        write(self, first, count // 2, values[: count // 2])
        Reaper.reach("copy out")
        write(self, first, count, values)

    _replace(ArenaArray, read=reading, write=writing)


def hook_pipeline() -> None:
    start, finish = Pipeline._start, Pipeline._finish

    def starting(self: Pipeline, *chunk: Any) -> None:
        if self._waiting:
            Reaper.reach("window")
        start(self, *chunk)

    def finishing(self: Pipeline) -> None:
        chunk = self._in_flight[0]
        finish(self)
        if Reaper.params.folder:
            note(Path(Reaper.params.folder) / "reported", f"{chunk.first} {chunk.count}\n")
        Reaper.reach("between")

    _replace(Pipeline, _start=starting, _finish=finishing)


def _replace(kind: type, **methods: Callable[..., None]) -> None:
    for name, method in methods.items():
        setattr(kind, name, method)


def note(path: Path, line: str) -> None:
    """In one write, so that lines of processes don't mix."""
    with open(path, "ab", buffering=0) as file:
        file.write(line.encode())


def die_once(marker: Path) -> None:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
