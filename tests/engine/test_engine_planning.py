"""From a job's times to models and to the next plan, made ahead."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.engine.explanations import JobSnapshot, job_activity
from hetsched.engine.planning.job_plan import equal_plan, next_plan
from hetsched.engine.planning.job_planning import JobPlanning, LearningTask, learn_run
from hetsched.engine.planning.planning_state import (
    LEARNT_ONE_BY_ONE,
    SAMPLED,
    PlanningState,
    job_kind,
)
from hetsched.engine.tuning import Tuner
from hetsched.errors import Unavailable
from hetsched.memory import MemoryDemand
from hetsched.planner.learning import DeviceRun, Run
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.plans import DevicePlan
from hetsched.plans.device_plan import Mode
from hetsched.store.model_store import ModelStore
from hetsched.workload import Variant

BYTES = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1)


class ToyLoop:
    """`load` units on devices that are `infos`, by any of `variants` (names)."""

    def __init__(
        self,
        load: int,
        infos: Sequence[DeviceInfo],
        variants: Sequence[str] = ("numpy",),
        demand: MemoryDemand = BYTES,
    ) -> None:
        self.infos = list(infos)
        installed: Any = [Variant(name, "2", lambda *_: print) for name in variants]
        workload = SimpleNamespace(
            name="toy",
            variants=lambda kind: installed,
            demand=lambda params, kind: demand,
        )
        self.job: Any = SimpleNamespace(
            workload=workload,
            params={},
            reference="m:toy",
            source="",
            speed_key="",
            encoded_params=b"{}",
            storage="memory",
            load=load,
            measure=None,
            schedule="best",
        )
        self.state = PlanningState(ModelStore(None), machine=lambda: self.infos)

    def info(self, device: str) -> DeviceInfo:
        return next(info for info in self.infos if info.name == device)

    def plan(self) -> JobPlan:
        return next_plan(self.job, self.infos, self.state, None)

    def learn(
        self, plan: JobPlan, runs: Mapping[str, DeviceRun], *, is_contended: bool = False
    ) -> None:
        kind = job_kind(self.job, [info.name for info in self.infos], None)
        learn_run(self.job, Run(plan, runs, self.infos, is_contended), self.state, kind)


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


CORE = DeviceInfo(name="cpu0", kind="cpu", identity="c")
LINKED = DeviceInfo(name="emu0", kind="emulated", identity="e", link=True, memory=20480, engines=2)
DEMAND = MemoryDemand(input_bytes=512, work_bytes=0, output_bytes=512)
SMALL = MemoryDemand(input_bytes=512, work_bytes=0, output_bytes=512, limit=20480)


def test_every_device_gets_the_same_in_one_chunk() -> None:
    devices = [(CORE, DEMAND), (LINKED, SMALL)]
    plan = equal_plan(32, devices, {"cpu0": "a", "emu0": "b"}, lambda info: ["a", "b"])

    core, linked = plan.assignments
    assert [(c.first, c.count, c.barrier, c.last) for c in core.chunks] == [(0, 16, False, True)]
    assert [(c.first, c.count, c.barrier, c.last) for c in linked.chunks] == [
        (16, 16, False, True)
    ]
    assert (core.variant, core.slot_memory) == ("a", 0)
    assert (linked.variant, linked.slot_memory) == ("b", 16384)
    assert (plan.predicted_seconds, linked.slots, linked.plan.mode) == (
        None, 1, Mode.INSTALLMENTS,
    )  # fmt: skip


def test_a_share_larger_than_memory_runs_chunk_by_chunk() -> None:
    plan = equal_plan(50, [(LINKED, SMALL)], {"emu0": "a"}, lambda info: ["a"])

    (linked,) = plan.assignments
    assert linked.plan.sub_distributions == ((17,), (17,), (16,))
    assert [c.barrier for c in linked.chunks] == [False, True, True]
    assert [c.first for c in linked.chunks] == list(itertools.accumulate((0, 17, 17)))
    assert [c.id for c in linked.chunks] == [0, 1, 2]


@pytest.mark.parametrize(
    ("variants", "why"),
    [({"gpu0": "a"}, "gpu0.*no longer available"), ({"cpu0": "b"}, "cpu0.*with b.*doesn't work")],
)
def test_missing_devices_and_variants_are_errors(variants: dict[str, str], why: str) -> None:
    with pytest.raises(Unavailable, match=why):
        equal_plan(8, [(CORE, DEMAND)], variants, lambda info: ["a"])


GPU = DeviceInfo(name="gpu0", kind="gpu", identity="g", link=True)


def snapshot(
    times: list[tuple[int, ChunkTimes]],
    demand: MemoryDemand | None = None,
    predicted: float | None = 10.0,
) -> JobSnapshot:
    candidate = None if demand is None else Candidate(GPU, demand, {}, {})
    assignment = Assignment(
        "gpu0", "v", DevicePlan(((40,),)), (), 40, 1, 0, 2, predicted, candidate=candidate
    )
    return JobSnapshot(3, "fft", 40, None, JobPlan((assignment,), predicted, ()), {"gpu0": times})


def chunk(start: float) -> tuple[int, ChunkTimes]:
    """10 units in 2 s: 1 s in, 1 s of computing, 0.5 s out, partly at the same time."""
    times = ChunkTimes(
        copy_in=(start, start + 1.0),
        compute=(start + 0.5, start + 1.5),
        copy_out=(start + 1.5, start + 2.0),
    )
    return 10, times


def test_speed_and_use_of_the_link_are_those_of_the_last_chunks() -> None:
    demand = MemoryDemand(input_bytes=100, work_bytes=0, output_bytes=50)
    (activity,) = job_activity(snapshot([chunk(0.0), chunk(2.0)], demand))

    assert (activity.done, activity.speed) == (20, 5.0)
    assert (activity.h2d_busy, activity.compute_busy, activity.d2h_busy) == (0.5, 0.5, 0.25)
    assert (activity.h2d_rate, activity.d2h_rate) == (1000.0, 1000.0)
