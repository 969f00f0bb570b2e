"""The engine: queues jobs, runs them, and learns. Used by daemon and Local.

`jobs/queue.py` decides which job is next, `scheduler.py` which run beside it, `run/` runs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hetsched import errors
from hetsched.config import Config
from hetsched.devices.probe import Probe, probe
from hetsched.engine.admission.check import Admission, MachineLimits, hold_segments
from hetsched.engine.planning import PlanningState
from hetsched.engine.processes.fleet import Fleet
from hetsched.engine.run import attempt
from hetsched.engine.run.report import job_activity
from hetsched.engine.scheduler import Scheduler, stopping_error
from hetsched.engine.threads import POOL_THREADS, OnDone, Pool
from hetsched.engine.tuning import Tuner
from hetsched.jobs.table import JobRecord, JobTable
from hetsched.paths import cache_dir, private_folder
from hetsched.store.model_store import ModelStore
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop
from hetsched.transport.messages import DeviceActivity, DeviceList, Hold, Prioritize
from hetsched.units import quoted

log = logging.getLogger(__name__)

DISABLED = "disabled (`hetsched devices --enable NAME`)"
CLOSE_SECONDS = 10.0
"""Time for a kind of thread to finish its work at the end: files are closed, models written."""


class Engine:
    """Runs jobs on all devices of a configuration. All methods are called on the loop's thread."""

    def __init__(
        self,
        config: Config,
        loop: Loop,
        arena: Arena,
        table: JobTable,  # Told of every job that is accepted, refused, changes or ends
        *,
        models_path: Path | None,  # Of models.db; None: models are kept in memory only
        journal_token: str = "",  # Unique to the caller's journal; "": it has none
    ) -> None:
        """Raises ConfigError, Unavailable: a device is missing; models.db has a newer version."""
        self.config, self.deadlines = config, config.deadlines
        self.loop, self.arena, self.table = loop, arena, table
        self.journal_token = journal_token
        self.fleet = Fleet(probe(config), loop, config.deadlines, arena)
        private_folder(cache_dir(), "cache folder")
        store = ModelStore(models_path, max_bytes=config.limits.models)
        self.planning = PlanningState(store, machine=lambda: self.fleet.infos)
        # An engine without a journal may end with its job
        self.tuner = Tuner(loop, self.planning.plans.clear, is_before_jobs=not journal_token)
        disk = config.deadlines.disk
        self.planner_thread = Pool(loop, 1, disk, name="planner", is_planner=True)
        # Checks jobs, runs code of plug-ins for that, and opens files; the other writes, names and
        # closes them
        self.checks = Pool(loop, POOL_THREADS, disk, name="checks")
        self.disk = Pool(loop, POOL_THREADS, disk, name="disk")
        self.admission = Admission(
            self.checks,
            table.uses,
            lambda: MachineLimits(
                self.fleet.infos, self.fleet.absent, arena.limit, config.memory_limit
            ),
        )
        self.disabled: set[str] = set()  # Devices that aren't to be used at present
        # Seeds the random projections of verification, so that no workload can predict them
        self.verification_secret = secrets.randbits(48)
        self.attempt_ids = itertools.count(1)  # Of all jobs: late answers name theirs
        self.scheduler = self.fleet.listener = Scheduler(self)
        self.queue = self.scheduler.queue
        # New jobs that are being checked, or written to the journal
        self._submissions: dict[JobRecord, asyncio.Task[None]] = {}
        self._on_drained: Callable[[], None] | None = None
        self.on_idle: Callable[[], None] = lambda: None  # Called when it may have become so

    def admit(self, job: JobRecord) -> None:
        try:
            if self.table.is_stopping:
                raise stopping_error()
            limit = self.config.queue.limit
            if len(self.queue) + len(self._submissions) >= limit:
                raise errors.TryAgain(
                    f"the queue is full: {limit} jobs wait or run (queue.limit in the config); try"
                    " again later"
                )
            self.queue.check(job.spec.after)
            job.release_segments = hold_segments(self.arena, job.spec)
        except Exception as error:  # the client needs an answer even to our own bugs
            self._refuse(job, error)
        else:
            self._submissions[job] = self.loop.create_task(self._check(job))

    async def _check(self, job: JobRecord) -> None:
        admission = self.admission
        try:
            await self._check_earlier(job)
            checked = await admission.check(job.spec)
            self.table.uses.check_checkpoint(job, checked.checkpoint)
            self.scheduler.note_checked(job, checked)
            await self.table.accept(job)
        except asyncio.CancelledError:
            self._refuse(job, stopping_error())
        except Exception as error:
            self._refuse(job, error)
        else:
            del self._submissions[job]
            try:
                self.scheduler.enqueue(job)
            except Exception as problem:  # its client waits for its end
                log.exception("job %d: unexpected error in the queue", job.number)
                self.scheduler.drop(job, problem)
            self.scheduler.advance()

    async def _check_earlier(self, job: JobRecord) -> None:
        """Check the recovered jobs that `job` comes after: they may write what it reads."""
        found: dict[int, JobRecord] = {}
        numbers = list(job.after)
        while numbers:  # a chain may have as many jobs as the queue
            earlier = self.queue.unfinished(numbers.pop())
            if earlier is not None and earlier.checked is None and earlier.number not in found:
                found[earlier.number] = earlier
                numbers += earlier.after
        for _, earlier in sorted(found.items()):
            with contextlib.suppress(Exception):  # it fails when its turn comes
                await self.scheduler.check_again(earlier)

    def _refuse(self, job: JobRecord, error: Exception) -> None:
        self._submissions.pop(job, None)
        self.scheduler.release(job)
        self.table.refuse(job, errors.to_record(error))
        self.scheduler.advance()

    def change_queue(self, job: JobRecord, change: Hold | Prioritize) -> bool:
        """Change a waiting job; return whether its state is to be reported. Raises UsageError."""
        if isinstance(change, Hold):
            is_changed = self.queue.hold(job, change.is_held)
        else:
            is_changed = self.queue.prioritize(job, change.priority)
        if is_changed:
            job.state = self.queue.position(job)
            if not job.is_held:
                self.loop.call_soon(self.scheduler.advance)
        return is_changed

    def is_idle(self) -> bool:
        return not self._submissions and self.queue.is_idle

    def explain(self, job: JobRecord, on_done: OnDone) -> None:
        """Explain a job that runs, or ended not long ago: ``on_done(explanation, error)``.

        Raises TryAgain, InputMissing.
        """
        snapshot = self.scheduler.snapshot(job)
        self.planner_thread.submit(lambda: snapshot.explain(self.planning.plan_cache), on_done)

    def probe_devices(self, on_done: Callable[[], None]) -> None:
        """Look for missing devices, and give those that failed another chance; then call back."""
        self.planning.failures.tallies.clear()

        def on_probed(found: Probe | None, error: BaseException | None) -> None:
            try:
                if found is not None:
                    self.fleet.update(found)
                else:
                    log.warning("devices can't be probed: %s", error)
            finally:
                on_done()

        # In a thread: probing takes tens of milliseconds and may hang in a driver.
        text = "probing the devices of the configuration"
        self.checks.submit(lambda: probe(self.config), on_probed, text=text)

    def devices(self) -> DeviceList:
        failures, now = self.planning.failures, time.monotonic()
        disabled = dict.fromkeys(sorted(self.disabled), DISABLED)
        absent = {**self.fleet.absent, **failures.quarantined(now), **disabled}
        return DeviceList(self.fleet.infos, absent, failures.restricted(now))

    def switch_devices(self, enable: Sequence[str], disable: Sequence[str]) -> None:
        """Let later jobs, and running iterative ones, use devices or not.

        Raises UsageError; then nothing has changed.
        """
        names = [info.name for info in self.fleet.infos]
        for name in (*enable, *disable):
            if name not in names:
                raise errors.UsageError(
                    f"no device {quoted(name)}; devices here: {', '.join(names)}"
                )
        self.disabled.difference_update(enable)
        self.disabled.update(disable)
        self.planning.plans.clear()  # they may have these devices
        self.scheduler.tell(attempt.PauseRequested())

    def activities(self) -> tuple[DeviceActivity, ...]:
        return tuple(
            activity
            for runner in self.scheduler.runners.values()
            if not self.scheduler.is_held(runner)
            for activity in job_activity(runner.snapshot())
        )

    def drain(self, on_drained: Callable[[], None]) -> None:
        """Refuse new jobs, drop queued ones, stop the running one between chunks (exit 75)."""
        self._on_drained = on_drained
        self.table.is_stopping = True

        def end_checks() -> None:
            for job, check in self._submissions.items():
                if job.checked is None:  # the journal answers for the others
                    check.cancel()

        self.loop.call_soon(end_checks)  # a task that hasn't begun would end without a word
        self.scheduler.stop()

    def close(self) -> None:
        self.tuner.close()
        self.fleet.close()
        for step in [*self.checks.close(CLOSE_SECONDS), *self.disk.close(CLOSE_SECONDS)]:
            log.warning("a thread still hangs at the end: %s", step)
        if not self.planner_thread.close(CLOSE_SECONDS):
            self.planning.store.close()
        else:
            log.warning("the planner's thread hangs: models.db isn't closed")

    def on_no_job(self) -> None:
        if self._submissions:
            return
        if not self.table.is_stopping:
            self.tuner.on_idle()
        self.on_idle()
        if self._on_drained is not None:
            on_drained, self._on_drained = self._on_drained, None
            on_drained()
