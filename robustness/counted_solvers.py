"""The solvers with a count of the rows that they compute, to measure repeated work.

Each device counts in a file of its own, named in HETSCHED_COUNTERS, before it computes: what a
process computes when it is killed counts, too.
"""

from __future__ import annotations

import dataclasses
import itertools
import mmap
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hetsched_workloads.heat import Heat
from hetsched_workloads.jacobi import Jacobi
from hetsched_workloads.kmeans import KMeans
from hetsched_workloads.lbm import Lbm
from hetsched_workloads.pcg import Pcg

from hetsched.workload import (
    Arrays,
    Iterative,
    KernelContext,
    Rows,
    StageKernel,
    Values,
    Variant,
)

FOLDER = "HETSCHED_COUNTERS"
"""The environment variable with the folder of the counters."""
_COUNT = struct.Struct("q")
_numbers = itertools.count()


def counted_rows(folder: Path) -> int:
    """Return the rows computed in all iterations so far, by all processes."""
    return sum(_COUNT.unpack(path.read_bytes())[0] for path in folder.iterdir())


class Counter:
    """A count in a file, which outlives this process."""

    def __init__(self) -> None:
        path = Path(os.environ[FOLDER]) / f"{os.getpid()}-{next(_numbers)}"
        path.write_bytes(_COUNT.pack(0))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _COUNT.size)
        self._count = 0

    def add(self, rows: int) -> None:
        self._count += rows
        _COUNT.pack_into(self._memory, 0, self._count)


Make = Callable[[Any, int, KernelContext], Mapping[str, StageKernel]]


def _counting(workload: Iterative, make: Make) -> Make:
    """Return `make` with a count of the rows of the first stage of iterations."""

    def counting(p: Any, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
        kernels, counter = dict(make(p, load, context)), Counter()
        name = workload.iteration(p)[0].name
        kernel = kernels[name]

        def count(rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, part: Any) -> None:
            counter.add(rows.count)
            kernel(rows, inputs, outputs, values, part)

        return {**kernels, name: count}

    return counting


def _variants(workload: Iterative, variants: Sequence[Variant]) -> Sequence[Variant]:
    return tuple(
        dataclasses.replace(variant, make=_counting(workload, variant.make))
        for variant in variants
    )


class CountedJacobi(Jacobi):
    def variants(self, kind: str) -> Sequence[Variant]:
        return _variants(self, super().variants(kind))


class CountedPcg(Pcg):
    def variants(self, kind: str) -> Sequence[Variant]:
        return _variants(self, super().variants(kind))


class CountedKMeans(KMeans):
    def variants(self, kind: str) -> Sequence[Variant]:
        return _variants(self, super().variants(kind))


class CountedHeat(Heat):
    def variants(self, kind: str) -> Sequence[Variant]:
        return _variants(self, super().variants(kind))


class CountedLbm(Lbm):
    def variants(self, kind: str) -> Sequence[Variant]:
        return _variants(self, super().variants(kind))
