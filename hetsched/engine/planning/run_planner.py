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
from hetsched.engine.planning.learning import learn
from hetsched.engine.planning.next_plan import next_plan
from hetsched.engine.planning.plans import job_kind
from hetsched.engine.threads import OnDone
from hetsched.planner.races.prediction import predicted_race
from hetsched.planner.records import JobPlan

LearningTask = Callable[[], None]
"""For the planner's thread: learn from a run and plan the next."""


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
        """Call ``on_planned(plan, error)``: at once if the kind of job has a plan, else later."""
        plan = self._known_plan()
        if plan is None:
            self._planner_thread.run(lambda: self._predicted(self._plan()), on_planned)
        else:
            on_planned(self._predicted(plan), None)

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

    def _plan(self) -> JobPlan:
        # By now the previous job may have been learnt from, and this one planned.
        return self._known_plan() or self._new_plan()

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
                if assigned.device in self._cold_devices
                and kernels.is_first_run(self._job, assigned)
            ],
        )

    def _current_infos(self) -> list[DeviceInfo]:
        """Return the devices with the memory that they have now, not when the job started."""
        current = {info.name: info for info in self._state.machine()}
        return [current.get(info.name, info) for info in self._infos]

    def _known_plan(self) -> JobPlan | None:
        return None if self._job.measure else self._state.plans.get(self.kind)


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
