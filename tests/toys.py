"""Plug-ins of these tests: jobs that wait for the test, misbehave, or iterate."""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import diffusing_workload
import msgspec
import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.workload import (
    Arrays,
    ArraySpec,
    Kernel,
    KernelContext,
    StageCall,
    StageKernel,
    Variant,
    Workload,
)

WIDTH = 4


class ToyParams(msgspec.Struct, frozen=True):
    """`unwritten`: units of each chunk that the kernel leaves as they are.

    `gate`: a file that each chunk waits to lock, after it has made `gate`.PID; or "".

    `log`: a file that gets `name` when a chunk begins; or "". `failures`: a file with a byte for
    each attempt that is to fail; or "". `fault`: a key of FAULTS, or "spoil",
    "rebind", "update" or "chatter".
    It happens in one `step` of a job ("prepare", "fill", "compute" or "check"), on one `core` or
    on any (-1), and if there is a `marker`, a file that it makes first, only once, unless it
    `recurs`.
    """

    units: int = 40
    dtype: str = "float64"
    gate: str = ""
    log: str = ""
    name: str = ""
    failures: str = ""
    fault: str = ""
    step: str = "compute"
    core: int = -1
    marker: str = ""
    recurs: bool = False
    milliseconds: int = 0
    unwritten: int = 0


