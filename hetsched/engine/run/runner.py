"""The whole life of a job's run, from its arrays to its report."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hetsched import errors
from hetsched.device import DeviceInfo
from hetsched.device_process.tuning import KIND as TUNED
from hetsched.engine.failures import JobFailures
from hetsched.engine.planning import (
    JobKind,
    computed_seconds,
    find_candidates,
    first_plan,
    job_kind,
    learn_rows,
    learn_run,
    next_plan,
)
from hetsched.engine.processes.fleet import Lost, Message
from hetsched.engine.run.arrays import JobArrays
from hetsched.engine.run.attempt import Attempt, Event, PauseRequested, StartOver, WasHeld
from hetsched.engine.run.compute import Computation
from hetsched.engine.run.epochs import IterationState
from hetsched.engine.run.iterate import Iterations
from hetsched.engine.run.report import JobSnapshot, Notes, job_report, progress, subject_of
from hetsched.engine.run.saves import Saves
from hetsched.job import ArenaRef, Done, Failed, Running, outcome, words
from hetsched.jobs.table import JobRecord, report_without_run
from hetsched.planner.learning import DeviceRun, Run, makespan
from hetsched.planner.records import JobPlan
from hetsched.text import named_rows
from hetsched.units import counted

if TYPE_CHECKING:
    from hetsched.engine.engine import Engine

log = logging.getLogger(__name__)

T = TypeVar("T")
LearningTask = Callable[[], None]
"""For the planner's thread: learn from a run and plan the next."""

PROGRESS_SECONDS = 0.1
"""Minimum interval between two progress states of a job."""


