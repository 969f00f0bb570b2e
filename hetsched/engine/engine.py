"""The engine: queues jobs, runs them one after the other, and learns. Used by daemon and Local.

Everything runs on the loop's thread, except the tasks of `PlannerThread`.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hetsched.config import Config
from hetsched.device import DeviceInfo
from hetsched.devices.probe import probe
from hetsched.engine.admission.resolve import resolve
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.admission.segment_holds import hold_segments, release_segments
from hetsched.engine.context import EngineContext
from hetsched.engine.explanations import ExplanationArchive, JobSnapshot
from hetsched.engine.job.driver import JobDriver
from hetsched.engine.job.report import minimal_report
from hetsched.engine.planning.planner_thread import OnDone, PlannerThread, run_inline
from hetsched.engine.planning.planning_state import PlanningState
from hetsched.engine.processes.fleet import Fleet, FleetListener
from hetsched.errors import Cancelled, ErrorRecord, HetschedError, TryAgain, to_record
from hetsched.job import Done, Failed, FileOut, FileRef, JobSpec, JobState, Queued
from hetsched.paths import cache_dir, private_folder
from hetsched.planner.records import JobPlan
from hetsched.store.models.model_store import ModelStore
from hetsched.transport.arena import Arena
from hetsched.transport.device_messages import Event
from hetsched.transport.loop import Loop
from hetsched.units import parse_size

log = logging.getLogger(__name__)

OnState = Callable[[JobState], None]
Reply = Callable[[int | ErrorRecord], None]

FLUSH_SECONDS = 0.5
"""Delay from a job's end to writing models.db: the next job must not wait for the disk."""


@dataclass(frozen=True, eq=False)
class QueuedJob:
    """An accepted job. Its `held_segments` are retained until it ends."""

    number: int
    spec: JobSpec
    job: ResolvedJob
    held_segments: list[int]
    on_state: OnState


