"""An iterative workload run in this process, one device after the other in each stage.

What devices compute at the same time must be the same as what this computes: it is the reference
for tests of devices, and shows authors of plug-ins that results don't depend on the split.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from hetsched.errors import DataError
from hetsched.iterations.home import (
    Home,
    Part,
    combine,
    compute_stage,
    partials_shape,
    slot_of,
    stages_of,
    state_shape,
)
from hetsched.iterations.saved_state import SavedState, restore_state, state_views
from hetsched.workload import Iterative, KernelContext, Rows, Stage, StageCall, StageKernel, Values
from hetsched.workload.protocol import KernelArrays

POISON = 77
"""What arrays contain before they are written: results must not depend on it."""

Split = Callable[[int], Sequence[int]]
"""Iteration (0: the start) -> rows of each device."""


@dataclass(frozen=True)
class SerialResult:
    """Outputs, iterations, residuals of those that ran here, and the state after `save_after`."""

    outputs: dict[str, np.ndarray]
    iterations: int
    residuals: tuple[float, ...]
    converged: bool
    saved: SavedState | None = None


def run(
    workload: Iterative,
    params: Any,
    inputs: Mapping[str, np.ndarray],
    split: Split | Sequence[int],
    *,
    variant: str | None = None,
    save_after: int | None = None,
    resume: SavedState | None = None,
) -> SerialResult:
    """Run the job as devices with these shares would.

    `inputs`: others are generated with seed 0. `split`: rows of each device. `variant`: of the
    CPU, by default the first one. `save_after`: the iteration whose state is wanted. `resume`:
    where to continue. Raises DataError if the method can't go on or diverges.
    """
    return _SerialRun(workload, params, inputs, split, variant).run(save_after, resume)


class _SerialRun:
    def __init__(
        self,
        workload: Iterative,
        params: Any,
        inputs: Mapping[str, np.ndarray],
        split: Split | Sequence[int],
        variant: str | None,
    ) -> None:
        self._workload, self._params, self._load = workload, params, workload.load(params)
        self._split = split if callable(split) else lambda iteration: split
        slots = len(self._split(0))
        self._arrays = dict(inputs)
        for spec in workload.arrays(params):
            if spec.name not in inputs:
                self._arrays[spec.name] = np.zeros(spec.shape(self._load), spec.dtype)
                if spec.is_input:
                    workload.generate(params, 0, spec.name, 0, self._arrays[spec.name])
        for state in workload.state(params):
            shape = state_shape(state, self._load)
            self._arrays[state.name] = np.full(shape, POISON, state.dtype)
        self._home = Home(workload, params, self._arrays)
        self._reductions = {r.name: r for r in workload.reductions(params)}
        self._partials = {
            name: np.zeros(partials_shape(r, slots), r.dtype)
            for name, r in self._reductions.items()
        }
        variants = workload.variants("cpu")
        chosen = next(v for v in variants if variant in (None, v.name))
        context = KernelContext("cpu", xp=np)
        self._kernels: Mapping[str, StageKernel] = chosen.make(params, self._load, context)

    def run(self, save_after: int | None, resume: SavedState | None) -> SerialResult:
        iteration, values = 0, Values()
        if resume is None:
            self._home.fill_borders()
            for _ in range(self._workload.start_rounds(self._params)):
                values = self._round(Part.START, 0, values)
        else:
            restore_state(self._workload, self._params, self._arrays, resume)
            iteration, values = resume.iteration, Values(resume.values, resume.values)
        saved = self._saved(iteration, values) if save_after == iteration else None
        residuals: list[float] = []
        limit = self._workload.max_iterations(self._params)
        converged = False
        while not converged and iteration < limit:
            iteration += 1
            values = self._round(Part.ITERATION, iteration, Values(values.now, values.now))
            residuals.append(self._workload.residual(self._params, values))
            if math.isinf(residuals[-1]):
                raise DataError(f"iteration {iteration} diverges")
            converged = self._workload.converged(self._params, values)
            if save_after == iteration:
                saved = self._saved(iteration, values)
        self._round(Part.FINISH, iteration, Values(values.now, values.now))
        specs = self._workload.arrays(self._params)
        outputs = {spec.name: self._arrays[spec.name] for spec in specs if spec.is_output}
        return SerialResult(outputs, iteration, tuple(residuals), converged, saved)

    def _saved(self, iteration: int, values: Values) -> SavedState:
        views = state_views(self._workload, self._params, self._arrays, iteration)
        arrays = {name: view.copy() for name, view in views.items()}
        return SavedState(iteration, arrays, dict(values.now))

    def _round(self, part: Part, iteration: int, values: Values) -> Values:
        for stage in stages_of(self._workload, self._params, part):
            slots = []
            bounds = [0, *accumulate(self._split(iteration))]
            for slot, (first, stop) in enumerate(pairwise(bounds)):
                if stop > first:
                    slots.append(slot)
                    rows = Rows(first, stop, self._load)
                    self._compute(stage, part, iteration, slot, rows, values)
            now = dict(values.now)
            for name in stage.reductions:
                reduction = self._reductions[name]
                now[name] = combine(reduction, self._partials[name], iteration, slots)
            values = Values(now, values.before)
        return values

    def _compute(
        self, stage: Stage, part: Part, iteration: int, slot: int, rows: Rows, values: Values
    ) -> None:
        own = self._home.views(stage, part, iteration, rows)
        inputs, outputs = map(KernelArrays, own)
        partials = slot_of({n: self._partials[n] for n in stage.reductions}, iteration, slot)
        call = StageCall(rows, inputs, outputs, values, partials)
        compute_stage(self._kernels[stage.name], call)
        for ghost, source in self._home.border_copies(stage, part, iteration, rows):
            ghost[...] = source
