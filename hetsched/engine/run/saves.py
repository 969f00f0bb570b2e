"""The checkpoints of an iterative job, and the one that it continues from.

Devices save the state in spare arrays when the engine asks for it, between two iterations; a
thread writes these to a file while iterations go on. Those arrays also are what devices go back to
when one with its own memory is lost, and nothing else is saved there until the file is complete.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hetsched.engine.context import EngineContext
from hetsched.engine.run.arrays import MIN_RATE, IterativeArrays
from hetsched.engine.run.epochs import IterationState
from hetsched.engine.threads import Step
from hetsched.errors import CantCreate, HetschedError, TryAgain
from hetsched.explain.iterations.records import WrittenCheckpoint
from hetsched.iterations.home import Part, stages_of
from hetsched.iterations.partials import combine, combined_slot
from hetsched.iterations.saved_state import (
    SavedState,
    restore_state,
    saved_names,
    state_views,
    value_shapes,
)
from hetsched.job import CHECKPOINT_SECONDS, JobSpec
from hetsched.store.checkpoint import (
    Problem,
    check_target,
    data_digest,
    load_checkpoint,
    problem_of,
    save_checkpoint,
)
from hetsched.workload import ArraySpec, Iterative

log = logging.getLogger(__name__)

PARTIALS = "partials/"
"""The name of the array with partial results of a reduction begins with this."""
SAVED = "saved/"
"""The name of the array in which devices save another one begins with this."""
NO_CHECKPOINT = "no checkpoint after iteration"


class Saves:
    """The checkpoints of one job, one after the other. On the loop's thread.

    From save to save it takes `every` seconds, or, on a slow disk, twice as long as the writing.
    """

    def __init__(
        self,
        spec: JobSpec,
        arrays: IterativeArrays,
        context: EngineContext,
        iterations: IterationState,
        replace_note: Callable[[str, str], None],
    ) -> None:
        self._spec = spec
        self._arrays = arrays
        self._context = context
        self._iterations = iterations
        self._replace_note = replace_note
        self._every = CHECKPOINT_SECONDS if spec.every is None else spec.every
        self._due = math.inf
        self._saved_at = 0.0
        # The iteration of the last save, or of the checkpoint that was continued; -1: none
        self._saved = -1
        self.is_restored = False
        self.is_writing = False  # A thread reads what devices have saved, which must stay as it is
        # The iteration of the last complete file of this job; -1: none
        self.written_iteration = -1
        self._is_requested = False
        self._is_closed = False
        self._state: StateFiles | None = None
        self._written: asyncio.Future[None] | None = None
        self._saving_seconds = 0.0

    # ---- continuing

    async def restore(self) -> None:
        """Fill the job's arrays from the checkpoint that it continues, once."""
        path, iterations = self._spec.resume, self._iterations
        if not path or self.is_restored or iterations.finished >= 0:
            return

        files = self._files()

        def read(step: Step) -> tuple[int, float | None]:
            step.enter(f"reading {path}")
            return files.restore(path)

        iteration, residual = await self._context.disk.call(
            read, release=self._arrays.retain_all(), deadline=self._deadline
        )
        self.is_restored = True
        iterations.begun_at = time.monotonic()
        iterations.continue_after(iteration, residual)
        self._saved = iteration
        text = f"continued after iteration {iteration}, from {path}"
        self._replace_note("continued after", text)

    @property
    def can_save(self) -> bool:
        """Whether the job has checkpoints, and its state isn't to be restored any more."""
        is_ready = not self._spec.resume or self.is_restored or self._iterations.finished >= 0
        return bool(self._spec.checkpoint) and is_ready

    @property
    def has_checkpoint(self) -> bool:
        """Whether the file is a checkpoint of this job, from which another start may continue."""
        continues_own = self.is_restored and self._spec.resume == self._spec.checkpoint
        return self.written_iteration >= 0 or continues_own

    # ---- saving while devices iterate

    def begin(self, now: float) -> None:
        """Begin to count the time to the first checkpoint of an attempt."""
        if not self.is_writing:
            self._due = now + self._every

    def look(self, now: float) -> None:
        """Ask the devices of an epoch to save if it is time; write what they have saved."""
        if not self._spec.checkpoint or self.is_writing:
            return
        kept = self._arrays.control.kept()
        if kept is not None:
            if self._iterations.reported >= kept:
                self._write_kept(kept, now)
            return
        is_due = now >= self._due and not self._iterations.is_warming_up
        if is_due and not self._is_requested:
            self._is_requested = True
            self._arrays.control.request_save()

    def on_epoch_end(self, now: float) -> None:
        """Write what the devices of an epoch, which has ended, have saved last."""
        self._is_requested = False
        kept = self._arrays.control.kept()
        if self._spec.checkpoint and kept is not None and not self.is_writing:
            self._write_kept(kept, now)

    def _write_kept(self, iteration: int, now: float) -> None:
        self._is_requested = False
        if iteration <= max(0, self._saved):  # this one is written, or work was lost
            self._arrays.control.release_save()
            self.begin(now)
            return
        residual = self._iterations.residual_after(iteration)
        self._start_writing(iteration, residual, lambda state: state.saved(iteration))

    # ---- saving before the job stops

    async def save_last(self) -> None:
        """Write the state after the last iteration, unless it has been; no device computes."""
        if self._written is not None:
            await asyncio.shield(self._written)
        iterations = self._iterations
        finished, slots, restores = iterations.finished, iterations.previous, iterations.restores
        if self.is_writing or iterations.ended is not None or finished <= max(0, self._saved):
            return

        def state(files: StateFiles) -> SavedState:
            # Restored rows are where the next epoch would take them from.
            return files.saved(finished) if restores else files.home(finished, slots)

        self._start_writing(finished, iterations.residual, state)
        if self._written is not None:
            await asyncio.shield(self._written)

    # ---- writing

    def _start_writing(
        self, iteration: int, residual: float, state_of: Callable[[StateFiles], SavedState]
    ) -> None:
        self._saved, self._saved_at = iteration, time.monotonic()
        self._due = math.inf  # not before this one has been written
        path = self._spec.checkpoint
        written = self._written = self._context.loop.create_future()
        on_done = functools.partial(self._on_written, iteration, written)
        try:
            files = self._files()
        except HetschedError as error:
            self._arrays.control.release_save()
            on_done(0, error)
            return

        def write(step: Step) -> int:
            step.enter(f"writing {path}")
            return files.write(path, state_of(files), residual)

        self.is_writing = True
        release = functools.partial(self._on_thread_end, self._arrays.retain_all())
        self._context.disk.submit(write, on_done, release=release, deadline=self._deadline)

    def _on_thread_end(self, release: Callable[[], None]) -> None:
        """Let devices save again: no thread reads what they have saved, not even one that hung."""
        release()
        self.is_writing = False
        if not self._is_closed:
            self._arrays.control.release_save()

    def _on_written(
        self,
        iteration: int,
        written: asyncio.Future[None],
        nbytes: int,
        error: BaseException | None,
    ) -> None:
        self._due = max(self._saved_at + self._every, 2 * time.monotonic() - self._saved_at)
        if error is None:
            self.written_iteration = iteration
            seconds = self._iterations.sums.max_save_seconds
            pause, self._saving_seconds = seconds - self._saving_seconds, seconds
            self._iterations.history.checkpoint(WrittenCheckpoint(iteration, pause, nbytes))
        else:
            text = f"{NO_CHECKPOINT} {iteration}: {error}"
            self._replace_note(NO_CHECKPOINT, text)  # the last one is enough
            is_expected = isinstance(error, HetschedError)
            log.warning("%s", text, exc_info=None if is_expected else error)
        self._written = None
        if not written.done():
            written.set_result(None)

    def close(self) -> None:
        self._is_closed = True

    @property
    def _deadline(self) -> float:
        return self._context.files.deadline + self._arrays.nbytes / MIN_RATE

    def _files(self) -> StateFiles:
        """Return what reads and writes the state. Raises CantCreate."""
        if self._state is None:
            try:
                arrays = self._arrays.map_all()
            except TryAgain as error:
                raise CantCreate(f"the state can't be mapped: {error}") from error
            job = self._arrays.job
            assert isinstance(job.workload, Iterative)
            seeds = {spec.name: self._spec.seed for spec in job.generate}
            self._state = StateFiles(job.workload, job.params, job.specs, arrays, seeds)
        return self._state


