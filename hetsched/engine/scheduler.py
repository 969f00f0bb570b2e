"""Runs the accepted jobs of an engine in the queue's order, and reports their states.

One main job has all devices; small ones run beside it, on a core each.
On the loop's thread only.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import logging
import time
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from hetsched import errors
from hetsched.bounded_cache import BoundedCache
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.planning import find_candidates
from hetsched.engine.processes.fleet import Lost
from hetsched.engine.run.attempt import Event
from hetsched.engine.run.report import MAX_KEPT_BYTES, MAX_KEPT_JOBS, JobSnapshot, subject_of
from hetsched.engine.run.runner import JobRunner, LearningTask
from hetsched.engine.threads import enter
from hetsched.job import Done, Failed, FileOut, Held, JobSpec, outcome
from hetsched.jobs.queue import Change, JobQueue
from hetsched.jobs.table import JobRecord, unstarted
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import JobPlan
from hetsched.store import output_files
from hetsched.store.journal_records import job_token
from hetsched.transport.loop import Timer

if TYPE_CHECKING:
    from hetsched.engine.engine import Engine

log = logging.getLogger(__name__)

MAX_TIMER_SECONDS = 5.0
"""Deadlines are times of day, which may be set: they are compared with the clock this often."""
SLOW_OPENING_SECONDS = 1.0
"""After this time in which a job's files are opened, others may start: they may be on a dead
mount."""
MAX_CONSIDERED = 32
"""First jobs in line that may start beside another: a long queue must not delay the loop."""
LOOK_SECONDS = 0.1
"""Between two looks at the line: what the main job still needs, and so what is small, changes."""
FLUSH_SECONDS = 0.5
"""Delay from a job's end to writing models.db: the next job must not wait for the disk."""
TRANSIENT_CODES = (errors.TryAgain.code, errors.Unavailable.code)
"""A small job's core, or its memory, wasn't there."""
SMALL_FRACTION = 0.05
"""Time of a small job on one core, as a fraction of the main job's remaining time."""
MIN_REMAINING_SECONDS = 0.02
"""Below this a waiting job's turn comes soon enough."""
MAX_PLANS = 256
"""Plans kept, some kilobytes each."""


