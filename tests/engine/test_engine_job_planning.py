"""The plan of the next such job is made ahead, and found without another thread."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from toy_loop import ToyLoop

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.engine.planning.job_planning import JobPlanning, LearningTask
from hetsched.engine.planning.planning_state import (
    LEARNT_ONE_BY_ONE,
    SAMPLED,
    job_kind,
)
from hetsched.engine.tuning import Tuner
from hetsched.memory import MemoryDemand
from hetsched.planner.job_planner import JobPlan
from hetsched.planner.learning import DeviceRun

INFO = DeviceInfo(name="cpu0", kind="cpu", identity="some processor")


class InlineThread:
    """A planner's thread that does what it is asked for at once, and counts it."""

    def __init__(self) -> None:
        self.submitted = 0

    async def call(self, function: Any) -> Any:
        self.submitted += 1
        return function(None)


class Jobs(ToyLoop):
    """Jobs of one kind on one core, planned and learnt from as in the engine."""

    task: LearningTask | None

    def __init__(self) -> None:
        super().__init__(100, [INFO])
        self.thread = InlineThread()
        self.context: Any = SimpleNamespace(
            fleet=SimpleNamespace(unstarted=set),
            planner_thread=self.thread,
            planning=self.state,
            memory_limit=None,
            tuner=Tuner(cast(Any, None), lambda: None, is_before_jobs=False),
        )

    def run(
        self,
        seconds: float = 1.0,
        *,
        learn: bool = True,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> JobPlan:
        running: Any = SimpleNamespace(
            number=1,
            job=self.job,
            spec=SimpleNamespace(memory_limit=None),
            context=self.context,
            iterations=None,
            small_jobs_beside=0,
            on_state=lambda state: None,
        )
        planning = JobPlanning(running)
        plan = asyncio.run(planning.plan([INFO]))
        (assignment,) = plan.assignments
        runs = {"cpu0": DeviceRun(assignment, INFO, ((100, ChunkTimes(compute=(0.0, seconds))),))}
        meanwhile()
        running.latest = SimpleNamespace(plan=plan)
        self.task = planning.learning_task(runs)
        if learn and self.task is not None:
            self.task()
        return plan

    def exclude_while_planning(self) -> None:
        """Let the only variant fail in another job while the next plan is made."""
        workload = self.job.workload
        demand = workload.demand

        def excluding_demand(params: Any, kind: str) -> MemoryDemand:
            workload.demand = demand
            self.state.exclude_variant(self.job, INFO, "numpy", "it has crashed")
            return demand(params, kind)

        workload.demand = excluding_demand

    def learnt_runs(self) -> int:
        return sum(self.state.store.runs(key) for key in self.state.store.keys())  # noqa: SIM118 - no mapping


def familiar_jobs(seconds: float = 1.0) -> Jobs:
    jobs = Jobs()
    for _ in range(LEARNT_ONE_BY_ONE):
        jobs.run(seconds)
    return jobs


def test_only_the_first_job_of_its_kind_waits_for_its_plan() -> None:
    jobs = Jobs()

    plans = [jobs.run() for _ in range(4)]

    assert jobs.thread.submitted == 1
    assert [plan.predicted_seconds for plan in plans] == [None, 1.0, 1.0, 1.0]


def test_a_well_known_kind_is_sampled() -> None:
    jobs = familiar_jobs()
    plan = jobs.run()

    others = [jobs.run() for _ in range(SAMPLED - 2)]
    assert others == [plan] * len(others)
    assert jobs.task is None

    jobs.run()
    assert jobs.task is not None
    assert jobs.learnt_runs() == LEARNT_ONE_BY_ONE + 1
    assert jobs.thread.submitted == 1


def test_a_single_disturbed_run_is_nothing_and_a_second_one_is_news() -> None:
    jobs = familiar_jobs()

    for seconds in (2.0, 1.0, 2.0, 1.0, 2.0):
        jobs.run(seconds)
        assert jobs.task is None
    jobs.run(2.0, learn=False)

    assert jobs.task is not None
    jobs.run(2.0)
    assert jobs.thread.submitted == 2, "it waited for a new plan"


def test_a_trial_is_learnt_from_and_not_repeated() -> None:
    jobs = familiar_jobs()
    kind = job_kind(jobs.job, ["cpu0"], None)
    trial = dataclasses.replace(jobs.run(), trial="something")
    jobs.state.plans.put(kind, trial, jobs.state.plans.generation)

    assert jobs.run(learn=False) is trial
    assert jobs.task is not None
    assert jobs.run(learn=False) is not trial


def test_a_plan_whose_assumptions_were_dropped_during_its_run_is_not_repeated() -> None:
    jobs = familiar_jobs()
    before = jobs.thread.submitted

    jobs.run(meanwhile=lambda: jobs.state.record_out_of_memory("cpu0", 1 << 20), learn=False)
    jobs.run()

    assert jobs.thread.submitted == before + 1


# ---- what is kept between jobs
