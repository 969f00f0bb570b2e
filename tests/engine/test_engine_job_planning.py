"""The plan of the next such job is made ahead, and found without another thread."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from toy_loop import ToyLoop

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.engine.planning.job_planning import JobPlanning, LearningTask
from hetsched.engine.planning.planning_state import (
    LEARNT_ONE_BY_ONE,
    SAMPLED,
    PlanningState,
    job_kind,
)
from hetsched.engine.tuning import Tuner
from hetsched.memory import MemoryDemand
from hetsched.planner.job_planner import JobPlan
from hetsched.planner.learning import DeviceRun
from hetsched.planner.records import Candidate
from hetsched.store.model_store import ModelStore

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


def test_a_kind_whose_plan_was_dropped_is_still_well_known() -> None:
    jobs = familiar_jobs()
    jobs.state.plans.clear()

    jobs.run()
    jobs.run()

    assert jobs.task is None
    assert jobs.thread.submitted == 2, "it waited for a new plan"


def test_a_trial_is_learnt_from_and_not_repeated() -> None:
    jobs = familiar_jobs()
    kind = job_kind(jobs.job, ["cpu0"], None)
    trial = dataclasses.replace(jobs.run(), trial="something")
    jobs.state.plans.put(kind, trial, jobs.state.plans.generation)

    assert jobs.run(learn=False) is trial
    assert jobs.task is not None
    assert jobs.run(learn=False) is not trial


def test_a_trial_without_a_usual_plan_runs_once() -> None:
    """As after all plans were dropped, and the new one tries something."""
    jobs = familiar_jobs()
    kind = job_kind(jobs.job, ["cpu0"], None)
    trial = dataclasses.replace(jobs.run(), trial="something")
    jobs.state.plans.clear()
    jobs.state.plans.planner(kind, jobs.job.load)
    jobs.state.plans.put(kind, trial, jobs.state.plans.generation)

    assert jobs.run() is trial
    assert jobs.run() is not trial


def test_a_plan_made_ahead_is_for_the_memory_that_devices_have_now() -> None:
    """Other processes may have taken some of a GPU's memory since the job started."""
    jobs = Jobs()
    jobs.run(learn=False)
    less = msgspec.structs.replace(INFO, memory=7)
    jobs.state.machine = lambda: [less]
    assert jobs.task is not None
    jobs.task()

    plan = jobs.run(learn=False)

    assert [candidate.info for candidate in plan.candidates] == [less]


def test_a_plan_made_while_its_variant_failed_elsewhere_is_not_kept() -> None:
    jobs = Jobs()
    jobs.run(learn=False)
    jobs.exclude_while_planning()

    assert jobs.task is not None
    jobs.task()

    kind = job_kind(jobs.job, ["cpu0"], None)
    assert jobs.state.plans.get(kind) is None


def test_a_plan_whose_assumptions_were_dropped_during_its_run_is_not_repeated() -> None:
    jobs = familiar_jobs()
    before = jobs.thread.submitted

    jobs.run(meanwhile=lambda: jobs.state.record_out_of_memory("cpu0", 1 << 20), learn=False)
    jobs.run()

    assert jobs.thread.submitted == before + 1


# ---- what is kept between jobs


def test_a_memory_limit_ends_where_the_device_has_as_much() -> None:
    state = PlanningState(ModelStore(None))
    infos = [msgspec.structs.replace(INFO, name="gpu0", memory=1000)]
    state.record_out_of_memory("gpu0", 400)
    limits = []
    for _ in range(4):
        limits.append(state.memory_limits.get("gpu0"))
        state.raise_memory_limits(infos)

    assert limits == [200, 400, 800, None]


def test_plans_for_many_devices_push_out_older_ones() -> None:
    candidate = Candidate(INFO, MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1), {}, {})
    plan = JobPlan((), 1.0, candidates=(candidate,) * 1000)
    plans = PlanningState(ModelStore(None)).plans
    kinds = [("m:toy", b"", "memory", (), number, "best") for number in range(8)]
    for kind in kinds:
        plans.planner(kind, 1)
        plans.put(kind, plan, plans.generation)

    assert plans.get(kinds[0]) is None
    assert plans.get(kinds[-1]) is plan
