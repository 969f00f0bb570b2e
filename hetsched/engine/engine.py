"""The engine: queues jobs, runs them, and learns. Used by daemon and Local.

`queue/` decides which job is next, `concurrency/` which small ones run beside it, `job/` runs it.

Everything runs on the loop's thread, except the tasks of its pools.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hetsched.config import Config
from hetsched.device import DeviceInfo
from hetsched.devices.probe import probe
from hetsched.engine.activity import job_activity
from hetsched.engine.admission.bind import MachineLimits
from hetsched.engine.admission.check import (
    Admission,
    CheckedJob,
    hold_attached,
    hold_segments,
    refusal,
    release_segments,
)
from hetsched.engine.context import EngineContext
from hetsched.engine.deadlines import Deadlines
from hetsched.engine.device_switches import disabled_devices, switch_devices
from hetsched.engine.engine_hooks import EngineHooks
from hetsched.engine.explanations import ExplanationArchive
from hetsched.engine.planning.planning_state import PlanningState
from hetsched.engine.planning.run_planner import LearningTask
from hetsched.engine.processes.device_search import search_devices
from hetsched.engine.processes.fleet import Fleet
from hetsched.engine.processes.fleet_listener import FleetListener
from hetsched.engine.queue.records import Outcome
from hetsched.engine.queued_job import OnState, QueuedJob, Readmission
from hetsched.engine.run.publish import OnPrepared
from hetsched.engine.scheduler import JobScheduler, stopping_error
from hetsched.engine.threads import FILE_THREADS, OnDone, Pool, planner_thread
from hetsched.errors import ErrorRecord, HetschedError, TryAgain, to_record
from hetsched.job import Done, Failed, JobSpec, Queued
from hetsched.paths import cache_dir, private_folder
from hetsched.store.models.model_store import ModelStore
from hetsched.transport.arena import Arena
from hetsched.transport.device_messages import Event
from hetsched.transport.loop import Loop, Timer
from hetsched.transport.messages import DeviceActivity
from hetsched.units import parse_size

log = logging.getLogger(__name__)

FLUSH_SECONDS = 0.5
"""Delay from a job's end to writing models.db: the next job must not wait for the disk."""

Reply = Callable[[int | ErrorRecord], None]

