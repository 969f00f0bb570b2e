"""Jobs that wait for the test, and jobs that fail a number of times."""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from device_toys import Affine, affine

from hetsched.workload import Arrays, Kernel, KernelContext, Variant


class Gate:
    """A file at `path` that is locked until `open`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w")
        self.shut()

    def shut(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def open(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        self._file.close()


class GatedParams(msgspec.Struct, frozen=True):
    """`gate`: a file, which every chunk waits to lock; or "". A `Gate` keeps it locked. Of a pipe,
    one chunk per core passes each time it is opened for writing and closed.

    `failures`: a file with one byte for each attempt that is still to fail; or "".
    `journal`: a file that gets `name` when the job computes; or "".
    """

    units: int = 1
    dtype: str = "float64"
    gate: str = ""
    failures: str = ""
    journal: str = ""
    name: str = ""


class Gated(Affine):
    name = "gated"
    Params = GatedParams

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("numpy", np.__version__, make_gated)]


def make_gated(p: Any, chunk: int, context: KernelContext) -> Kernel:
    kernel = affine(p, chunk, context)

    def gated_kernel(inputs: Arrays, outputs: Arrays) -> None:
        if p.journal:
            with Path(p.journal).open("a") as journal:
                journal.write(f"{p.name} ")
        if p.gate:
            with Path(p.gate).open("rb", buffering=0) as gate:
                fcntl.flock(gate, fcntl.LOCK_EX)
                gate.read(1)
        if p.failures and (text := Path(p.failures).read_text()):
            Path(p.failures).write_text(text[1:])
            raise ZeroDivisionError("one of the failures that were asked for")
        kernel(inputs, outputs)

    return gated_kernel
