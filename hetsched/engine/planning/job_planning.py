"""Plans the attempts of one job, of any kind, and makes the task that learns from it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from hetsched.device import DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.concurrency.side_plans import SideStart
from hetsched.engine.context import EngineContext
from hetsched.engine.iterating.first_plan import FirstPlan, first_plan
from hetsched.engine.iterating.row_learning import learn_rows
from hetsched.engine.job.commands import FinishJob
from hetsched.engine.job.events import PlanFailed, PlanReady
from hetsched.engine.job.job_record import JobRecord
from hetsched.engine.planning.learning import learn
from hetsched.engine.planning.run_backlog import FinishedRun
from hetsched.engine.planning.run_planner import LearningTask, RunPlanner
from hetsched.errors import InternalError
from hetsched.job import JobSpec
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
        self._run_planner = RunPlanner(self._job, infos, self._memory_limit, self._context)
        self._run_planner.begin(functools.partial(_on_run_plan, on_plan))

    def learning_task(self, record: JobRecord, command: FinishJob) -> LearningTask | None:
        """Return what to learn from a job that has ended; None: nothing."""
        attempt, planning = record.latest, self._context.planning
        if record.iterations is not None and attempt is not None:
            evidence = record.iterations.evidence
            return LearningTask(lambda: learn_rows(self._job, attempt, evidence, planning))
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
        return LearningTask(lambda: learn(self._job, [run], planning, None))


def _on_first_plan(on_plan: OnPlan, plan: FirstPlan | None, error: BaseException | None) -> None:
    on_plan(_failed(error) if plan is None else PlanReady(plan.plan, plan.balance))


def _on_run_plan(on_plan: OnPlan, plan: JobPlan | None, error: BaseException | None) -> None:
    on_plan(_failed(error) if plan is None else PlanReady(plan))


def _failed(error: BaseException | None) -> PlanFailed:
    return PlanFailed(error or InternalError("the planner returned no plan"))
