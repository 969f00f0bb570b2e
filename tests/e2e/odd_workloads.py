"""Toys that ask much of an engine. Loaded by device processes, too."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from toys import Toy, ToyParams, is_first, make_toy

from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, Kernel, KernelContext, Variant

ODD_BYTES = 3000
"""Work area of each unit of an odd batch."""
SECONDS = 0.030
"""Processor time of a unit on one core."""


class SoundParams(ToyParams, frozen=True):
    """`sound`: whether any variant works."""

    sound: bool = True


class OddVariants(Toy):
    """Whose first variants can't be made."""

    name = "odd_variants"
    Params = SoundParams

    def variants(self, kind: str) -> Sequence[Variant]:
        makers = {"missing": missing, "broken": broken, "sound": sound}
        return [Variant(name, "1", make) for name, make in makers.items()]


def missing(p: Any, chunk: int, context: KernelContext) -> Kernel:
    raise ImportError("libodd.so: no such file")


def broken(p: Any, chunk: int, context: KernelContext) -> Kernel:
    raise OSError("libodd.so: wrong format")


def sound(p: Any, chunk: int, context: KernelContext) -> Kernel:
    if not p.sound:
        raise RuntimeError("bound to another library")
    return make_toy(p, chunk, context)


class OddThreads(Toy):
    """A hundred times as fast with threads, whatever the machine does.

    `marker`: a process with threads dies if it is the one that makes this file. `log`: says where
    each chunk was computed.
    """

    name = "odd_threads"

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("spin", "1", spin, threaded=True)] if kind == "cpu" else []


def spin(p: Any, chunk: int, context: KernelContext) -> Kernel:
    seconds = SECONDS / 100 if context.threads > 1 else SECONDS
    compute = make_toy(msgspec.structs.replace(p, log=""), chunk, context)

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        if context.threads > 1 and p.marker and is_first(p.marker):
            os.kill(os.getpid(), 9)
        end = time.thread_time() + seconds * len(inputs["x"])
        while time.thread_time() < end:
            pass
        compute(inputs, outputs)
        if p.log:
            with Path(p.log).open("a") as log:
                cores, blas = len(os.sched_getaffinity(0)), os.environ["OPENBLAS_NUM_THREADS"]
                log.write(f"{context.threads} threads on {cores} cores, BLAS has {blas}\n")

    return kernel


class SharedParams(ToyParams, frozen=True):
    """`shared`: whether all chunks on a device use one work area."""

    shared: bool = False


class OddBatches(Toy):
    """Whose odd batches need a larger work area."""

    name = "odd_batches"
    Params = SharedParams

    def demand(self, p: Any, kind: str) -> MemoryDemand:
        plain = super().demand(p, kind)
        return MemoryDemand(
            input_bytes=plain.input_bytes,
            work_bytes=lambda units: ODD_BYTES * units if units % 2 else 0,
            output_bytes=plain.output_bytes,
            work="max" if p.shared else "sum",
        )