@dataclass
class StateFiles:
    """The state of one job in memory, to and from files. In threads of the pool."""

    workload: Iterative
    params: Any
    specs: Sequence[ArraySpec]  # Inputs and outputs
    # Name -> array in memory: inputs, outputs, state, partials, and what devices save
    arrays: Mapping[str, np.ndarray]
    seeds: Mapping[str, int]  # Name of a generated input -> its seed
    _sources: dict[str, str] = field(default_factory=dict)

    def saved(self, iteration: int) -> SavedState:
        names = saved_names(self.workload, self.params)
        arrays = {name: self.arrays[SAVED + name] for name in names}
        return SavedState(iteration, arrays, self._values(iteration, ()))

    def home(self, iteration: int, slots: Sequence[int]) -> SavedState:
        """Return the state after `iteration`; no device computes.

        `slots`: of the devices with partial results of that iteration, in the order of their rows;
        (): its combined values are in the last slot.
        """
        views = state_views(self.workload, self.params, self.arrays, iteration)
        return SavedState(iteration, views, self._values(iteration, slots))

    def _values(self, iteration: int, slots: Sequence[int]) -> dict[str, np.ndarray]:
        stages = stages_of(self.workload, self.params, Part.ITERATION)
        repeated = {name for stage in stages for name in stage.reductions}
        values = {}
        needed = value_shapes(self.workload, self.params)
        for reduction in self.workload.reductions(self.params):
            if reduction.name not in needed:
                continue
            partials = self.arrays[PARTIALS + reduction.name]
            if reduction.name in repeated and slots:
                values[reduction.name] = combine(reduction, partials, iteration, slots)
            else:
                values[reduction.name] = np.array(partials[iteration % 2, combined_slot(partials)])
        return values

    def write(self, path: str, saved: SavedState, residual: float) -> int:
        """Write the state; return the bytes of its arrays."""
        problem, limits = self._problem()
        check_target(path, problem)
        save_checkpoint(path, saved, problem, limits=limits, residual=residual, now=time.time())
        return sum(array.nbytes for array in (*saved.arrays.values(), *saved.values.values()))

    def restore(self, path: str) -> tuple[int, float | None]:
        """Fill the job's arrays from a checkpoint; return its iteration and residual."""
        problem, _ = self._problem()
        record, saved = load_checkpoint(path, self.workload, self.params, problem)
        restore_state(self.workload, self.params, self.arrays, saved)
        for name, value in saved.values.items():
            partials = self.arrays[PARTIALS + name]
            partials[:, combined_slot(partials)] = value
        return record.iteration, record.residual

    def _problem(self) -> tuple[Problem, dict[str, Any]]:
        names = [spec.name for spec in self.specs if spec.is_input]
        sources = {name: self._source(name) for name in names}
        return problem_of(self.workload, self.params, self.specs, sources)

    def _source(self, name: str) -> str:
        if name in self.seeds:
            return f"seed:{self.seeds[name]}"
        if name not in self._sources:
            self._sources[name] = data_digest(self.arrays[name])
        return self._sources[name]