class Scheduler:
    def __init__(self, engine: Engine) -> None:
        self._engine, self._admission = engine, engine.admission
        self._table = engine.table
        self.queue = JobQueue()
        self.runners: dict[int, JobRunner] = {}
        """By number: the main job's, and those of small ones, which may outlive it."""
        self._main: JobRunner | None = None
        self._latest = 0
        """Number of the last main job."""
        self._turns: dict[int, asyncio.Future[None]] = {}
        """Of jobs that are held between their iterations, by number."""
        self._small = SmallJobs(engine, self.advance)
        self._next_look: Timer | None = None
        # Of jobs whose turn has come; slow ones let others start
        self._openings: dict[int, asyncio.Task[None]] = {}
        self._slow_openings: set[int] = set()
        self._timeouts: dict[int, Timer] = {}
        self._deadline_timer: Timer | None = None
        self._flush_timer: Timer | None = None
        self._is_advancing = False
        # Ended jobs, to be explained
        self._kept: BoundedCache[int, JobSnapshot] = BoundedCache(
            max_entries=MAX_KEPT_JOBS, max_bytes=MAX_KEPT_BYTES
        )
        self._last_plan: JobPlan | None = None  # Of the last of these
        engine.table.discard = lambda outputs: engine.disk.submit(
            functools.partial(output_files.discard_all, outputs)
        )

    def enqueue(self, job: JobRecord) -> None:
        self._carry_out(self.queue.add(job, time.time()))
        error = stopping_error() if self._table.is_stopping else job.stop
        if error is not None:
            self.drop(job, error)
        elif self.queue.is_waiting(job):
            if job.spec.deadline is not None:
                self._watch_deadline()
            self._report(job)

    def recover(self, jobs: Iterable[JobRecord], ended: Iterable[JobRecord]) -> None:
        """Queue jobs of an earlier daemon; each is checked when its turn comes."""
        for job in ended:  # others may run after them
            if job.outcome is not None:
                self.queue.remember(job.number, job.outcome)
        now = time.time()
        for job in jobs:
            self._carry_out(self.queue.add(job, now, is_known=True))
        for job in self.queue.waiting():
            job.state = self.queue.position(job)
        self._watch_deadline()
        self.advance()

    def cancel(self, job: JobRecord) -> None:
        """Stop a job between chunks; at the first call, one with checkpoints saves its state."""
        self._stop(job, errors.Cancelled(f"job {job.number} was cancelled"), saves_state=True)
        self.advance()

    def stop(self) -> None:
        """Fail all waiting jobs, and stop running ones between chunks (exit 75)."""
        for job in reversed(self.queue.waiting()):  # those that run after others come first
            if job.number not in self.runners:
                self.drop(job, stopping_error())
        for opening in self._openings.values():
            opening.cancel()
        for runner in list(self.runners.values()):
            runner.abort(stopping_error(), saves_state=True)
        self.advance()

    def advance(self) -> None:
        """Start queued jobs until one stays active, then small ones beside it."""
        if self._is_advancing:  # a nested call leaves it to the outer loop
            return
        self._is_advancing = True
        try:
            while (job := self.queue.first()) is not None:
                opening = self._openings.keys() - self._slow_openings - self._small.plans.keys()
                if self._main is not None or opening:
                    break
                if self._small.plans and job.checked is not None and job.checked.in_threads:
                    break  # small jobs still run in processes, or are about to
                self._take_turn(job)
            if self._main is not None and self.queue.first() is not None:
                self._start_small(self._main)
        finally:
            self._is_advancing = False
        if not self.runners and not self._openings:
            self._engine.on_no_job()

    async def hold(self, runner: JobRunner, held: Held) -> bool:
        """Wait until a job is released and its turn comes; return whether no other had one."""
        job = runner.record
        job.held, job.is_held, self._main = held, True, None
        self.queue.put_back(job)
        self._report(job)
        turn = self._turns[job.number] = self._engine.loop.create_future()
        self.advance()
        try:
            await turn
        finally:
            del self._turns[job.number]
            if self.queue.is_waiting(job):  # it is being stopped: another turn would be in vain
                self.queue.start(job)
        latest, self._latest = self._latest, job.number
        return latest == job.number

    def is_held(self, runner: JobRunner) -> bool:
        return runner.number in self._turns

    def snapshot(self, job: JobRecord) -> JobSnapshot:
        """Return a running or ended job, to be explained. Raises TryAgain, InputMissing."""
        runner = self.runners.get(job.number)
        if runner is not None:
            running = runner.snapshot()
            if not running.plan.assignments:
                raise errors.TryAgain(
                    f"job {job.number} is still being planned; try again in a moment"
                )
            return running
        kept = self._kept.peek(job.number)
        if kept is not None:
            return kept
        if self.queue.is_waiting(job):
            raise errors.TryAgain(
                f"job {job.number} hasn't started; there is nothing to explain yet"
            )
        raise errors.InputMissing(
            f"job {job.number} ended too long ago; only the last {len(self._kept)} jobs can be"
            " explained"
        )

    def on_memory(self, device: str, has_changed: bool, is_released: bool) -> None:
        """Note that jobs may use another amount of a device's memory, or what it has released."""
        if has_changed:
            self._engine.planning.plans.clear()  # they were made for less or more
        if is_released:
            self._engine.planning.forget_kernels(device)

    def on_lost(self, device: str, reason: str) -> None:
        """Report the death of a device's process to all jobs.

        The main job isn't charged with it if a small one may be its cause, and nobody if a core
        was killed because a cancelled job didn't stop.
        """
        self._small.known.clear()
        self._engine.planning.forget_kernels(device)
        users = [each for each in self.runners.values() if each.uses(device)]
        charged = [each for each in users if each is not self._main] or users
        if any(each.is_stopping for each in users):
            charged = []
        for runner in list(self.runners.values()):
            runner.tell(Lost(device, reason, counts=runner in charged))

    def tell(self, event: Event) -> None:
        """Tell all jobs; each takes in what is about its present attempt."""
        for runner in list(self.runners.values()):
            runner.tell(event)

    def _report(self, job: JobRecord, reason: str = "") -> None:
        self._table.change(job, self.queue.position(job, reason))

    def _carry_out(self, changes: Iterable[Change]) -> None:
        for job, error in changes:
            if error is not None and job in self.queue:
                self._stop(job, error)
            elif error is not None:
                self._end_unstarted(job, error)
            elif self.queue.is_waiting(job):
                self._report(job)

    def _stop(
        self, job: JobRecord, error: errors.HetschedError, *, saves_state: bool = False
    ) -> None:
        """End a job with `error`; a running one between chunks. No effect if it has ended."""
        if self.queue.is_waiting(job) and job.number not in self.runners:
            self.drop(job, error)
        elif (opening := self._openings.get(job.number)) is not None:
            job.stop = error
            opening.cancel()
        elif (runner := self.runners.get(job.number)) is not None:
            job.stop = error  # a small job may fail meanwhile, and must not wait again
            runner.abort(error, saves_state=saves_state)
        else:  # it may still have to be accepted
            job.stop = error

    def drop(self, job: JobRecord, error: Exception) -> None:
        if job not in self.queue:
            return
        changes = self.queue.end(job, outcome(errors.to_record(error)))
        self._end_unstarted(job, error)
        self._carry_out(changes)

    def _end_unstarted(self, job: JobRecord, error: Exception) -> None:
        """Report the end of a job that isn't running and has left the queue."""
        opened: ResolvedJob | None = job.opened
        if opened is not None and opened.in_files:
            self._engine.disk.submit(opened.close)
        elif job.started_at is not None and not self._table.is_stopping:  # by an earlier daemon
            remove = functools.partial(_remove_unfinished, job.spec, self._output_token(job))
            self._engine.disk.submit(remove)
        snapshot = None
        if job.checked is not None:
            subject = subject_of(job.checked, job.number)
            snapshot = JobSnapshot(subject, JobPlan((), None), {})
        self._conclude(job, unstarted(job, errors.to_record(error)), snapshot)

    def _watch_deadline(self) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        deadline = self.queue.next_deadline()
        if deadline is not None:
            seconds = min(max(0.0, deadline - time.time()), MAX_TIMER_SECONDS)
            self._deadline_timer = self._engine.loop.call_later(seconds, self._on_deadline)

    def _on_deadline(self) -> None:
        self._carry_out(self.queue.expire(time.time()))
        self._watch_deadline()
        self.advance()

    def _start_small(self, main: JobRunner) -> None:
        """Start those of the first jobs in line that are small beside `main`."""
        outlook = main.outlook() if self._engine.config.queue.small_jobs else None
        if outlook is None:
            return
        try:
            for job in list(itertools.islice(self.queue.ready(), MAX_CONSIDERED)):
                plan = self._small.plan_beside(*outlook, job)
                if plan is not None and self.queue.is_waiting(job) and job.is_ready:
                    self._small.plans[job.number] = plan
                    self._take_turn(job)
        except Exception:  # the main job goes on
            log.exception("unexpected error in the choice of small jobs")
        if self._next_look is None:
            self._next_look = self._engine.loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._next_look = None
        self.advance()

    def _take_turn(self, job: JobRecord) -> None:
        self.queue.start(job)
        if (turn := self._turns.get(job.number)) is not None:
            self._main = self.runners[job.number]
            if not turn.done():  # else it is being stopped
                turn.set_result(None)
            return
        job.turn = job.turn or time.monotonic()
        if job.opened is not None:
            self._run(job)
            return
        opening = self._engine.loop.create_task(self._open(job))
        opening.add_done_callback(functools.partial(self._on_opened, job))
        self._openings[job.number] = opening

        def on_slow() -> None:
            if not opening.done():
                self._slow_openings.add(job.number)
                self._small.plans.pop(job.number, None)
                self.advance()

        self._engine.loop.call_later(SLOW_OPENING_SECONDS, on_slow)

    async def _open(self, job: JobRecord) -> None:
        if job.checked is None:
            await self.check_again(job)
        if job.files_closed is not None:
            await asyncio.wait([job.files_closed])  # else they would be removed under a new run
        if job.opened is None:
            token = self._output_token(job)
            job.opened = await self._admission.open(job.next_spec, job.checked, token)

    async def check_again(self, job: JobRecord) -> None:
        """Check a job that an earlier daemon has accepted. Raises why it can't run."""
        checked = await self._admission.check(job.next_spec, is_readmitted=True)
        if job.checked is None and job in self.queue:  # it may have started or ended meanwhile
            self.note_checked(job, checked)

    def _on_opened(self, job: JobRecord, opening: asyncio.Task[None]) -> None:
        del self._openings[job.number]
        self._slow_openings.discard(job.number)
        error = job.stop or (stopping_error() if self._table.is_stopping else None)
        if error is None:
            failure = opening.exception()
            error = failure if isinstance(failure, Exception) else None
        try:
            if error is not None:
                self.drop(job, error)
            elif self._main is not None and job.number not in self._small.plans:
                self.queue.put_back(job)  # another has started meanwhile
            else:
                self._run(job)
        finally:
            self.advance()

    def note_checked(self, job: JobRecord, checked: ResolvedJob) -> None:
        """Note what a job uses; it can start at once if it has no files to open."""
        job.checked = checked
        job.opened = None if checked.in_files else checked
        self._table.uses.add(job)

    def _output_token(self, job: JobRecord) -> str:
        """Return what names hidden output files; "": no later daemon goes on with the job."""
        token = self._engine.journal_token
        return job_token(token, job.number) if self._table.is_written(job) else ""

    def _run(self, job: JobRecord) -> None:
        plan = self._small.plans.get(job.number)
        try:
            runner = JobRunner(job, self._engine, plan)
        except Exception as error:
            log.exception("job %d can't start", job.number)
            self.drop(job, error)
            return
        if (timeout := job.spec.timeout) is not None:
            text = f"job {job.number} ran longer than its timeout of {timeout:g} s"
            expired = functools.partial(self._stop, job, errors.JobFailed(text))
            self._timeouts[job.number] = self._engine.loop.call_later(timeout, expired)
        self.runners[job.number] = runner
        if plan is None:
            self._main = runner
            self._latest = job.number
            runner.small_jobs_beside = sum(each.is_small for each in self.runners.values())
        elif self._main is not None:
            self._main.small_jobs_beside += 1
            runner.note(f"ran beside job {self._main.number}, on {plan.assignments[0].device}")
        self._engine.tuner.on_job()
        runner.begin()

    def on_run_ended(
        self,
        runner: JobRunner,
        state: Done | Failed,
        learning_task: Callable[[], LearningTask | None],
    ) -> None:
        """Report the end of a job, or run it again; then learn from the run."""
        job = runner.record
        del self.runners[job.number]
        if runner is self._main:
            self._main = None
            self._small.known.clear()  # what is learnt from it changes the models
        if (timer := self._timeouts.pop(job.number, None)) is not None:
            timer.cancel()
        try:
            runs_again = isinstance(state, Failed) and self._runs_again(job, state, runner)
        except Exception:  # a job whose end gets lost would hang its client
            log.exception("job %d: unexpected error at its end; it isn't rerun", job.number)
            runs_again = False
        try:
            if not runs_again:
                self._end_started(job, state, runner.snapshot())
            if (task := learning_task()) is not None:
                self._engine.planner_thread.submit(task)
                if self._flush_timer is None:
                    flush = self._flush_models
                    self._flush_timer = self._engine.loop.call_later(FLUSH_SECONDS, flush)
        finally:
            self.advance()

    def _flush_models(self) -> None:
        self._flush_timer = None
        self._engine.planner_thread.submit(self._engine.planning.store.flush)

    def _runs_again(self, job: JobRecord, state: Failed, runner: JobRunner) -> bool:
        if self._table.is_stopping or job.prepared:
            return False
        reason = ""
        lacks_core = state.error.code in TRANSIENT_CODES or bool(runner.failures.excluded)
        if job.stop is None and runner.is_small and lacks_core:
            job.runs_alone = True
            self.queue.put_back(job)
        elif self.queue.requeue(job, state.error.code):
            text = f"run {job.failures} failed: {state.error.message}"
            job.failure_notes.append(text)
            reason = f"retry {job.failures} of {job.retries}: {text}"
            log.warning("job %d: %s; retry %d of %d", job.number, text, job.failures, job.retries)
        else:
            return False
        # The next run goes on from there.
        if runner.saves is not None and runner.saves.has_checkpoint:
            job.checkpoint = job.spec.checkpoint
        job.stop = None
        job.opened = None if job.checked.in_files else job.checked
        job.files_closed = runner.files_closed
        self._small.plans.pop(job.number, None)
        self._report(job, reason)
        return True

    def _end_started(self, job: JobRecord, state: Done | Failed, snapshot: JobSnapshot) -> None:
        """Report the end of a running job, then what follows for those that run after it."""
        changes: list[Change] = []
        try:
            error = state.error if isinstance(state, Failed) else None
            changes = self.queue.end(job, outcome(error))
        except Exception:
            log.exception("job %d: unexpected error in the queue", job.number)
        report = replace(
            state.report,
            whole_seconds=time.monotonic() - job.turn,
            notes=(*state.report.notes, *job.failure_notes),
        )
        state = replace(state, report=report)
        self._conclude(job, state, snapshot)
        self._carry_out(changes)

    def _conclude(
        self, job: JobRecord, state: Done | Failed, snapshot: JobSnapshot | None
    ) -> None:
        """Release what refers to a job, and report its end. No exception may block the next."""

        def keep() -> None:
            if snapshot is None:
                return
            error = state.error.message if isinstance(state, Failed) else None
            subject = replace(snapshot.subject, state=state.report.state, error=error)
            kept = dataclasses.replace(snapshot, subject=subject)
            self._kept.put(state.job, kept, kept.nbytes(self._last_plan))
            self._last_plan = kept.plan  # many jobs follow the same plan

        steps: tuple[Callable[[], None], ...] = (
            lambda: self.release(job),
            lambda: self._table.report_end(job, state),
            keep,
        )
        for step in steps:
            try:
                step()
            except Exception:
                log.exception("job %d: unexpected error while reporting its end", job.number)

    def release(self, job: JobRecord) -> None:
        self._small.plans.pop(job.number, None)
        if job.checked is not None:
            self._table.uses.remove(job)
        job.release_segments()


