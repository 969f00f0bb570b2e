"""Plans the attempts of one job, of any kind, and makes the task that learns from it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence

from hetsched.device import DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.concurrency.side_plans import SideStart
from hetsched.engine.context import EngineContext
from hetsched.engine.iterating.first_plan import FirstPlan, first_plan
from hetsched.engine.iterating.row_learning import learn_rows
from hetsched.engine.job.commands import FinishJob
from hetsched.engine.job.events import PlanFailed, PlanReady
from hetsched.engine.job.job_record import JobRecord
from hetsched.engine.planning.device_run import FinishedRun
from hetsched.engine.planning.learning import learn
from hetsched.engine.planning.run_planner import LearningTask, RunPlanner
from hetsched.errors import InternalError
from hetsched.job import JobSpec
from hetsched.planner.device_sets.teams import START_SECONDS
from hetsched.planner.job_planner import JobPlan

OnPlan = Callable[[PlanReady | PlanFailed], None]


class JobPlanning:
    """Planning and learning of one job, which doesn't run beside another one or does (`side`)."""

    def __init__(
        self, job: ResolvedJob, spec: JobSpec, context: EngineContext, side: SideStart | None
    ) -> None:
        self._job = job
        self._spec = spec
        self._context = context
        self._side = side
        self._memory_limit = spec.memory_limit or context.memory_limit
        self._run_planner: RunPlanner | None = None

    def begin(self, infos: Sequence[DeviceInfo], on_plan: OnPlan) -> None:
        """Plan for the devices of `infos`, possibly at once."""
        if self._job.iterative is not None:
            state, limit = self._context.planning, self._memory_limit
            work = functools.partial(first_plan, self._job, self._spec, infos, state, limit)
            planned = functools.partial(_on_first_plan, on_plan)
            self._context.planner_thread.submit(work, planned)
            return
        fleet = self._context.fleet
        ready = [info for info in infos if info.name not in fleet.starting_ahead()]
        self._plan_for(ready or infos, on_plan)

    def _plan_for(self, infos: Sequence[DeviceInfo], on_plan: OnPlan) -> None:
        planner = RunPlanner(self._job, infos, self._memory_limit, self._context)
        self._run_planner = planner

        def on_planned(plan: JobPlan | None, error: BaseException | None) -> None:
            unstarted = self._context.fleet.unstarted().intersection(_working(plan))
            started = [info for info in infos if info.name not in unstarted]
            if plan is None or not unstarted or not started or self._job.measure:
                _on_run_plan(on_plan, plan, error)
            else:
                self._plan_without(unstarted, started, plan, on_plan)

        planner.begin(on_planned)

    def _plan_without(
        self,
        unstarted: Collection[str],
        started: Sequence[DeviceInfo],
        plan: JobPlan,
        on_plan: OnPlan,
    ) -> None:
        """Run on `started` while the processes of `unstarted` start, which later jobs will use.

        Unless `plan`, which uses them, is faster even if this job waits for their start.
        """
        planner = RunPlanner(self._job, started, self._memory_limit, self._context)

        def on_planned(alternative: JobPlan | None, error: BaseException | None) -> None:
            if alternative is None or repays_start(plan, alternative):
                on_plan(PlanReady(plan))
                return
            self._context.fleet.start_ahead(unstarted)
            self._run_planner = planner
            on_plan(PlanReady(alternative))

        planner.begin(on_planned)

    def learning_task(self, record: JobRecord, command: FinishJob) -> LearningTask | None:
        """Return what to learn from a job that has ended; None: nothing."""
        attempt, planning = record.latest, self._context.planning
        if record.iterations is not None and attempt is not None:
            evidence = record.iterations.evidence
            return lambda: learn_rows(self._job, attempt, evidence, planning)
        if command.runs is None:
            return None
        assert attempt is not None
        if self._run_planner is not None:
            return self._run_planner.learning_task(
                attempt.plan, command.runs, is_contended=record.side_jobs > 0
            )
        if self._side is None or self._side.is_measured:
            return None  # a run beside another one adds nothing to measurements
        run = FinishedRun(attempt.plan, command.runs, is_contended=True)
        return lambda: learn(self._job, run, planning, None)


def repays_start(plan: JobPlan, alternative: JobPlan) -> bool:
    """Return whether `plan` is faster than `alternative`, the start of its process included."""
    if plan.predicted_seconds is None or alternative.predicted_seconds is None:
        return False
    return plan.predicted_seconds + START_SECONDS <= alternative.predicted_seconds


def _working(plan: JobPlan | None) -> list[str]:
    """Return the devices that have chunks."""
    assignments = () if plan is None else plan.assignments
    return [assigned.device for assigned in assignments if assigned.chunks]


def _on_first_plan(on_plan: OnPlan, plan: FirstPlan | None, error: BaseException | None) -> None:
    on_plan(_failed(error) if plan is None else PlanReady(plan.plan, plan.balance))


def _on_run_plan(on_plan: OnPlan, plan: JobPlan | None, error: BaseException | None) -> None:
    on_plan(_failed(error) if plan is None else PlanReady(plan))


def _failed(error: BaseException | None) -> PlanFailed:
    return PlanFailed(error or InternalError("the planner returned no plan"))
