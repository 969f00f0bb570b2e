"""The solvers with a count of the rows that they compute, to measure repeated work.

Each device counts in a file of its own, named in HETSCHED_COUNTERS, before it computes: what a
process computes when it is killed counts, too. On request they wait before they compute, so that
a job lasts as long on a fast machine.
"""

from __future__ import annotations

import dataclasses
import itertools
import mmap
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hetsched_workloads.heat import Heat
from hetsched_workloads.jacobi import Jacobi
from hetsched_workloads.kmeans import KMeans
from hetsched_workloads.pcg import Pcg

from hetsched.device_process import epochs
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
RARE_SAVES = "HETSCHED_RARE_SAVES"
"""In the environment: devices save their rows as rarely as the bar on repeated work allows."""
PAUSE = "pause"
"""The file in it with the seconds that each call of a kernel waits."""
_COUNT = struct.Struct("q")
_SECONDS = struct.Struct("d")
_numbers = itertools.count()


class Counters:
    """All counters, as the scenario sees them; `folder` is created."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        (folder / PAUSE).write_bytes(_SECONDS.pack(0.0))

    @property
    def environment(self) -> dict[str, str]:
        """What the daemon must have in its environment."""
        return {FOLDER: str(self._folder)}

    def rows(self) -> int:
        """Return the rows computed in all iterations so far, by all processes."""
        paths = self._folder.glob("rows-*")
        none = bytes(_COUNT.size)  # of a process that is just creating its file
        return sum(_COUNT.unpack(path.read_bytes() or none)[0] for path in paths)

    def pause_each(self, seconds: float) -> None:
        """Have every device wait so long in each iteration, from now on; 0: not at all."""
        with (self._folder / PAUSE).open("r+b", buffering=0) as file:  # mapped: never shortened
            file.write(_SECONDS.pack(seconds))


def pause_for(least: float, seconds: float, iterations: int) -> float:
    """Return how long to wait in each iteration of a job of `seconds` to make it last `least`."""
    return max(0.0, least - seconds) / iterations


class Counter:
    """A count in a file, which outlives this process."""

    def __init__(self) -> None:
        folder = Path(os.environ[FOLDER])
        path = folder / f"rows-{os.getpid()}-{next(_numbers)}"
        path.write_bytes(_COUNT.pack(0))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _COUNT.size)
        with (folder / PAUSE).open("rb") as file:
            self._pause = mmap.mmap(file.fileno(), _SECONDS.size, access=mmap.ACCESS_READ)
        self._count = 0

    def add(self, rows: int) -> None:
        self._count += rows
        _COUNT.pack_into(self._memory, 0, self._count)

    def pause(self) -> None:
        (seconds,) = _SECONDS.unpack_from(self._pause)
        if seconds > 0:
            time.sleep(seconds)


Make = Callable[[Any, int, KernelContext], Mapping[str, StageKernel]]


def _counting(workload: Iterative, make: Make) -> Make:
    """Return `make` with a count of the rows of the first stage of iterations."""

    def counting(p: Any, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
        kernels, counter = dict(make(p, load, context)), Counter()
        if RARE_SAVES in os.environ:
            epochs.MAX_TIME = 1e-9
        name = workload.iteration(p)[0].name
        kernel = kernels[name]

        def count(rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, part: Any) -> None:
            counter.pause()
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
