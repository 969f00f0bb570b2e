"""Plans one run of a job, and in advance the next run of the same kind of job.

Planning takes a millisecond, or ten with cold caches; a repeated job's plan is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hetsched.device import DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.context import EngineContext
from hetsched.engine.planning.device_run import DeviceRun, makespan
from hetsched.engine.planning.learning import learn
from hetsched.engine.planning.next_plan import next_plan
from hetsched.engine.planning.planner_thread import OnDone
from hetsched.engine.planning.repeated_jobs import JobKind, job_kind
from hetsched.engine.planning.run_backlog import (
    GATHERED_SECONDS,
    MAX_WAIT_FACTOR,
    FinishedRun,
    gathered_runs,
)
from hetsched.engine.planning.run_quality import run_quality
from hetsched.planner.races.prediction import predicted_race
from hetsched.planner.records import JobPlan

MAX_DEFERRED = 2
"""Consecutive jobs of an unfamiliar kind with one plan before the first of them has been learnt
from. Arbitrary."""
MAX_ROUTINE_SECONDS = 1.0
"""Longer runs are learnt from one by one: 10 ms of processor time, 1 % of the run at most.
Arbitrary."""


@dataclass(frozen=True)
class LearningTask:
    """A function for the planner's thread: learn from a run and plan the next.

    Attributes
    ----------
    kind : JobKind or None
        Of the job, if the function also learns from the earlier runs of its kind.
    is_routine : bool
        It has time, as the run went as usual and the next job has a plan.
    may_write_late : bool
        What it has learnt may be written to disk later: it is one of many such runs.
    """

    function: Callable[[], None]
    kind: JobKind | None = None
    is_routine: bool = False
    may_write_late: bool = False


class RunPlanner:
    """The planner of one start of a job, on the devices usable at that time.

    Parameters
    ----------
    infos : sequence of DeviceInfo
    memory_limit : int or None, bytes
        Of each device's own memory.
    """

    def __init__(
        self,
        job: ResolvedJob,
        infos: Sequence[DeviceInfo],
        memory_limit: int | None,
        context: EngineContext,
    ) -> None:
        self._job = job
        self._infos = infos
        self._memory_limit = memory_limit
        self._unstarted = context.fleet.unstarted()
        self._cold_devices = {info.name for info in infos if may_be_cold(info)}
        self._planner_thread = context.planner_thread
        self._state = context.planning
        self.kind = job_kind(job, (info.name for info in infos), memory_limit)

    def begin(self, on_planned: OnDone) -> None:
        """Call ``on_planned(plan, error)``: at once with a plan made in advance, else later."""
        plan = self._take_ready_plan()
        if plan is None:
            self._planner_thread.submit(lambda: self._predicted(self._plan()), on_planned)
        else:
            on_planned(self._predicted(plan), None)

    def learning_task(
        self, plan: JobPlan, runs: Mapping[str, DeviceRun], *, is_contended: bool = False
    ) -> LearningTask:
        """Return a task for the planner's thread: learn from a run and plan the next.

        Only for runs in which no device was lost. Until the task is done, the next job of this
        kind reuses the same plan, if it was good. `is_contended`: other jobs used its cores.
        """
        run = FinishedRun(plan, runs, is_contended, self._fresh_devices(runs))
        if self._job.measure:
            return LearningTask(lambda: learn(self._job, [run], self._state, self.kind))
        backlog = self._state.backlog
        is_familiar = backlog.is_familiar(self.kind)
        waiting = backlog.add(self.kind, run)
        seconds = makespan(runs)
        gathered = gathered_runs(seconds)
        is_recent = waiting <= (MAX_WAIT_FACTOR * gathered if is_familiar else MAX_DEFERRED)
        # After a run in fresh processes its prediction no longer holds.
        is_repeatable = is_recent and not is_contended and not run.fresh
        is_short = is_familiar and seconds <= MAX_ROUTINE_SECONDS
        has_time = is_repeatable and self._offer_plan(
            plan,
            runs,
            is_familiar=is_familiar,
            is_short=is_short,
            is_brief=is_familiar and waiting * seconds < GATHERED_SECONDS,
        )

        def learn_and_plan() -> None:
            unlearnt = backlog.take(self.kind)
            if not unlearnt:
                return  # the task of an earlier run has learnt from this one, too
            learn(self._job, unlearnt, self._state, self.kind)
            self._take_ready_plan()
            clearings = self._state.repeated_jobs.clearings
            self._state.repeated_jobs.put_plan(self.kind, self._plan(), clearings)

        return LearningTask(
            learn_and_plan,
            self.kind,
            is_routine=has_time and is_short and waiting <= gathered,
            may_write_late=is_short,
        )

    def _offer_plan(
        self,
        plan: JobPlan,
        runs: Mapping[str, DeviceRun],
        *,
        is_familiar: bool,
        is_short: bool,
        is_brief: bool,
    ) -> bool:
        """Offer the next job a plan that serves until this run has been learnt from, if any does.

        Returns whether this run has time to be learnt from: it went as usual, was a single short
        one that didn't, one of a few brief ones, or a race of variants, and the plan before it
        serves as well.
        """
        repeated, quality = self._state.repeated_jobs, run_quality(plan, runs)
        is_usual = is_familiar and self._state.backlog.is_usual(
            self.kind, quality, passes_single=is_short
        )
        if is_usual or quality.is_good or (is_brief and not quality.is_trial):
            repeated.repeat_plan(self.kind, plan)
            return True
        if quality.is_trial and is_familiar:
            has_steady_plan = repeated.offer_steady_plan(self.kind)
            return has_steady_plan and plan.only_races
        repeated.drop_steady_plan(self.kind)
        return False

    def _fresh_devices(self, runs: Mapping[str, DeviceRun]) -> frozenset[str]:
        """Return devices whose process ran its variant for the first time, and record that."""
        kernels = self._state.kernels
        assignments = [
            run.assignment for run in runs.values() if run.chunks and may_be_cold(run.info)
        ]
        fresh = [each.device for each in assignments if kernels.is_first_run(self._job, each)]
        for assignment in assignments:
            kernels.record_run(self._job, assignment)
        return frozenset(fresh)

    def _plan(self) -> JobPlan:
        # By now the previous job may have been learnt from, and this one planned.
        return self._take_ready_plan() or next_plan(
            self._job, self._current_infos(), self._state, self._memory_limit, self._unstarted
        )

    def _predicted(self, plan: JobPlan) -> JobPlan:
        """Return `plan`, which is for warm processes, as these processes will run it."""
        kernels = self._state.kernels
        return predicted_cold(
            predicted_race(plan),
            [
                assigned.device
                for assigned in plan.assignments
                if assigned.device in self._cold_devices
                and kernels.is_first_run(self._job, assigned)
            ],
        )

    def _current_infos(self) -> list[DeviceInfo]:
        """Return the devices with the memory that they have now, not when the job started."""
        current = {info.name: info for info in self._state.machine()}
        return [current.get(info.name, info) for info in self._infos]

    def _take_ready_plan(self) -> JobPlan | None:
        return None if self._job.measure else self._state.repeated_jobs.take_plan(self.kind)


def may_be_cold(info: DeviceInfo) -> bool:
    """Return whether the first run in a process may be slower: a core with a real clock."""
    return info.kind == "cpu" and info.clock == "wall"


def predicted_cold(plan: JobPlan, fresh: Collection[str]) -> JobPlan:
    """Return `plan` with the predictions that hold if the processes of `fresh` are fresh."""
    ratios = {
        assigned.device: assigned.model.cold.ratio(assigned.plan.share)
        for assigned in plan.assignments
        if assigned.device in fresh and assigned.model is not None and assigned.plan.share > 0
    }
    if all(ratio == 1.0 for ratio in ratios.values()) or plan.predicted_seconds is None:
        return plan
    seconds = {
        assigned.device: assigned.predicted_seconds * ratios.get(assigned.device, 1.0)
        for assigned in plan.assignments
        if assigned.predicted_seconds is not None
    }
    assignments = tuple(
        replace(assigned, predicted_seconds=seconds.get(assigned.device))
        for assigned in plan.assignments
    )
    return replace(plan, assignments=assignments, predicted_seconds=max(seconds.values()))