class Engine:
    """Runs jobs on all devices of a configuration.

    Parameters
    ----------
    config : Config
    loop : Loop
        All methods must be called, and all callbacks are called, on its thread.
    arena : Arena
    models_path : Path or None
        Of models.db; None: models are kept in memory only.

    Raises
    ------
    ConfigError, Unavailable
        A configured device is missing; models.db has a newer version.
    """

    def __init__(
        self, config: Config, loop: Loop, arena: Arena, *, models_path: Path | None
    ) -> None:
        self._queue_limit = config.queue.limit
        self._arena = arena
        listener = FleetListener(self._on_message, self._on_lost, self._on_joined)
        self._fleet = Fleet(probe(config), loop, listener)
        private_folder(cache_dir(), "cache folder")
        planning = PlanningState(ModelStore(models_path))
        limit = None if config.memory_limit is None else parse_size(config.memory_limit)
        self._context = EngineContext(
            self._fleet, PlannerThread(loop), arena, planning, limit, config.stealing
        )
        self._explanations = ExplanationArchive(
            self._fleet.info, self._context.planning.plan_cache
        )
        self._queue: deque[QueuedJob] = deque()
        self._active: JobDriver | None = None
        self._is_advancing = False
        self._last_number = 0
        self._resolving = 0
        self._loaded_workloads: set[str] = set()
        """Jobs with these workloads and without files are resolved without blocking."""
        self._loop = loop
        self._flush_is_due = False
        self._is_draining = False
        self._on_drained: Callable[[], None] | None = None
        arena.on_discard(lambda segment: self._fleet.detach([segment]))

    def start(self) -> None:
        """Start the device processes. Jobs may be submitted immediately."""
        self._fleet.start()

    def submit(self, spec: JobSpec, reply: Reply, on_state: OnState) -> None:
        """Check a job and queue it.

        `reply` is called with its number or the error that rejects it; then `on_state` with each
        of its states, finally Done or Failed. With Done, the callback receives a reference to each
        result segment.
        """
        try:
            self._check_queue()
            held_segments = hold_segments(self._arena, spec)
        except Exception as error:  # the caller needs a reply even to our own bugs
            reply(to_record(error))
            return
        self._resolving += 1

        def on_resolved(job: ResolvedJob | None, error: BaseException | None) -> None:
            self._resolving -= 1
            try:
                if job is None:
                    release_segments(self._arena, held_segments)
                    reply(to_record(error or TryAgain("no answer from the planner")))
                else:
                    self._loaded_workloads.add(spec.workload)
                    self._last_number += 1
                    number = self._last_number
                    self._accept(QueuedJob(number, spec, job, held_segments, on_state), reply)
            finally:
                self._advance()

        infos, absent, limit = self._fleet.infos, dict(self._fleet.absent), self._arena.limit
        work = functools.partial(resolve, spec, infos, absent, limit)
        if spec.workload in self._loaded_workloads and not _names_files(spec):
            run_inline(work, on_resolved)
        else:
            self._context.planner_thread.submit(work, on_resolved)

    def cancel(self, number: int) -> None:
        """Stop a job between chunks. No effect if it has ended."""
        error = Cancelled(f"job {number} was cancelled")
        for queued in self._queue:
            if queued.number == number:
                self._queue.remove(queued)
                self._drop(queued, error)
                return
        if self._active is not None and self._active.number == number:
            self._active.abort(error)

    def explain(self, number: int, on_done: OnDone) -> None:
        """Explain a running or ended job: ``on_done(explanation, error)``.

        The error is TryAgain for a job that hasn't started, InputMissing for an unknown one.
        """
        running = None if self._active is None else self._active.snapshot()
        waiting = {queued.number for queued in self._queue}
        try:
            work = self._explanations.explainer(number, running, waiting, self._last_number)
        except HetschedError as error:
            on_done(None, error)
            return
        self._context.planner_thread.submit(work, on_done)

    def devices(self) -> tuple[tuple[DeviceInfo, ...], dict[str, str]]:
        """Return the devices, and the reasons for absent ones."""
        return self._fleet.infos, dict(self._fleet.absent)

    def pids(self) -> dict[str, int]:
        """Return device name -> process id."""
        return dict(self._fleet.pids())

    def kill(self) -> None:
        """End the device processes at once. Safe from any thread."""
        self._fleet.kill()

    def drain(self, on_drained: Callable[[], None]) -> None:
        """Reject new jobs, drop queued ones, stop the running one between chunks (exit 75)."""
        self._is_draining = True
        self._on_drained = on_drained
        while self._queue:
            self._drop(self._queue.popleft(), _stopping_error())
        if self._active is not None:
            self._active.abort(_stopping_error())
        self._advance()

    def close(self) -> None:
        """End the device processes and the planner's thread."""
        self._fleet.close()
        self._context.planner_thread.close()
        self._context.planning.store.close()

    # ---- the queue

    def _check_queue(self) -> None:
        if self._is_draining:
            raise _stopping_error()
        unfinished = len(self._queue) + self._resolving + (self._active is not None)
        if unfinished >= self._queue_limit:
            raise TryAgain(
                f"the queue is full: {self._queue_limit} jobs wait or run (queue.limit in the"
                " config); try again later"
            )

    def _accept(self, queued: QueuedJob, reply: Reply) -> None:
        try:
            reply(queued.number)
        except Exception as error:
            self._drop_unreported(queued, error)
            return
        if self._is_draining:
            self._drop(queued, _stopping_error())
            return
        ahead = len(self._queue) + (self._active is not None)
        self._queue.append(queued)
        try:
            queued.on_state(Queued(queued.number, ahead))
        except Exception as error:
            if queued in self._queue:
                self._queue.remove(queued)
                self._drop_unreported(queued, error)

    def _drop_unreported(self, queued: QueuedJob, error: Exception) -> None:
        """Fail a job whose callback raised."""
        log.error("job %d: unexpected error in a callback", queued.number, exc_info=error)
        self._drop(queued, error)

    def _drop(self, queued: QueuedJob, error: Exception) -> None:
        """End a job that hasn't started."""
        record = to_record(error)
        report = minimal_report(queued.number, queued.job, record)
        self._context.planner_thread.submit(queued.job.close)
        self._end(
            queued,
            Failed(queued.number, report, record),
            lambda: JobSnapshot.of(queued.number, queued.job, JobPlan((), None), {}),
        )

    def _advance(self) -> None:
        """Start queued jobs until one stays active.

        A loop rather than recursion, since a job may end while it is being started, which calls
        this method again.
        """
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while self._active is None and self._queue:
                self._begin(self._queue.popleft())
        finally:
            self._is_advancing = False
        if self._active is None and not self._resolving and self._on_drained is not None:
            on_drained, self._on_drained = self._on_drained, None
            on_drained()

    def _begin(self, queued: QueuedJob) -> None:
        try:
            self._active = JobDriver(
                queued.number,
                queued.spec,
                queued.job,
                self._context,
                queued.on_state,
                functools.partial(self._on_end, queued),
            )
        except Exception as error:
            log.exception("job %d can't start", queued.number)
            self._drop(queued, error)
            return
        self._active.begin()

    def _on_end(self, queued: QueuedJob, state: Done | Failed, learn: Callable[[], None]) -> None:
        driver, self._active = self._active, None
        assert driver is not None
        self._end(queued, state, driver.snapshot)
        # Learning during the next job would compete for the cores being measured.
        self._context.planner_thread.defer(learn, unless=lambda: self._active is not None)
        self._advance()
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_later(FLUSH_SECONDS, self._flush)

    def _end(
        self, queued: QueuedJob, state: Done | Failed, snapshot: Callable[[], JobSnapshot]
    ) -> None:
        """Report the last state. An exception must not block the next job."""
        steps: tuple[Callable[[], None], ...] = (
            lambda: release_segments(self._arena, queued.held_segments),
            lambda: queued.on_state(state),
            lambda: self._explanations.add(snapshot().ended(state)),
        )
        for step in steps:
            try:
                step()
            except Exception:
                log.exception("job %d: unexpected error while reporting its end", queued.number)

    def _flush(self) -> None:
        self._flush_is_due = False
        self._context.planner_thread.submit(self._context.planning.store.flush)

    # ---- the fleet's events

    def _on_message(self, device: str, message: Event) -> None:
        if self._active is not None:
            self._active.on_message(device, message)

    def _on_lost(self, devices: tuple[str, ...], reason: str) -> None:
        self._context.planning.kernels.forget(devices)
        if self._active is not None:
            self._active.on_lost(devices, reason)

    def _on_joined(self, devices: tuple[str, ...]) -> None:
        if self._active is not None:
            self._active.on_joined(devices)


def _stopping_error() -> TryAgain:
    return TryAgain("the daemon is stopping; submit the job again later")


def _names_files(spec: JobSpec) -> bool:
    refs = [*spec.inputs.values(), *spec.outputs.values()]
    return any(isinstance(ref, FileRef | FileOut) for ref in refs)
