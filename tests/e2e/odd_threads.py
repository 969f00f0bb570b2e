"""A workload whose variant is a hundred times as fast with threads, whatever the machine does."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from odd_variants import Odd, OddParams

from hetsched.workload import Arrays, Kernel, KernelContext, Variant

SECONDS = 0.030
"""Processor time of a unit on one core."""


class ThreadsParams(OddParams, frozen=True):
    """`marker`: a file; a process that computes with threads makes it and dies, if it isn't there.

    `log`: a file that says where each chunk was computed.
    """

    marker: str = ""
    log: str = ""


class OddThreads(Odd):
    name = "odd_threads"
    Params = ThreadsParams

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("spin", "1", spin, threaded=True)] if kind == "cpu" else []


def spin(p: ThreadsParams, chunk: int, context: KernelContext) -> Kernel:
    seconds = SECONDS / 100 if context.threads > 1 else SECONDS

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        if context.threads > 1 and p.marker and not Path(p.marker).exists():
            Path(p.marker).touch()
            os.kill(os.getpid(), 9)
        end = time.thread_time() + seconds * len(inputs["x"])
        while time.thread_time() < end:
            pass
        np.multiply(inputs["x"], 2, out=outputs["y"])
        if p.log:
            with Path(p.log).open("a") as log:
                cores, blas = len(os.sched_getaffinity(0)), os.environ["OPENBLAS_NUM_THREADS"]
                log.write(f"{context.threads} threads on {cores} cores, BLAS has {blas}\n")

    return kernel
