"""Plans the attempts of one job, of any kind, and makes the task that learns from it."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence

from hetsched.device import DeviceInfo
from hetsched.engine.planning.device_run import DeviceRun
from hetsched.engine.planning.first_plan import FirstPlan, first_plan
from hetsched.engine.planning.learning import learn_rows
from hetsched.engine.planning.run_planner import LearningTask, RunPlanner
from hetsched.engine.run.running_job import RunningJob
from hetsched.engine.run.waits import answer_of
from hetsched.planner.device_sets.teams import START_SECONDS
from hetsched.planner.job_planner import JobPlan


class JobPlanning:
    """Planning and learning of one job that doesn't run at the side of another one."""

    def __init__(self, running: RunningJob) -> None:
        self._running = running
        self._context = running.context
        self._memory_limit = running.spec.memory_limit or running.context.memory_limit
        self._run_planner: RunPlanner | None = None

    async def plan(self, infos: Sequence[DeviceInfo]) -> JobPlan:
        """Plan an attempt on the devices of `infos`.

        Raises
        ------
        Unavailable
            None of them has a variant of the workload.
        """
        if self._running.iterations is not None:
            return await self._first_plan(infos)
        fleet = self._context.fleet
        ahead = fleet.starting_ahead()
        infos = [info for info in infos if info.name not in ahead] or infos
        planner = self._run_planner = self._planner(infos)
        plan: JobPlan = await answer_of(planner.begin)
        unstarted = fleet.unstarted().intersection(_working(plan))
        started = [info for info in infos if info.name not in unstarted]
        if not unstarted or not started or self._running.job.measure:
            return plan
        return await self._plan_without(unstarted, started, plan)

    async def _plan_without(
        self, unstarted: Collection[str], started: Sequence[DeviceInfo], plan: JobPlan
    ) -> JobPlan:
        """Run on `started` while the processes of `unstarted` start, which later jobs will use.

        Unless `plan`, which uses them, is faster even if this job waits for their start.
        """
        planner = self._planner(started)
        try:
            alternative: JobPlan = await answer_of(planner.begin)
        except Exception:
            return plan
        if repays_start(plan, alternative):
            return plan
        self._context.fleet.start_ahead(unstarted)
        self._run_planner = planner
        return alternative

    def _planner(self, infos: Sequence[DeviceInfo]) -> RunPlanner:
        return RunPlanner(self._running.job, infos, self._memory_limit, self._context)

    async def _first_plan(self, infos: Sequence[DeviceInfo]) -> JobPlan:
        """Return the plan of an attempt at iterations; the first one also has the balance."""
        running, iterations = self._running, self._running.iterations
        assert iterations is not None
        work = functools.partial(
            first_plan,
            running.job,
            running.spec,
            infos,
            self._context.planning,
            self._memory_limit,
        )
        planner_thread = self._context.planner_thread
        first: FirstPlan = await answer_of(functools.partial(planner_thread.run, work))
        iterations.balance_with(first.balance, _working(first.plan))
        return first.plan

    def learning_task(self, runs: Mapping[str, DeviceRun] | None) -> LearningTask | None:
        """Return what to learn from a job that has ended; None: nothing.

        `runs`: device -> its part of the run; None: it isn't typical.
        """
        running, planning = self._running, self._context.planning
        job, attempt = running.job, running.latest
        if attempt is None:
            return None
        assignments, infos = attempt.assignments, attempt.infos
        if running.iterations is not None:
            evidence = running.iterations.evidence
            return lambda: learn_rows(job, assignments, infos, evidence, planning)
        if runs is None:
            return None
        if self._run_planner is not None:
            is_contended = running.side_jobs > 0
            return self._run_planner.learning_task(attempt.plan, runs, is_contended=is_contended)
        return None  # a run beside another one adds nothing to measurements


def repays_start(plan: JobPlan, alternative: JobPlan) -> bool:
    """Return whether `plan` is faster than `alternative`, the start of its process included."""
    if plan.predicted_seconds is None or alternative.predicted_seconds is None:
        return False
    return plan.predicted_seconds + START_SECONDS <= alternative.predicted_seconds


def _working(plan: JobPlan) -> list[str]:
    """Return the devices that have chunks."""
    return [assigned.device for assigned in plan.assignments if assigned.chunks]