class Toy(Workload):
    """y = 2 x + 1 on units of four numbers."""

    name = "toy"
    Params = ToyParams
    inputs = ("x",)

    def load(self, p: Any) -> int:
        return int(p.units)

    def arrays(self, p: Any) -> Sequence[ArraySpec]:
        return (
            ArraySpec("x", "split", (WIDTH,), p.dtype),
            ArraySpec("y", "out", (WIDTH,), p.dtype),
        )

    def demand(self, p: Any, kind: str) -> MemoryDemand:
        size = WIDTH * np.dtype(p.dtype).itemsize
        return MemoryDemand(input_bytes=size, work_bytes=0, output_bytes=size)

    def flops(self, p: Any, x: int) -> float:
        return 2.0 * WIDTH * x

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("numpy", "1", make_toy)]

    def generate(self, p: Any, seed: int, array: str, first: int, out: np.ndarray) -> None:
        misbehave(p, "fill")
        for i, unit in enumerate(out, first):
            unit[...] = np.random.default_rng([seed, i]).standard_normal(unit.shape)

    def reference(self, p: Any, inputs: Arrays, i: int) -> Mapping[str, np.ndarray]:
        return {"y": inputs["x"][i] * 2.0 + 1.0}

    def residual(self, p: Any, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        misbehave(p, "check")
        wrong = outputs["y"].sum(axis=1) - 2.0 * inputs["x"].sum(axis=1) - WIDTH
        return np.abs(wrong) * 1e6


class Faulty(Toy):
    """The same under a name of its own: devices are left out of kinds of jobs that fail there."""

    name = "faulty"


class Paired(Toy):
    """It has another output, z = -x."""

    name = "paired"

    def arrays(self, p: Any) -> Sequence[ArraySpec]:
        return (*super().arrays(p), ArraySpec("z", "out", (WIDTH,), p.dtype))

    def variants(self, kind: str) -> Sequence[Variant]:
        def make(p: Any, chunk: int, context: KernelContext) -> Kernel:
            kernel = make_toy(p, chunk, context)

            def both(inputs: Arrays, outputs: Arrays) -> None:
                kernel(inputs, outputs)
                np.negative(inputs["x"], out=outputs["z"])

            return both

        return [Variant("numpy", "1", make)]


class Slow(Toy):
    """The same, but each unit takes `milliseconds` more."""

    name = "slow"


class Hesitant(Toy):
    """The same, but its check waits for the gate, too."""

    name = "hesitant"

    def load(self, p: Any) -> int:
        pass_gate(p.gate)
        return int(p.units)


class Hanging(Toy):
    """Its check never ends."""

    name = "hanging"

    def infer(self, explicit: Mapping[str, Any], arrays: Any) -> Any:
        hang()


class Deadly(Toy):
    """Its planning ends the daemon."""

    name = "deadly"

    def demand(self, p: Any, kind: str) -> MemoryDemand:
        if threading.current_thread().name == "planner":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().demand(p, kind)


def make_toy(p: Any, chunk: int, context: KernelContext) -> Kernel:
    misbehave(p, "prepare")
    if p.fault == "chatter":
        context.say("no end " * 1_000_000)
        time.sleep(0.05)
        context.say("\ud800")
        time.sleep(0.05)
        context.say(None)  # type: ignore[arg-type]

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        if p.log:
            with Path(p.log).open("a") as log:
                log.write(f"{p.name} ")
        if p.gate:
            pass_gate(p.gate)
        if p.failures and (text := Path(p.failures).read_text()):
            Path(p.failures).write_text(text[1:])
            raise ZeroDivisionError("one of the failures that were asked for")
        time.sleep(p.milliseconds / 1000 * len(inputs["x"]))
        y = outputs["y"][p.unwritten :]
        np.multiply(inputs["x"][p.unwritten :], 2, out=y)
        y += 1
        if p.fault == "spoil":
            outputs["y"][-1, -1] += 1
        if p.fault == "rebind":
            outputs["y"] = outputs["y"] * 2
        if p.fault == "update":
            outputs.update(y=outputs["y"] * 2)  # type: ignore[attr-defined]
        misbehave(p, "compute")

    return kernel


def pass_gate(path: str) -> None:
    Path(f"{path}.{os.getpid()}").touch()
    with Path(path).open("rb") as gate:
        fcntl.flock(gate, fcntl.LOCK_SH)


def misbehave(p: Any, step: str) -> None:
    if p.step != step or p.fault not in FAULTS or p.core not in (-1, *os.sched_getaffinity(0)):
        return
    if not p.marker or is_first(p.marker) or p.recurs:
        FAULTS[p.fault]()


def is_first(marker: str) -> bool:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def hang() -> None:
    threading.Event().wait()


def spin() -> None:
    while True:
        pass


def stop() -> None:
    os.kill(os.getpid(), 19)
    hang()  # another thread may get the signal, a little later


def crash() -> None:
    ctypes.string_at(0)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def raising(error: BaseException) -> Callable[[], None]:
    def fault() -> None:
        raise error

    return fault


def recurse() -> None:
    recurse()


FAULTS: dict[str, Callable[[], None]] = {
    "kill": lambda: os.kill(os.getpid(), 9),
    "exit": lambda: os._exit(3),
    "segfault": crash,
    "hang": hang,
    "spin": spin,
    "stop": stop,
    "error": raising(ValueError("no such instruction")),
    "SystemExit": raising(SystemExit(3)),
    "KeyboardInterrupt": raising(KeyboardInterrupt()),
    "memory": raising(MemoryError("Unable to allocate 2.00 TiB")),
    "recursion": recurse,
    "unprintable": raising(Unprintable()),
}


class DiffusionParams(diffusing_workload.DiffusionParams, frozen=True):
    """`slow_until`: meanwhile iterations make `slow_until`.begun.

    `die_at`: an iteration of the process of the last rows at which that kills itself, if it is the
    one that makes the file `marker`; 0: none.

    `counts`: a file; an iteration adds a byte for each row to `counts`.PID when it begins; or "".

    `unwritten`: the last stage writes no result.
    """

    border: str = "reflect"
    die_at: int = 0
    marker: str = ""
    counts: str = ""
    unwritten: bool = False


class Diffusion(diffusing_workload.Diffusion):
    Params = DiffusionParams
    limits = (*diffusing_workload.Diffusion.limits, "die_at", "marker", "counts")

    def variants(self, kind: str) -> Sequence[Variant]:
        return (Variant("numpy", "1", make_diffusion),)


def make_diffusion(p: Any, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    kernels = dict(diffusing_workload.make(p, load, context))
    iterations = itertools.count(1)

    def smooth(call: StageCall) -> None:
        rows = call.rows
        if p.counts:
            with open(f"{p.counts}.{os.getpid()}", "ab", buffering=0) as file:
                file.write(bytes(rows.count))
        if next(iterations) == p.die_at and rows.is_last and is_first(p.marker):
            os.kill(os.getpid(), 9)
        if p.slow_until and not Path(p.slow_until).exists():
            Path(f"{p.slow_until}.begun").touch()
        kernels["smooth"](call)

    def result(call: StageCall) -> None:
        if not p.unwritten:
            kernels["result"](call)

    return {**kernels, "smooth": smooth, "result": result}


def diffused(x: np.ndarray, iterations: int) -> np.ndarray:
    """Return the result for `x`, computed in one piece."""
    return diffusing_workload.diffused(DiffusionParams(iterations=iterations), x)[0]
