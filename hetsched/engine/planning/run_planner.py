"""Plans one run of a job, and in advance the next run of the same kind of job.

Planning takes a millisecond, or ten with cold caches; a repeated job follows its last plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from hetsched.device import DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.context import EngineContext
from hetsched.engine.planning.device_run import DeviceRun, FinishedRun, makespan
from hetsched.engine.planning.first_plan import first_plan
from hetsched.engine.planning.learning import learn, learn_rows
from hetsched.engine.planning.next_plan import next_plan
from hetsched.engine.planning.planning_state import job_kind
from hetsched.engine.run.running_job import RunningJob
from hetsched.planner.device_sets.teams import START_SECONDS
from hetsched.planner.races.prediction import predicted_race
from hetsched.planner.records import JobPlan

LearningTask = Callable[[], None]
"""For the planner's thread: learn from a run and plan the next."""


class JobPlanning:
    """Plans the attempts of one job, of any kind, and makes the task that learns from it."""

    def __init__(self, running: RunningJob) -> None:
        self._running = running
        self._context = running.context
        self._memory_limit = running.spec.memory_limit or running.context.memory_limit
        self._run_planner: RunPlanner | None = None

    async def plan(self, infos: Sequence[DeviceInfo]) -> JobPlan:
        """Plan an attempt. Raises Unavailable if no device has a variant of the workload."""
        if self._running.iterations is not None:
            return await self._first_plan(infos)
        fleet = self._context.fleet
        unstarted = fleet.unstarted()
        if unstarted:
            ahead = fleet.starting_ahead()
            infos = [info for info in infos if info.name not in ahead] or infos
        planner = self._run_planner = self._planner_of(infos, unstarted)
        plan = await planner.plan()
        if not unstarted or self._running.job.measure:
            return plan
        unstarted = fleet.unstarted().intersection(_working(plan))
        started = [info for info in infos if info.name not in unstarted]
        if unstarted and started:
            return await self._plan_without(unstarted, started, plan)
        return plan

    async def _plan_without(
        self, unstarted: Collection[str], started: Sequence[DeviceInfo], plan: JobPlan
    ) -> JobPlan:
        """Run on `started` while the processes of `unstarted` start, which later jobs will use.

        Unless `plan`, which uses them, is faster even if this job waits for their start.
        """
        planner = self._planner_of(started, self._context.fleet.unstarted())
        try:
            alternative = await planner.plan()
        except Exception:
            return plan
        if repays_start(plan, alternative):
            return plan
        self._context.fleet.start_ahead(unstarted)
        self._run_planner = planner
        return alternative

    def _planner_of(self, infos: Sequence[DeviceInfo], unstarted: Collection[str]) -> RunPlanner:
        job, limit = self._running.job, self._memory_limit
        return RunPlanner(job, infos, limit, self._context, unstarted)

    async def _first_plan(self, infos: Sequence[DeviceInfo]) -> JobPlan:
        """Return the plan of an attempt at iterations; the first one also has the balance."""
        running, iterations = self._running, self._running.iterations
        assert iterations is not None
        job, spec, state = running.job, running.spec, self._context.planning
        first = await self._context.planner_thread.call(
            lambda step: first_plan(job, spec, infos, state, self._memory_limit)
        )
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
            is_contended = running.small_jobs_beside > 0
            return self._run_planner.learning_task(attempt.plan, runs, is_contended=is_contended)
        return None  # a run beside another one adds nothing to measurements


class RunPlanner:
    """The planner of one start of a job, on the devices usable at that time.

    Parameters
    ----------
    infos : sequence of DeviceInfo
    memory_limit : int or None, bytes
        Of each device's own memory.
    unstarted : collection of str
        Devices whose process isn't running yet.
    """

    def __init__(
        self,
        job: ResolvedJob,
        infos: Sequence[DeviceInfo],
        memory_limit: int | None,
        context: EngineContext,
        unstarted: Collection[str] = (),
    ) -> None:
        self._job = job
        self._infos = infos
        self._memory_limit = memory_limit
        self._unstarted = unstarted
        self._planner_thread = context.planner_thread
        self._state = context.planning
        self.kind = job_kind(job, [info.name for info in infos], memory_limit)

    async def plan(self) -> JobPlan:
        """Return the plan: at once if the kind of job has one."""
        plan = self._known_plan()
        if plan is not None:
            return self._predicted(plan)
        # By now the previous job may have been learnt from, and this one planned.
        return await self._planner_thread.call(
            lambda step: self._predicted(self._known_plan() or self._new_plan())
        )

    def learning_task(
        self, plan: JobPlan, runs: Mapping[str, DeviceRun], *, is_contended: bool = False
    ) -> LearningTask | None:
        """Return a task for the planner's thread: learn from a run and plan the next.

        None if the run says little. Only for runs in which no device was lost. `is_contended`:
        other jobs used its cores.
        """
        run = FinishedRun(plan, runs, is_contended, self._fresh_devices(runs))
        if self._job.measure:
            return lambda: learn(self._job, run, self._state, self.kind)
        if not self._state.plans.on_run(self.kind, plan, makespan(runs)):
            return None

        def learn_and_plan() -> None:
            learn(self._job, run, self._state, self.kind)
            self._new_plan()

        return learn_and_plan

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
        generation = self._state.plans.generation
        infos = self._current_infos()
        plan = next_plan(self._job, infos, self._state, self._memory_limit, self._unstarted)
        if not self._job.measure:
            self._state.plans.put(self.kind, plan, generation)
        return plan

    def _predicted(self, plan: JobPlan) -> JobPlan:
        """Return `plan`, which is for warm processes, as these processes will run it."""
        kernels = self._state.kernels
        return predicted_cold(
            predicted_race(plan),
            [
                assigned.device
                for assigned in plan.assignments
                if assigned.candidate is not None
                and may_be_cold(assigned.candidate.info)
                and kernels.is_first_run(self._job, assigned)
            ],
        )

    def _current_infos(self) -> list[DeviceInfo]:
        """Return the devices with the memory that they have now, not when the job started."""
        current = {info.name: info for info in self._state.machine()}
        return [current.get(info.name, info) for info in self._infos]

    def _known_plan(self) -> JobPlan | None:
        return None if self._job.measure else self._state.plans.get(self.kind)


def repays_start(plan: JobPlan, alternative: JobPlan) -> bool:
    """Return whether `plan` is faster than `alternative`, the start of its process included."""
    if plan.predicted_seconds is None or alternative.predicted_seconds is None:
        return False
    return plan.predicted_seconds + START_SECONDS <= alternative.predicted_seconds


def _working(plan: JobPlan) -> list[str]:
    return [assigned.device for assigned in plan.assignments if assigned.chunks]


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
