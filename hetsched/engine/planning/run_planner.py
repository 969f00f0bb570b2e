"""Plans one run of a job, and in advance the next run of the same kind of job.

Planning takes a millisecond, or ten with cold caches; a repeated job follows its last plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hetsched.device import DeviceInfo
from hetsched.engine.planning.device_run import DeviceRun, FinishedRun, makespan
from hetsched.engine.planning.first_plan import first_plan
from hetsched.engine.planning.learning import learn, learn_rows
from hetsched.engine.planning.next_plan import next_plan
from hetsched.engine.planning.planning_state import JobKind, job_kind
from hetsched.planner.races.prediction import predicted_race
from hetsched.planner.records import JobPlan

if TYPE_CHECKING:
    from hetsched.engine.run.runner import JobRunner

LearningTask = Callable[[], None]
"""For the planner's thread: learn from a run and plan the next."""


class JobPlanning:
    """Plans the attempts of one job, and makes the task that learns from it."""

    def __init__(self, runner: JobRunner) -> None:
        self._runner = runner
        self._job = runner.job
        self._memory_limit = runner.spec.memory_limit or runner.context.memory_limit
        self._context = runner.context
        self._state = runner.context.planning
        self._infos: Sequence[DeviceInfo] = ()
        self._unstarted: Collection[str] = ()

    async def plan(self, infos: Sequence[DeviceInfo]) -> JobPlan:
        """Plan an attempt on `infos`: at once if the kind of job has a plan.

        Raises Unavailable if no device has a variant of the workload.
        """
        if self._runner.iterations is not None:
            return await self._first_plan(infos)
        self._infos = infos
        self._unstarted = self._context.fleet.unstarted()
        plan = self._known_plan()
        if plan is not None:
            return self._predicted(plan)
        # By now the previous job may have been learnt from, and this one planned.
        return await self._context.planner_thread.call(
            lambda step: self._predicted(self._known_plan() or self._new_plan())
        )

    def learning_task(self, runs: Mapping[str, DeviceRun] | None) -> LearningTask | None:
        """Return what to learn from a job that has ended, and the plan of the next; None: nothing.

        `runs`: device -> its part of the run; None: it isn't typical.
        """
        job, attempt, state = self._job, self._runner.latest, self._state
        if attempt is None:
            return None
        if (iterations := self._runner.iterations) is not None:
            return lambda: learn_rows(
                job, attempt.assignments, attempt.infos, iterations.evidence, state
            )
        if runs is None or not self._infos:
            return None  # a run beside another one adds nothing to measurements
        is_contended = self._runner.small_jobs_beside > 0
        run = FinishedRun(attempt.plan, runs, is_contended, self._fresh_devices(runs))
        kind = self._kind()
        if job.measure:
            return lambda: learn(job, run, state, kind)
        if not state.plans.on_run(kind, run.plan, makespan(runs)):
            return None

        def learn_and_plan() -> None:
            learn(job, run, state, kind)
            self._new_plan()

        return learn_and_plan

    def _kind(self) -> JobKind:
        return job_kind(self._job, [info.name for info in self._infos], self._memory_limit)

    async def _first_plan(self, infos: Sequence[DeviceInfo]) -> JobPlan:
        """Return the plan of an attempt at iterations; the first one also has the balance."""
        job, spec, iterations = self._job, self._runner.spec, self._runner.iterations
        assert iterations is not None
        first = await self._context.planner_thread.call(
            lambda step: first_plan(job, spec, infos, self._state, self._memory_limit)
        )
        working = [each.device for each in first.plan.assignments if each.chunks]
        iterations.balance_with(first.balance, working)
        return first.plan

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

    def _new_plan(self) -> JobPlan:
        plans = self._state.plans
        generation = plans.generation
        # With the memory that devices have now, not when the job started.
        current = {info.name: info for info in self._state.machine()}
        infos = [current.get(info.name, info) for info in self._infos]
        plan = predicted_race(
            next_plan(self._job, infos, self._state, self._memory_limit, self._unstarted)
        )
        if not self._job.measure:
            plans.put(self._kind(), plan, generation)
        return plan

    def _predicted(self, plan: JobPlan) -> JobPlan:
        """Return `plan`, which is for warm processes, as these processes will run it."""
        kernels = self._state.kernels
        return predicted_cold(
            plan,
            [
                assigned.device
                for assigned in plan.assignments
                if assigned.candidate is not None
                and may_be_cold(assigned.candidate.info)
                and kernels.is_first_run(self._job, assigned)
            ],
        )

    def _known_plan(self) -> JobPlan | None:
        return None if self._job.measure else self._state.plans.get(self._kind())


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