CLOSE_SECONDS = 10.0
"""Time for a kind of thread to finish its work at the end: files are closed, models written."""


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
    journal_token : str
        Unique to the caller's journal; "": it has none.

    Raises
    ------
    ConfigError, Unavailable
        A configured device is missing; models.db has a newer version.
    """

    def __init__(
        self,
        config: Config,
        loop: Loop,
        arena: Arena,
        *,
        models_path: Path | None,
        journal_token: str = "",
    ) -> None:
        self._queue_limit = config.queue.limit
        self._arena = arena
        listener = FleetListener(
            self._on_message,
            self._on_lost,
            self._on_joined,
            on_stuck=lambda keys: hold_attached(arena, keys),
            on_memory=self._on_memory,
        )
        deadlines = Deadlines.of(config.deadlines)
        self._fleet = Fleet(probe(config), loop, listener, deadlines)
        private_folder(cache_dir(), "cache folder")
        planning = PlanningState(
            ModelStore(models_path, max_bytes=parse_size(config.limits.models)),
            machine=lambda: self._fleet.infos,
        )
        limit = None if config.memory_limit is None else parse_size(config.memory_limit)
        files = Pool(loop, FILE_THREADS, deadlines.disk)
        disk = Pool(loop, FILE_THREADS, deadlines.disk)
        admission = Admission(files, self._machine_limits)
        self._context = EngineContext(
            loop,
            self._fleet,
            planner_thread(loop, deadlines.disk),
            files,
            disk,
            admission,
            arena,
            planning,
            limit,
            config.stealing,
            deadlines,
            journal_token=journal_token,
        )
        self._context.small_jobs = config.queue.small_jobs
        self._config = config
        self._explanations = ExplanationArchive(
            self._fleet.info, self._context.planning.plan_cache
        )
        self._scheduler = JobScheduler(
            self._context,
            loop,
            self._explanations,
            EngineHooks(self._learn, self._on_idle),
        )
        self._flush_timer: Timer | None = None
        self._last_number = 0
        self._resolving = 0
        self._is_draining = False
        self._on_drained: Callable[[], None] | None = None
        arena.on_discard(lambda segment: self._fleet.detach([segment]))

    def start(self) -> None:
        """Start the device processes. Jobs may be submitted immediately."""
        self._fleet.start()

    def submit(
        self,
        spec: JobSpec,
        reply: Reply,
        on_state: OnState,
        *,
        number: int | None = None,
        on_prepared: OnPrepared | None = None,
        readmission: Readmission | None = None,
    ) -> None:
        """Check a job and queue it.

        `reply` is called with its number or the error that rejects it; then `on_state` with each
        of its states, finally Done or Failed. With Done, the callback receives a reference to each
        result segment.

        Parameters
        ----------
        number : int or None
            The job's number, if the caller counts them; None: one more than the last.
        on_prepared : callable or None
            Called when output files are complete, before they get their names.
        readmission : Readmission or None
            An earlier engine has accepted the job: no limit applies.
        """
        try:
            if readmission is None:
                self._check_queue()
                self._scheduler.queue.check(spec.after)
            held_segments = hold_segments(self._arena, spec)
        except Exception as error:  # the caller needs a reply even to our own bugs
            reply(to_record(error))
            return
        self._resolving += 1
        if readmission is not None and number is not None:
            self._scheduler.queue.expect(number)

        def on_checked(checked: CheckedJob | None, error: BaseException | None) -> None:
            self._resolving -= 1
            try:
                if checked is None:
                    release_segments(self._arena, held_segments)
                    reply(to_record(error or TryAgain("no answer from the job's check")))
                elif (refused := self._refusal(checked, is_new=readmission is None)) is not None:
                    release_segments(self._arena, held_segments)
                    reply(refused)
                else:
                    own = number or self._last_number + 1
                    self._last_number = max(self._last_number, own)
                    queued = QueuedJob(own, spec, checked, held_segments, on_state, on_prepared)
                    self._scheduler.accept(queued, readmission, reply)
            finally:
                self._scheduler.advance()

        self._context.admission.check(spec, on_checked, is_readmitted=readmission is not None)

    def remember(self, number: int, state: Done | Failed) -> None:
        """Note how a job of an earlier engine ended: others may run after it."""
        error = state.error if isinstance(state, Failed) else None
        self._scheduler.apply(self._scheduler.queue.remember(number, Outcome.of(error)))
        self._last_number = max(self._last_number, number)

    def expect(self, number: int) -> None:
        """Note that a job will be submitted later, or remembered: others may run after it."""
        self._scheduler.queue.expect(number)

    def pause(self) -> None:
        """Start no jobs until `resume`."""
        self._scheduler.is_paused = True

    def resume(self) -> None:
        """Start jobs again."""
        self._scheduler.is_paused = False
        self._scheduler.advance()

    def cancel(self, number: int) -> None:
        """Stop a job between chunks. No effect if it has ended."""
        self._scheduler.cancel(number)

    def hold(self, number: int) -> bool:
        """Keep a waiting job from starting; return whether that changed anything.

        Raises, as `release` and `prioritize`, UsageError if it runs, InputMissing if it has ended.
        """
        return self._scheduler.apply(self._scheduler.queue.hold(number))

    def release(self, number: int) -> bool:
        """Let a held job start when its turn comes."""
        return self._scheduler.apply(self._scheduler.queue.release(number))

    def prioritize(self, number: int, priority: int) -> bool:
        """Change the priority of a waiting job."""
        return self._scheduler.apply(self._scheduler.queue.prioritize(number, priority))

    def position(self, number: int) -> Queued | None:
        """Return where a job waits; None if it doesn't."""
        return self._scheduler.position(number)

    def is_idle(self) -> bool:
        """Whether no job runs or could start; some may be on hold, or run after those."""
        return not self._resolving and self._scheduler.queue.is_idle

    def explain(self, number: int, on_done: OnDone) -> None:
        """Explain a running or ended job: ``on_done(explanation, error)``.

        The error is TryAgain for a job that hasn't started, InputMissing for an unknown one.
        """
        driver = self._scheduler.running.get(number)
        running = None if driver is None else driver.snapshot()
        waiting = set(self._scheduler.queue.waiting())
        try:
            work = self._explanations.explainer(number, running, waiting, self._last_number)
        except HetschedError as error:
            on_done(None, error)
            return
        self._context.planner_thread.run(work, on_done)

    def probe_devices(self, on_done: Callable[[], None]) -> None:
        """Look for missing devices, and give those that failed another chance; then call back."""
        self._context.failures.forget()
        search_devices(self._config, self._fleet, self._context.files, on_done)

    def restricted_devices(self) -> dict[str, str]:
        """Return device that takes no jobs of some kinds at present -> why."""
        return self._context.failures.restricted(time.monotonic())

    def devices(self) -> tuple[tuple[DeviceInfo, ...], dict[str, str]]:
        """Return the devices, and why others are missing or take no job at present."""
        quarantined = self._context.failures.quarantined(time.monotonic())
        disabled = disabled_devices(self._context)
        return self._fleet.infos, {**self._fleet.absent, **quarantined, **disabled}

    def switch_devices(self, enable: Sequence[str], disable: Sequence[str]) -> None:
        """Let jobs use devices, or not: later jobs, and a running one if it is iterative.

        Raises UsageError if there is no such device; then nothing has changed.
        """
        switch_devices(self._context, enable, disable)
        self._scheduler.running.on_switched()

    def activities(self) -> tuple[DeviceActivity, ...]:
        """Return what the devices do for running jobs."""
        return tuple(
            activity
            for driver in self._scheduler.running
            for activity in job_activity(driver.snapshot())
        )

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
        self._context.admission.abandon_checks(stopping_error())
        self._scheduler.stop()

    def close(self) -> None:
        """End the device processes and the threads, as far as these don't hang."""
        self._fleet.close()
        context = self._context
        for step in [*context.files.close(CLOSE_SECONDS), *context.disk.close(CLOSE_SECONDS)]:
            log.warning("a thread still hangs at the end: %s", step)
        if not self._context.planner_thread.close(CLOSE_SECONDS):
            self._context.planning.store.close()
        else:
            log.warning("the planner's thread hangs: models.db isn't closed")

    # ---- the queue

    def _check_queue(self) -> None:
        if self._is_draining:
            raise stopping_error()
        if len(self._scheduler.queue) + self._resolving >= self._queue_limit:
            raise TryAgain(
                f"the queue is full: {self._queue_limit} jobs wait or run (queue.limit in the"
                " config); try again later"
            )

    def _refusal(self, checked: CheckedJob, *, is_new: bool) -> ErrorRecord | None:
        return refusal(checked, self._arena, self._context.admission.pending, is_new=is_new)

    def _machine_limits(self) -> MachineLimits:
        return MachineLimits(self._fleet.infos, dict(self._fleet.absent), self._arena.limit)

    def _learn(self, task: LearningTask) -> None:
        self._context.planner_thread.run(task)
        if self._flush_timer is None:
            self._flush_timer = self._context.loop.call_later(FLUSH_SECONDS, self._flush_models)

    def _flush_models(self) -> None:
        self._flush_timer = None
        self._context.planner_thread.run(self._context.planning.store.flush)

    def _on_idle(self) -> None:
        if not self._resolving and self._on_drained is not None:
            on_drained, self._on_drained = self._on_drained, None
            on_drained()

    # ---- the fleet's events

    def _on_message(self, device: str, message: Event) -> None:
        self._scheduler.running.on_message(device, message)

    def _on_lost(self, devices: tuple[str, ...], reason: str, culprits: tuple[str, ...]) -> None:
        self._context.planning.kernels.forget(devices)
        self._scheduler.on_lost(devices, reason, culprits)

    def _on_memory(self, device: str, has_changed: bool, is_released: bool) -> None:
        if has_changed:
            self._context.planning.plans.clear()  # their plans were made for less or more
        if is_released:
            self._context.planning.kernels.forget([device])

    def _on_joined(self, devices: tuple[str, ...]) -> None:
        self._scheduler.running.on_joined(devices)
