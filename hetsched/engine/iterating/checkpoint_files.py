"""Copies the state of an iterative job to checkpoints, and back. In threads of the pool."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hetsched.engine.iterating.held_task import HeldTask
from hetsched.engine.threads.step import Step
from hetsched.errors import Cancelled
from hetsched.iterations.home import Part, stages_of
from hetsched.iterations.partials import combine, combined_slot
from hetsched.iterations.saved_state import SavedState, copy_state, restore_state, value_shapes
from hetsched.store.checkpoints.checkpoint_file import (
    check_target,
    load_checkpoint,
    save_checkpoint,
)
from hetsched.store.checkpoints.record import InputIdentity, Problem, data_digest, problem_of
from hetsched.workload import ArraySpec, Iterative

PARTIALS = "partials/"
"""The name of the array with partial results of a reduction begins with this."""


@dataclass
class CheckpointFiles:
    """The checkpoints of one job.

    Attributes
    ----------
    workload, params
        Of the job; `specs`: its inputs and outputs.
    arrays : mapping
        Name -> array in memory: inputs, outputs, state and partials.
    seeds : mapping
        Name of a generated input -> its seed.
    """

    workload: Iterative
    params: Any
    specs: Sequence[ArraySpec]
    arrays: Mapping[str, np.ndarray]
    seeds: Mapping[str, int]
    _copies: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    _sources: dict[str, str] = field(default_factory=dict)

    def copy(self, iteration: int, slots: Sequence[int]) -> SavedState:
        """Copy the state after `iteration`, while no device computes.

        Parameters
        ----------
        slots : sequence of int
            Of the devices with partial results of that iteration, in the order of their rows; ():
            its combined values are in the last slot, as after a checkpoint.
        """
        copies = copy_state(self.workload, self.params, self.arrays, iteration, self._copies)
        return SavedState(iteration, copies, self._values(self.arrays, iteration, slots))

    def _values(
        self, arrays: Mapping[str, np.ndarray], iteration: int, slots: Sequence[int]
    ) -> dict[str, np.ndarray]:
        stages = stages_of(self.workload, self.params, Part.ITERATION)
        repeated = {name for stage in stages for name in stage.reductions}
        values = {}
        needed = value_shapes(self.workload, self.params)
        for reduction in self.workload.reductions(self.params):
            if reduction.name not in needed:
                continue
            partials = arrays[PARTIALS + reduction.name]
            if reduction.name in repeated and slots:
                values[reduction.name] = combine(reduction, partials, iteration, slots)
            else:
                values[reduction.name] = np.array(partials[iteration % 2, combined_slot(partials)])
        return values

    def write(self, path: str, saved: SavedState, residual: float) -> int:
        """Write a copy of the state; return the bytes of its arrays.

        Raises
        ------
        CantCreate, IOFailure, DataError
        """
        problem, limits = self.problem(with_data=True)
        check_target(path, problem)
        save_checkpoint(path, saved, problem, limits=limits, residual=residual, now=time.time())
        return sum(array.nbytes for array in (*saved.arrays.values(), *saved.values.values()))

    def restore(self, path: str) -> tuple[int, float | None]:
        """Fill the job's arrays from a checkpoint; return its iteration and residual.

        Raises
        ------
        InputMissing, DataError, IOFailure
        """
        problem, _ = self.problem(with_data=True)
        record, saved = load_checkpoint(path, self.workload, self.params, problem)
        arrays = self.arrays
        restore_state(self.workload, self.params, arrays, saved)
        for name, value in saved.values.items():
            partials = arrays[PARTIALS + name]
            partials[:, combined_slot(partials)] = value
        return record.iteration, record.residual

    def problem(self, *, with_data: bool) -> tuple[Problem, dict[str, Any]]:
        """Return what the job computes, and its limits; `with_data`: compare inputs, too."""
        load = self.workload.load(self.params)
        inputs = {
            spec.name: InputIdentity(
                spec.shape(load), np.dtype(spec.dtype).name, self._source(spec.name, with_data)
            )
            for spec in self.specs
            if spec.is_input
        }
        return problem_of(self.workload, self.params, inputs)

    def _source(self, name: str, with_data: bool) -> str:
        if name in self.seeds:
            return f"seed:{self.seeds[name]}"
        if with_data and name not in self._sources:
            self._sources[name] = data_digest(self.arrays[name])
        return self._sources.get(name, "")


@dataclass(frozen=True)
class CheckpointWork:
    """A task of the pool: copy the state, say so, and write the copy."""

    files: CheckpointFiles
    path: str
    iteration: int
    slots: Sequence[int]
    residual: float
    copying: HeldTask

    def run(self, step: Step) -> int:
        """Return the bytes written.

        Raises as `CheckpointFiles.write`, and Cancelled: devices went on during the copy.
        """
        step.enter("copying the state for a checkpoint")
        saved = self.copying.run(lambda: self.files.copy(self.iteration, self.slots))
        if self.copying.is_given_up:
            raise Cancelled("given up during the copy")
        step.enter(f"writing {self.path}")
        return self.files.write(self.path, saved, self.residual)
