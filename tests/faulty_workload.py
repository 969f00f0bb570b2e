"""A workload whose kernels misbehave in every way, on all devices or on the core that is named."""

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
    """`fault`: a key of FAULTS, or "". `core`: where; -1: everywhere."""

    units: int = 40
    dtype: str = "float64"
    fault: str = ""
    core: int = -1


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


def raise_exit() -> None:
    raise SystemExit(3)


def interrupt() -> None:
    raise KeyboardInterrupt


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
    "unprintable": raise_unprintable,
}


class Faulty(Affine):
    name = "faulty"
    Params = FaultyParams

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("numpy", np.__version__, make_faulty)]


def make_faulty(p: Any, chunk: int, context: KernelContext) -> Kernel:
    kernel = affine(p, chunk, context)

    def faulty_kernel(inputs: Arrays, outputs: Arrays) -> None:
        if p.fault and p.core in (-1, *os.sched_getaffinity(0)):
            FAULTS[p.fault]()
        kernel(inputs, outputs)

    return faulty_kernel
