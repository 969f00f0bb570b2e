"""A workload that misbehaves in any way in any step, on all devices or on one core."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from device_toys import Affine, affine

from hetsched.workload import Arrays, Kernel, KernelContext, Variant


class FaultyParams(msgspec.Struct, frozen=True):
    """`fault`: a key of FAULTS, or "" for none.

    `step`: "prepare", "fill", "compute" or "check". `core`: on which; -1: on any. `marker`: a
    file that is created before the fault and prevents it from then on, unless it `recurs`.
    """

    units: int = 40
    dtype: str = "float64"
    fault: str = ""
    step: str = "compute"
    core: int = -1
    marker: str = ""
    recurs: bool = False


def segfault() -> None:
    ctypes.string_at(0)


def recurse() -> None:
    recurse()


def exhaust_memory() -> None:
    raise MemoryError("Unable to allocate 2.00 TiB")


def hang() -> None:
    threading.Event().wait()


def spin() -> None:
    while True:
        pass


def exit_process() -> None:
    os._exit(3)


def kill_process() -> None:
    os.kill(os.getpid(), 9)


def stop_process() -> None:
    os.kill(os.getpid(), 19)
    hang()  # another thread may get the signal, a little later


def raise_exit() -> None:
    raise SystemExit(3)


def interrupt() -> None:
    raise KeyboardInterrupt


def raise_error() -> None:
    raise ValueError("no such instruction")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def raise_unprintable() -> None:
    raise Unprintable


FAULTS: dict[str, Callable[[], None]] = {
    "segfault": segfault,
    "recursion": recurse,
    "memory": exhaust_memory,
    "hang": hang,
    "spin": spin,
    "exit": exit_process,
    "kill": kill_process,
    "stop": stop_process,
    "SystemExit": raise_exit,
    "KeyboardInterrupt": interrupt,
    "error": raise_error,
    "unprintable": raise_unprintable,
}


def misbehave(p: FaultyParams, step: str) -> None:
    """Let the fault happen, if this is its step and its core."""
    if not p.fault or p.step != step or p.core not in (-1, *os.sched_getaffinity(0)):
        return
    if p.marker:
        try:
            os.close(os.open(p.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            if not p.recurs:
                return
    FAULTS[p.fault]()


class Faulty(Affine):
    name = "faulty"
    Params = FaultyParams
    inputs = ("x",)

    def generate(self, p: Any, seed: int, array: str, first: int, out: np.ndarray) -> None:
        misbehave(p, "fill")
        super().generate(p, seed, array, first, out)

    def residual(self, p: Any, inputs: Arrays, outputs: Arrays, seed: int) -> np.ndarray:
        misbehave(p, "check")
        return super().residual(p, inputs, outputs, seed)

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("numpy", np.__version__, make_faulty)]


def make_faulty(p: Any, chunk: int, context: KernelContext) -> Kernel:
    misbehave(p, "prepare")
    kernel = affine(p, chunk, context)

    def faulty_kernel(inputs: Arrays, outputs: Arrays) -> None:
        misbehave(p, "compute")
        kernel(inputs, outputs)

    return faulty_kernel
