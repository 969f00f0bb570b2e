"""The checkpoints of an iterative job, and the one that it continues from.

Devices save the state in spare arrays when the engine asks for it, between two iterations; a
thread writes these to a file while iterations go on. Devices also go back to these arrays when one
with its own memory is lost, so nothing else is saved there until the file is complete.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched import errors
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.run.arrays import MIN_RATE
from hetsched.engine.run.epochs import IterationState
from hetsched.explain.records import WrittenCheckpoint
from hetsched.iterations import saved_state
from hetsched.iterations.home import COMBINED, PARTIALS, Part, combine, stages_of
from hetsched.job import CHECKPOINT_SECONDS
from hetsched.store import checkpoint
from hetsched.store.journal_records import job_token
from hetsched.workload import Iterative

if TYPE_CHECKING:
    from hetsched.engine.run.runner import JobRunner

log = logging.getLogger(__name__)

NO_CHECKPOINT = "no checkpoint after iteration"


class Saves:
    """The checkpoints of one job, one after the other. On the loop's thread.

    From save to save it takes `every` seconds, or, on a slow disk, twice as long as the writing.
    """

    def __init__(self, runner: JobRunner, iterations: IterationState) -> None:
        self._spec, self._arrays, self._engine = runner.spec, runner.arrays, runner.engine
        self._owner = job_token(runner.engine.journal_token, runner.number)
        self._iterations = iterations
        self._note = runner.note
        self._every = CHECKPOINT_SECONDS if self._spec.every is None else self._spec.every
        self._due = math.inf
        self._saved_at = 0.0
        # The iteration of the last save, or of the checkpoint that was continued; -1: none
        self._saved = -1
        self.is_writing = False  # A thread reads what devices have saved, which must stay as it is
        # The iteration of the last complete file of this job; -1: none
        self.written_iteration = -1
        self._is_requested = False
        self._is_closed = False
        self._state: StateFiles | None = None
        self._written: asyncio.Future[None] | None = None
        self._saving_seconds = 0.0

    async def restore(self) -> None:
        """Fill the job's arrays from the checkpoint that it continues, once."""
        path, iterations = self._spec.resume, self._iterations
        if not path or iterations.continued_after or iterations.finished >= 0:
            return
        files = self._files()
        iteration, residual = await self._engine.disk.call(
            lambda: files.restore(path),
            text=f"reading {path}",
            release=self._arrays.retain(),
            deadline=self._deadline,
        )
        iterations.begun_at = time.monotonic()
        iterations.continue_after(iteration, residual)
        self._saved = iteration
        text = f"continued after iteration {iteration}, from {path}"
        self._note(text, instead_of="continued after")

    @property
    def can_save(self) -> bool:
        """Whether the job has checkpoints, and its state isn't to be restored or a warm-up."""
        iterations, spec = self._iterations, self._spec
        is_restored = iterations.continued_after or iterations.finished >= 0
        return bool(spec.checkpoint and (is_restored or not spec.resume)) and (
            not iterations.is_warming_up
        )

    @property
    def has_checkpoint(self) -> bool:
        """Whether the file is a checkpoint of this job, from which another start may continue."""
        if self.written_iteration >= 0:
            return True
        return self._iterations.continued_after > 0 and self._spec.resume == self._spec.checkpoint

    def begin(self, now: float) -> None:
        if not self.is_writing:
            self._due = now + self._every

    def look(self, now: float, *, is_over: bool = False) -> None:
        """Ask devices to save if it is time, unless the epoch is over; write what is saved."""
        control, iterations = self._arrays.control, self._iterations
        self._is_requested = self._is_requested and not is_over
        if not self._spec.checkpoint or self.is_writing:
            return
        kept = control.kept()
        if kept is None:
            is_due = now >= self._due and not iterations.is_warming_up and not is_over
            if is_due and not self._is_requested:
                self._is_requested = True
                control.request_save()
        elif is_over or kept <= iterations.reported:
            self._is_requested = False
            if kept <= max(0, self._saved):  # this one is written, or work was lost
                control.release_save()
                self.begin(now)
            else:
                self._start_writing(kept, iterations.residual_after(kept), None)

    async def save_last(self) -> None:
        """Write the state after the last iteration, unless it has been; no device computes."""
        if self._written is not None:
            await asyncio.shield(self._written)
        iterations, finished = self._iterations, self._iterations.finished
        if self.is_writing or iterations.ended is not None or finished <= max(0, self._saved):
            return
        # Restored rows are where the next epoch would take them from.
        slots = None if iterations.restores else iterations.previous
        self._start_writing(finished, iterations.residual, slots)
        if self._written is not None:
            await asyncio.shield(self._written)

    def _start_writing(self, iteration: int, residual: float, slots: Sequence[int] | None) -> None:
        self._saved, self._saved_at = iteration, time.monotonic()
        self._due = math.inf  # not before this one has been written
        path, self._written = self._spec.checkpoint, self._engine.loop.create_future()
        try:
            files = self._files()
        except errors.HetschedError as error:
            self._arrays.control.release_save()
            self._on_written(iteration, 0, error)
            return
        self.is_writing, release = True, self._arrays.retain()

        def on_thread_end() -> None:  # no thread reads what was saved, not even one that hung
            release()
            self.is_writing = False
            if not self._is_closed:
                self._arrays.control.release_save()

        self._engine.disk.submit(
            lambda: files.write(path, iteration, residual, slots),
            functools.partial(self._on_written, iteration),
            text=f"writing {path}",
            release=on_thread_end,
            deadline=self._deadline,
        )

    def _on_written(self, iteration: int, nbytes: int, error: BaseException | None) -> None:
        self._due = max(self._saved_at + self._every, 2 * time.monotonic() - self._saved_at)
        if error is None:
            self.written_iteration = iteration
            seconds = max((sums.save for sums in self._iterations.sums.values()), default=0.0)
            pause, self._saving_seconds = seconds - self._saving_seconds, seconds
            self._iterations.history.checkpoint(WrittenCheckpoint(iteration, pause, nbytes))
        else:
            text = f"{NO_CHECKPOINT} {iteration}: {error}"
            self._note(text, instead_of=NO_CHECKPOINT)  # the last one is enough
            is_expected = isinstance(error, errors.HetschedError)
            log.warning("%s", text, exc_info=None if is_expected else error)
        written, self._written = self._written, None
        if written is not None and not written.done():
            written.set_result(None)

    def close(self) -> None:
        self._is_closed = True

    @property
    def _deadline(self) -> float:
        return self._engine.checks.deadline + self._arrays.nbytes / MIN_RATE

    def _files(self) -> StateFiles:
        if self._state is None:
            try:
                arrays = {each.array: self._arrays.mapped(each) for each in self._arrays.stored}
            except errors.TryAgain as error:
                raise errors.CantCreate(f"the state can't be mapped: {error}") from error
            self._state = StateFiles(self._arrays.job, arrays, self._spec.seed, self._owner)
        return self._state