class SmallJobs:
    """Which waiting job may start beside the main one, on one of its cores. One at a time each."""

    def __init__(self, engine: Engine, on_planned: Callable[[], None]) -> None:
        self._engine, self._on_planned = engine, on_planned
        # Of the kinds of jobs on each core; None: being planned, or there is no plan
        self.known: BoundedCache[tuple[bytes, str], JobPlan | None] = BoundedCache(
            max_entries=MAX_PLANS
        )
        # Number of a small job that runs or is being opened -> its plan, on one core
        self.plans: dict[int, JobPlan] = {}

    def plan_beside(
        self, remaining_seconds: float, devices: Collection[str], job: JobRecord
    ) -> JobPlan | None:
        """Return the plan for a core beside the main job, whose `devices` have something to do."""
        checked: ResolvedJob | None = job.checked
        if checked is None or job.runs_alone or checked.measure or checked.iterative is not None:
            return None
        if checked.in_threads:  # while that of the main job runs in processes
            return None
        if remaining_seconds < MIN_REMAINING_SECONDS:
            return None
        if not self._engine.table.uses.may_overtake(job):
            return None
        fleet = self._engine.fleet
        cores = {info.name for info in fleet.infos if info.is_shareable}
        cores &= fleet.devices("ready").intersection(checked.devices) - self._engine.disabled
        cores -= {plan.assignments[0].device for plan in self.plans.values()}
        if not cores:
            return None
        core = min(cores, key=lambda name: (name in devices, name))
        kind = (checked.reference, checked.params, checked.load, checked.storage)
        key = msgspec.json.encode(kind), core
        if key not in self.known:
            self.known.put(key, None)
            self._request(key, checked, core)
        plan = self.known.get(key)
        if plan is None or plan.predicted_seconds is None:
            return None
        is_small = plan.predicted_seconds <= SMALL_FRACTION * remaining_seconds
        return plan if is_small else None

    def _request(self, key: tuple[bytes, str], checked: ResolvedJob, core: str) -> None:
        """Plan all of a job for a core, by the measurements of equal ones."""
        fleet, state = self._engine.fleet, self._engine.planning
        cores = [info for info in fleet.infos if info.is_shareable]
        equal = [info for info in cores if info.identity == fleet.info(core).identity]

        def plan() -> JobPlan:
            candidates = find_candidates(checked, equal, state)
            return plan_job(checked.load, candidates, {core: checked.load}, cache=state.plan_cache)

        def planned(plan: JobPlan | None, error: BaseException | None) -> None:
            if plan is not None:
                self.known.put(key, plan)
                self._on_planned()

        self._engine.planner_thread.submit(plan, planned)


def stopping_error() -> errors.TryAgain:
    return errors.TryAgain("hetsched is stopping; submit the job again later")


def _remove_unfinished(spec: JobSpec, token: str) -> None:
    """Remove what an earlier daemon has left of a job that won't go on."""
    for output in spec.outputs.values():
        if token and isinstance(output, FileOut):
            enter(f"removing what is left of {output.path}")
            output_files.remove_unfinished(output.path, token)