class JobRunner:
    """Runs one job whose files are open; with a `plan` on one core, beside another job."""

    def __init__(self, record: JobRecord, engine: Engine, plan: JobPlan | None = None) -> None:
        self.record, self.engine = record, engine
        self.number, self.spec = record.number, record.next_spec
        self.job = job = record.opened
        self.is_small = plan is not None  # It runs beside another job, on one core
        if plan is not None:
            own = tuple(each.device for each in plan.assignments)
            self.job = dataclasses.replace(job, devices=own)
        self._plan_beside = plan
        self._notes = Notes()
        self.arrays: JobArrays = JobArrays(
            self.job, engine.arena, record.owner, needs_saved=bool(self.spec.checkpoint)
        )
        self.failures = JobFailures(engine.planning.failures, job.kind, lambda: engine.fleet.infos)
        # The last attempt with a plan: the subject of reports and explanations
        self.latest: Attempt | None = None
        # Inputs have been generated and outputs poisoned; a later attempt skips this
        self.inputs_filled = False
        # Small jobs that ran beside this one, so its times aren't those of a job that runs alone
        self.small_jobs_beside = 0
        # The job ends with it once its state is saved; `stop_begun_at`: when that was requested
        self.stop_error: BaseException | None = None
        self.stop_begun_at = math.inf
        self.iterations: IterationState | None = None
        self.saves: Saves | None = None
        if job.iterative is not None:
            self.iterations = IterationState(
                self.job.devices,
                job.iterative.max_iterations,
                hold_every=self.spec.hold_every,
            )
            self.saves = Saves(self, self.iterations)
        # Done once the job's files are closed: only then its next run may open them. None: none
        # was open, as in an iterative job whose only file is its checkpoint.
        self.files_closed: asyncio.Future[None] | None = None
        # Of the last plan: its devices, and those of the machine without a process then
        self._infos: Sequence[DeviceInfo] = ()
        self._unstarted: Collection[str] = ()
        self._task: asyncio.Task[None] | None = None
        self._attempt: Attempt | None = None  # The present one, while devices work for it
        self._abort_error: BaseException | None = None
        self._has_begun = self._is_past_abort = False
        self._reported_at = -math.inf

    def begin(self) -> None:
        self._task = self.engine.loop.create_task(self._run())

    def abort(self, error: BaseException, *, saves_state: bool = False) -> None:
        """Stop between chunks: send nothing more and wait for the chunks already sent.

        `saves_state`: an iterative job with checkpoints first finishes its iteration and saves it,
        unless it is asked a second time.
        """
        if self._is_past_abort or self._task is None:
            return
        attempt, is_stopping = self._attempt, self.is_stopping
        can_save = self.saves is not None and self.saves.can_save and saves_state
        if attempt is not None and attempt.step == "computing" and can_save and not is_stopping:
            if self.stop_error is None:
                self.stop_error, self.stop_begun_at = error, time.monotonic()
                attempt.post(PauseRequested())
                return
            if not isinstance(error, errors.Cancelled):  # the state is being saved already
                return
        self._abort_error = self._abort_error or error
        if attempt is not None and is_stopping:
            attempt.hurry()
            return
        if attempt is not None:  # its task would notice the end only when it has to wait
            attempt.inbox = deque(event for event in attempt.inbox if isinstance(event, Lost))
        if self._has_begun:  # a task that hasn't would end without a word
            self._task.cancel()

    def tell(self, event: Event) -> None:
        attempt = self._attempt
        if attempt is None or (isinstance(event, Message) and event.message.attempt != attempt.id):
            return
        attempt.post(event)

    def uses(self, device: str) -> bool:
        return self.latest is not None and device in self.latest.assignments

    @property
    def is_stopping(self) -> bool:
        return self._attempt is not None and self._attempt.is_stopping

    def outlook(self) -> tuple[float, Collection[str]] | None:
        """Return the seconds that it still needs, and the devices that still work for it.

        None: nothing may run beside it, or it isn't known what remains.
        Nothing runs beside explicit measurements, iterations or a core team (they wait for the
        slowest core), devices with a virtual clock or in threads; nor while kernels are made,
        which takes up to a minute.
        """
        attempt, job = self._attempt, self.job
        if attempt is None or attempt.is_stopping:
            return None
        if attempt.step not in ("generating", "computing"):
            return None
        if self.iterations is not None or job.in_threads or job.measure:
            return None
        infos = [attempt.infos[device] for device in attempt.assignments]
        if any(info.members or info.clock == "virtual" for info in infos):
            return None
        seconds, devices = attempt.plan.predicted_seconds, frozenset(attempt.assignments)
        if attempt.computation is not None:
            dispatcher = attempt.computation.dispatcher
            seconds = dispatcher.remaining_seconds(time.monotonic())
            devices = dispatcher.busy_devices()
        return None if seconds is None else (seconds, devices)

    def snapshot(self) -> JobSnapshot:
        plan = self.latest.plan if self.latest else JobPlan((), None)
        runs = self.latest.runs() if self.latest else {}
        history = self.iterations.history.history() if self.iterations else None
        subject = subject_of(self.job, self.number, words(self.record.state)[-1], self.notes())
        return JobSnapshot(subject, plan, runs, history)

    def note(self, text: str, *, instead_of: str = "") -> None:
        self._notes.add(text, instead_of)

    def warn(self, text: str) -> None:
        self.note(text)
        log.warning("job %d: %s", self.number, text)

    def notes(self) -> list[str]:
        notes = self._notes.all()
        if self.small_jobs_beside:
            notes.append(f"{counted(self.small_jobs_beside, 'small job')} ran beside it")
        return notes

    def report_progress(self, attempt: Attempt, text: str = "", *, force: bool = False) -> None:
        now = time.monotonic()
        self._notes.measure_step(text, now)
        if force or now - self._reported_at >= PROGRESS_SECONDS:
            self._reported_at = now
            self.engine.table.change(self.record, progress(self, attempt, text))

    def report_planning(self, text: str = "") -> None:
        if self._task is not None:  # else the job was cancelled meanwhile
            self._notes.measure_step(text, time.monotonic())
            self.engine.table.change(self.record, Running(self.number, "preparing", text=text))

    async def _run(self) -> None:
        """Run the job; whatever happens, it ends once and its resources are released."""
        self._has_begun = True
        state: Done | Failed  # no exception, whose traceback would keep arrays alive
        runs: Mapping[str, DeviceRun] | None = None
        try:
            if self._abort_error is not None:
                raise self._abort_error
            state, runs = await self._run_to_end()
        except asyncio.CancelledError:
            stopped = errors.TryAgain("the engine has stopped; try again")
            state = self._failed(errors.to_record(self._abort_error or stopped))
        except Exception as failure:
            record = errors.to_record(failure)
            if record.code == errors.InternalError.code:
                log.exception("job %d: %s", self.number, record.message)
            elif record.frames:
                log.warning("job %d: %s\n%s", self.number, record.message, record.frames)
            state = self._failed(record)
        self._is_past_abort = True
        self._abort_error = self.stop_error = None
        self._end(state, runs)

    async def _run_to_end(self) -> tuple[Done | Failed, Mapping[str, DeviceRun] | None]:
        """Return the last state, and the part of each device if the run is a typical one."""
        self.arrays.place()
        for note in self.arrays.notes:
            self.note(note)
        if self.job.finished:
            units = sum(end - first for first, end in self.job.finished)
            self.note(f"continued: {units} of {self.job.load} units were complete on disk")
        await self.arrays.load_inputs(self.engine)
        attempt = await self._attempts()
        unconverged = self._convergence_error()
        runs = attempt.runs()
        report = job_report(self, runs)
        if self.job.outputs:
            self._is_past_abort = True  # from now on files get their names
            await self.arrays.publish(self.engine, self.record)
        if unconverged is not None:
            return self._failed(errors.to_record(unconverged), self.arrays.take_results()), None
        self.failures.record_success(attempt.chunk_counts())
        one_pass = attempt.computation
        is_typical = one_pass is not None and not one_pass.has_lost_device
        done = Done(self.number, report, self.arrays.take_results())
        return done, runs if is_typical and not self.job.finished else None

    async def _attempts(self) -> Attempt:
        """Start the job until it is computed; return the attempt that has done it."""
        wait_for_restarts = was_held = False
        while True:
            if not self.is_small:
                self.engine.fleet.run_loops(self.job.devices, in_threads=self.job.in_threads)
            infos, starting = await self._usable_devices(wait_for_restarts)
            try:
                names = {info.name for info in infos}
                if was_held and self.latest is not None and names == self.latest.infos.keys():
                    plan = self.latest.plan
                elif self._plan_beside is None:
                    plan = await self._plan(infos)
                elif self.latest is None:
                    plan = self._plan_beside
                else:  # its plan has failed: the job needs all devices to choose from
                    raise errors.TryAgain("the job will run alone")
            except errors.Unavailable as error:
                if starting:  # none of the others has a variant
                    wait_for_restarts = True
                    continue
                if self.failures.excluded:  # the others have no variant of this workload
                    raise self.failures.error() from error
                if absent := _listed(self.engine.fleet.absent):
                    raise errors.Unavailable(
                        f"{error}; devices not available: {absent}"
                    ) from error
                raise
            wait_for_restarts = False
            restarting = [device for device in self.job.devices if device in starting]
            if self.latest is None and restarting:
                text = f"began without {named_rows(restarting)}: the process is starting again"
                self.note(text)
            attempt = self.latest = Attempt(self, plan, infos)
            try:
                await self._run_attempt(attempt)
            except StartOver as reason:
                # The end may have been requested while devices were stopped.
                if (end := self._abort_error or self.stop_error) is not None:
                    raise end from None
                self.failures.reason, was_held = str(reason), isinstance(reason, WasHeld)
                log.info("job %d: starts over: %s", self.number, reason)
            else:
                return attempt

    async def _run_attempt(self, attempt: Attempt) -> None:
        fleet, devices = self.engine.fleet, attempt.assignments.keys()
        await fleet.started(devices)
        if not fleet.devices("ready") >= devices:
            raise StartOver("a device process ended while the job was planned")
        attempt.infos.update((device, fleet.info(device)) for device in devices)
        self._attempt = attempt
        try:
            await attempt.prepare()
            if self.iterations is None:
                await Computation(attempt).run()
            else:
                await Iterations(attempt).run()
            if self.spec.verify and self._convergence_error() is None:
                await attempt.verify()
            attempt.release()
        except GeneratorExit:  # raised when the loop has ended
            raise
        except BaseException as error:
            await attempt.stop(is_cancelled=isinstance(error, asyncio.CancelledError))
            raise
        finally:
            attempt.close()
            self._attempt = None

    async def _usable_devices(self, wait_for_restarts: bool) -> tuple[list[DeviceInfo], set[str]]:
        """Return the devices usable now, and those that are starting."""
        fleet, failures, disabled = self.engine.fleet, self.failures, self.engine.disabled
        devices = failures.remaining(self.job.devices)
        # That others are ready is no reason not to wait for the restart of these.
        unusable = {*disabled, *failures.reasons_against(devices)}
        awaited = [name for name in devices if name not in unusable] or devices
        await fleet.settled(awaited, with_restarts=wait_for_restarts)
        failures.count_attempt()
        for device, reason in failures.reasons_against(devices).items():
            failures.excluded[device] = reason
            self.note(f"{device}: {reason}")
        usable = fleet.devices("ready", "unneeded")  # the latter once they are started
        infos = [fleet.info(name) for name in failures.remaining(devices) if name in usable]
        enabled = [info for info in infos if info.name not in disabled]
        has_begun = self.iterations is not None and self.iterations.finished >= 0
        if not enabled and not (has_begun and infos):  # it waits for them with its results
            if failures.excluded:
                raise failures.error()
            own = sorted(disabled.intersection(self.job.devices))
            absent = _listed({**fleet.absent, **dict.fromkeys(own, "disabled")})
            raise errors.Unavailable(
                f"no device is available for this job ({absent or 'none configured'})"
            )
        if self.iterations is None:  # an iterative job may use others once they are enabled
            infos = enabled
        starting = fleet.devices("starting", "restarting").intersection(devices)
        return infos, starting.difference(failures.excluded)

    # ---- planning and learning

    async def _plan(self, infos: Sequence[DeviceInfo]) -> JobPlan:
        """Plan an attempt: at once if the kind of job has a plan. Raises Unavailable."""
        job, state = self.job, self.engine.planning
        if self.iterations is not None:
            plan, balance = await self._in_planner(
                lambda: first_plan(job, self.spec, infos, state)
            )
            working = [each.device for each in plan.assignments if each.chunks]
            self.iterations.balance_with(balance, working)
            return plan
        self._infos = infos
        self._unstarted = self.engine.fleet.devices("unneeded")
        await self._tune()
        if (known := self._known_plan()) is not None:
            return known
        # By now the previous job may have been learnt from, and this one planned.
        return await self._in_planner(lambda: self._known_plan() or self._new_plan())

    async def _tune(self) -> None:
        """Tell what was tuned for this job; tune for it now if the engine may not idle later."""
        tuner, job = self.engine.tuner, self.job
        kind = tuner.kind(job)
        while kind.news:
            self.note(kind.news.pop(0))
        # Not again before jobs have computed twice as long
        is_due = tuner.is_before_jobs and kind.computed >= 2 * kind.seen
        if is_due and not job.measure and self.latest is None:
            state = self.engine.planning
            computed = await self._in_planner(
                lambda: computed_seconds(find_candidates(job, self._infos, state), job.load)
            )
            await tuner.tune_now(kind, computed, self.report_planning)

    async def _in_planner(self, make: Callable[[], T]) -> T:
        # The job counts as running from here on: code of its workload might end the daemon.
        self.report_planning()
        return await self.engine.planner_thread.call(make)

    @property
    def _kind(self) -> JobKind:
        return job_kind(self.job, [info.name for info in self._infos])

    def _known_plan(self) -> JobPlan | None:
        return None if self.job.measure else self.engine.planning.plans.get(self._kind)

    def _new_plan(self) -> JobPlan:
        state = self.engine.planning
        generation = state.plans.generation
        # With the memory that devices have now, not when the job started.
        current = {info.name: info for info in state.machine()}
        infos = [current.get(info.name, info) for info in self._infos]
        plan = next_plan(self.job, infos, state, self._unstarted)
        if not self.job.measure:
            state.plans.put(self._kind, plan, generation)
        return plan

    def _learning_task(self, runs: Mapping[str, DeviceRun] | None) -> LearningTask | None:
        """Return what to learn from a run, if it is typical, and the plan of the next."""
        job, attempt, state = self.job, self.latest, self.engine.planning
        if attempt is None:
            return None
        if (iterations := self.iterations) is not None:
            return lambda: learn_rows(
                job, attempt.assignments, attempt.infos, iterations.measured(), state
            )
        if runs is None or not self._infos:
            return None  # a run beside another one adds nothing to measurements
        run = Run(attempt.plan, runs, state.machine(), self.small_jobs_beside > 0)
        kind = self._kind
        tuned = self.engine.tuner.kind(job)
        own = [each for each in runs.values() if each.chunks and each.info.variant_kind == TUNED]
        tuned.threads |= {each.info.threads for each in own}
        tuned.used = frozenset(each.assignment.variant for each in own)
        tuned.computed += makespan(runs)
        if job.measure:
            return lambda: learn_run(job, run, state, kind)
        if not state.plans.count_run(kind, run.plan, makespan(runs)):
            return None

        def learn_and_plan() -> None:
            learn_run(job, run, state, kind)
            self._new_plan()

        return learn_and_plan

    # ---- the end

    def _convergence_error(self) -> errors.JobFailed | None:
        iterations, declared = self.iterations, self.job.iterative
        if iterations is None or declared is None or not declared.must_converge:
            return None
        if iterations.has_converged:
            return None
        is_known = not math.isnan(iterations.residual)
        residual = f": residual {iterations.residual:.3g}" if is_known else ""
        count = counted(iterations.finished, "iteration")
        return errors.JobFailed(f"no convergence after {count}{residual}")

    def _end(self, state: Done | Failed, runs: Mapping[str, DeviceRun] | None) -> None:
        """Take all final steps, even if some of them raise."""
        learning_task = functools.partial(self._try, self._learning_task, runs)
        if self.saves is not None:
            self.saves.close()
        self._try(self.arrays.close, self.engine.fleet)
        if self.job.files or self.job.outputs:
            is_stopped = isinstance(state, Failed) and state.error.code == errors.TryAgain.code
            keeps_parts = is_stopped and self.engine.table.is_stopping  # the next daemon goes on
            close = functools.partial(self.job.close, keeps_parts=keeps_parts)
            closed = self.files_closed = self.engine.loop.create_future()

            def on_closed(value: None, error: BaseException | None) -> None:
                if error is not None:
                    log.error("job %d: its files can't be closed: %s", self.number, error)
                closed.set_result(None)

            self._try(self.engine.disk.submit, close, on_closed)
        self._task = None
        self._try(self.engine.scheduler.on_run_ended, self, state, learning_task)
        # Cycles that refer to the caller's arrays are broken, so that these are freed now.
        self.latest = self.saves = None

    def _failed(
        self, error: errors.ErrorRecord, results: dict[str, ArenaRef] | None = None
    ) -> Failed:
        try:
            runs = self.latest.runs() if self.latest is not None else {}
            report = job_report(self, runs, error=error)
        except Exception:
            log.exception("job %d: no full report", self.number)
            report = report_without_run(self.record, outcome(error), error=error)
        return Failed(self.number, report, error, results or {})

    def _try(self, step: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return step(*arguments)
        except Exception:
            log.exception("job %d: unexpected error at the end of the job", self.number)
            return None


def _listed(absent: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in absent.items())