class StateFiles:
    """The state of one job in memory, to and from files. In threads."""

    def __init__(
        self, job: ResolvedJob, arrays: Mapping[str, np.ndarray], seed: int, owner: str
    ) -> None:
        assert isinstance(job.workload, Iterative)
        self._owner = owner
        self._workload: Iterative = job.workload
        self._params = job.params
        self._specs = job.specs
        self._arrays = arrays
        self._sources = {spec.name: f"seed:{seed}" for spec in job.generate}

    def write(
        self, path: str, iteration: int, residual: float, slots: Sequence[int] | None
    ) -> int:
        """Write the state after `iteration`; return the bytes of its arrays.

        `slots`: no device computes, and these have partial results of that iteration, in the order
        of their rows; (): its combined values are in the last slot. None: what devices saved.
        """
        if slots is None:
            names = saved_state.saved_names(self._workload, self._params)
            arrays = {name: self._arrays[saved_state.SAVED + name] for name in names}
        else:
            arrays = saved_state.state_views(self._workload, self._params, self._arrays, iteration)
        saved = saved_state.SavedState(iteration, arrays, self._values(iteration, slots or ()))
        problem, limits = self._problem()
        checkpoint.check_target(path, problem)
        checkpoint.save_checkpoint(
            path,
            saved,
            problem,
            limits=limits,
            residual=residual,
            job=self._owner,
            now=time.time(),
        )
        return sum(array.nbytes for array in (*saved.arrays.values(), *saved.values.values()))

    def _values(self, iteration: int, slots: Sequence[int]) -> dict[str, np.ndarray]:
        stages = stages_of(self._workload, self._params, Part.ITERATION)
        repeated = {name for stage in stages for name in stage.reductions}
        needed = saved_state.value_shapes(self._workload, self._params)
        values = {}
        for reduction in self._workload.reductions(self._params):
            if reduction.name not in needed:
                continue
            partials = self._arrays[PARTIALS + reduction.name]
            if reduction.name in repeated and slots:
                values[reduction.name] = combine(reduction, partials, iteration, slots)
            else:
                values[reduction.name] = np.array(partials[iteration % 2, COMBINED])
        return values

    def restore(self, path: str) -> tuple[int, float | None]:
        """Fill the job's arrays from a checkpoint; return its iteration and residual."""
        problem, _ = self._problem()
        record, saved = checkpoint.load_checkpoint(path, self._workload, self._params, problem)
        saved_state.restore_state(self._workload, self._params, self._arrays, saved)
        for name, value in saved.values.items():
            self._arrays[PARTIALS + name][:, COMBINED] = value
        return record.iteration, record.residual

    def _problem(self) -> tuple[checkpoint.Problem, dict[str, Any]]:
        names = [spec.name for spec in self._specs if spec.is_input]
        for name in names:
            if name not in self._sources:
                self._sources[name] = checkpoint.data_digest(self._arrays[name])
        sources = {name: self._sources[name] for name in names}
        return checkpoint.problem_of(self._workload, self._params, self._specs, sources)
