"""Executes the commands of a job's state machine that concern iterations. On the loop's thread."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping

from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.context import EngineContext
from hetsched.engine.iterating.array_copies import MIN_RATE, ArrayCopies
from hetsched.engine.iterating.checkpoint_files import CheckpointFiles, CheckpointWork
from hetsched.engine.iterating.epoch import Epoch
from hetsched.engine.iterating.held_task import HeldTask
from hetsched.engine.iterating.iterative_arrays import IterativeArrays
from hetsched.engine.job import commands as do
from hetsched.engine.job.arrays import JobArrays
from hetsched.engine.job.events import (
    CheckpointFailed,
    CheckpointWritten,
    EpochSettled,
    InputsLoaded,
    JobEvent,
    LoadFailed,
    RestoreFailed,
    StateCopied,
    StateRestored,
)
from hetsched.engine.threads.step import Step
from hetsched.errors import CantCreate, TryAgain
from hetsched.job import JobSpec
from hetsched.transport.arena import Arena
from hetsched.transport.iterations.control import IterationControl


def job_arrays(job: ResolvedJob, arena: Arena) -> JobArrays:
    """Return the arrays of a job of either kind."""
    return JobArrays(job, arena) if job.iterative is None else IterativeArrays(job, arena)


class IterationOrders:
    """The control memory and the file copies of one job; unused for single-pass jobs."""

    def __init__(
        self,
        spec: JobSpec,
        arrays: JobArrays,
        context: EngineContext,
        post: Callable[[JobEvent], None],
    ) -> None:
        self._spec = spec
        self._arrays = arrays
        self._context = context
        self._post = post
        self._loading: ArrayCopies | None = None
        self._epoch: Epoch | None = None
        self._checkpoints: CheckpointFiles | None = None

    # ---- files

    def load_inputs(self) -> None:
        """Copy inputs in a thread; their segments stay even if the thread hangs."""
        loads = self._own.loads()
        if loads is None:
            self._post(InputsLoaded())
            return
        self._loading = loads
        files = self._context.files
        task = HeldTask(self._own.retain_copied(), self._call_soon)
        files.submit(
            lambda step: task.run(lambda: loads.run(step)),
            functools.partial(self._loaded, task),
            deadline=files.deadline + loads.seconds,
        )

    def _loaded(self, task: HeldTask, value: None, error: BaseException | None) -> None:
        task.answered()
        self._loading = None
        self._post(InputsLoaded() if error is None else LoadFailed(error))

    def cancel_loading(self) -> None:
        if self._loading is not None:
            self._loading.cancel()

    def saves(self) -> ArrayCopies | None:
        """Return what must be written to output files before they are published."""
        return self._arrays.saves() if isinstance(self._arrays, IterativeArrays) else None

    # ---- checkpoints

    def save_state(self, command: do.SaveState) -> None:
        """Copy the state in a thread, then write it there while iterations go on."""
        try:
            files = self._checkpoint_files()
        except (OSError, TryAgain) as error:
            self._post(CheckpointFailed(CantCreate(f"the state can't be mapped: {error}")))
            return
        release = self._own.retain_all()

        def copied() -> None:
            release()
            if not copying.is_given_up:
                self._post(StateCopied())

        copying = HeldTask(copied, self._call_soon)
        work = CheckpointWork(
            files,
            self._spec.checkpoint,
            command.iteration,
            command.slots,
            command.residual,
            copying,
        )
        on_written = functools.partial(self._written, work)
        self._context.files.submit(work.run, on_written, deadline=self._checkpoint_deadline())

    def _written(self, work: CheckpointWork, nbytes: int, error: BaseException | None) -> None:
        work.copying.answered()
        if isinstance(error, TryAgain):  # a thread that hangs may still use the copies
            self._checkpoints = None
        if error is None:
            self._post(CheckpointWritten(work.iteration, nbytes))
        else:
            self._post(CheckpointFailed(error))

    def restore_state(self, command: do.RestoreState) -> None:
        """Fill the job's arrays from a checkpoint, in a thread."""
        files = self._checkpoint_files()
        task = HeldTask(self._own.retain_all(), self._call_soon)

        def work(step: Step) -> tuple[int, float | None]:
            step.enter(f"reading {command.path}")
            return task.run(lambda: files.restore(command.path))

        def restored(value: tuple[int, float | None], error: BaseException | None) -> None:
            task.answered()
            self._post(StateRestored(*value) if error is None else RestoreFailed(error))

        self._context.files.submit(work, restored, deadline=self._checkpoint_deadline())

    def _checkpoint_files(self) -> CheckpointFiles:
        if self._checkpoints is None:
            self._checkpoints = self._own.checkpoint_files(self._spec.seed)
        return self._checkpoints

    def _checkpoint_deadline(self) -> float:
        """Return how long reading or writing a checkpoint may take."""
        return self._context.files.deadline + self._own.nbytes / MIN_RATE

    def _call_soon(self, function: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it the arena
            self._context.loop.call_soon_threadsafe(function)

    # ---- epochs

    def start_epoch(self, command: do.StartEpoch) -> None:
        epoch = self._epoch = command.epoch
        self._control.begin(epoch.first, restores=epoch.restores)
        if epoch.is_paced:
            self._control.allow(max(epoch.first, 1))
        for rank, device in enumerate(epoch.devices):
            order = functools.partial(epoch.order, command.attempt_id, rank)
            self._context.fleet.send(device, order)

    def propose(self, command: do.ProposeSplit) -> None:
        self._control.propose(command.bounds)

    def allow(self, command: do.AllowIteration) -> None:
        self._control.allow(command.iteration)

    def pause(self) -> None:
        self._control.pause()

    def abort(self) -> None:
        if self._epoch is not None:
            self._control.abort()

    def settle(self, command: do.SettleEpoch) -> None:
        control, slots = self._control, command.slots
        self._epoch = None
        settled = control.finished(slots), control.ended(slots), control.saved(slots)
        self._post(EpochSettled(*settled))

    def arrivals(self) -> Mapping[str, int]:
        """Return device -> how often it has arrived in the present epoch."""
        epoch = self._epoch
        if epoch is None:
            return {}
        arrivals = map(self._control.arrivals, epoch.slots)
        return dict(zip(epoch.devices, arrivals, strict=True))

    @property
    def _own(self) -> IterativeArrays:
        assert isinstance(self._arrays, IterativeArrays), "the job isn't iterative"
        return self._arrays

    @property
    def _control(self) -> IterationControl:
        return self._own.control
