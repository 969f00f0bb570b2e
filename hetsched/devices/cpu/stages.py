"""Stages of an iterative job computed in the home arrays, by cores, and the clock of a core."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from hetsched.devices.base import DeviceJob, IterativeJob, StageSeconds
from hetsched.errors import InternalError
from hetsched.iterations.home import Part
from hetsched.workload import Arrays, Rows, Stage, StageKernel, Values
from hetsched.workload.protocol import KernelArrays

_Copies = tuple[tuple[Any, Any], ...]


class CoreClock:
    """How long what a core computes lasts: here until its call returns.

    Parameters
    ----------
    has_own_core : bool
        Between computations the thread may look for other devices before it sleeps.
    """

    def __init__(self, has_own_core: bool = True) -> None:
        self.has_own_core = has_own_core

    def begin(self, job: DeviceJob | None, parts: int = 1) -> None:
        """A job starts, each unit of which is computed in equal parts.

        None: the previous one has ended, so drop every reference to it.
        """

    def now(self) -> float:
        """Return seconds on this clock."""
        return time.monotonic()

    def end_of(self, units: int, start: float) -> tuple[float, int]:
        """Return the end of the computation begun at `start` and just completed; 1 if late."""
        return time.monotonic(), 0

    def beside(self) -> CoreClock:
        """Return a clock for a second job on the same core."""
        return CoreClock(self.has_own_core)


class _Views(NamedTuple):
    inputs: Arrays
    outputs: Arrays
    borders: _Copies


class HostStages:
    """An executor that runs kernels on the home arrays, with one thread or the job's threads.

    Parameters
    ----------
    kernels : mapping
        Of each stage, for NumPy's arrays.
    clock : CoreClock
        Says how long a stage took; the stages of an iteration have equal parts of a modelled time.
    """

    def __init__(
        self, job: IterativeJob, kernels: Mapping[str, StageKernel], clock: CoreClock
    ) -> None:
        self._home = job.home
        self._clock = clock
        self.has_own_core = clock.has_own_core
        clock.begin(job.job, max(1, len(job.workload.iteration(job.job.params))))
        self._kernels = kernels
        self._rows = Rows(0, 0, job.load)
        self._views: dict[tuple[Part, str, int], _Views] = {}

    has_own_memory = False

    def begin(self) -> None:
        pass

    def defer(self) -> None:
        raise InternalError("rows are computed in the home arrays")

    def adopt(self, rows: Rows, iteration: int) -> float:
        self._rows = rows
        self._views.clear()
        return 0.0

    def compute(
        self,
        part: Part,
        stage: Stage,
        iteration: int,
        values: Values,
        partials: Mapping[str, Any],
    ) -> StageSeconds:
        views = self._views_of(part, stage, iteration)
        rows = self._rows
        start = self._clock.now()
        self._kernels[stage.name](rows, views.inputs, views.outputs, values, partials)
        for ghost, source in views.borders:
            ghost[...] = source
        end, _ = self._clock.end_of(rows.count, start)
        return StageSeconds(end - start)

    def write_back(self, iteration: int) -> float:
        return 0.0

    def _views_of(self, part: Part, stage: Stage, iteration: int) -> _Views:
        key = (part, stage.name, iteration % 2)
        views = self._views.get(key)
        if views is None:
            own = self._home.views(stage, part, iteration, self._rows)
            inputs, outputs = map(KernelArrays, own)
            borders = tuple(self._home.border_copies(stage, part, iteration, self._rows))
            views = self._views[key] = _Views(inputs, outputs, borders)
        return views
