"""Jobs of one kind that are planned and learnt from without devices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.engine.planning.device_run import DeviceRun
from hetsched.engine.planning.planning_state import LEARNT_ONE_BY_ONE, PlanningState
from hetsched.engine.planning.run_planner import LearningTask, RunPlanner
from hetsched.memory import MemoryDemand
from hetsched.planner.job_planner import JobPlan
from hetsched.store.model_store import ModelStore
from hetsched.workload import Variant

INFO = DeviceInfo(name="cpu0", kind="cpu", identity="some processor")
VARIANT: Any = Variant("numpy", "2", lambda *_: print)


class InlineThread:
    """A planner's thread that does what it is asked for at once, and counts it."""

    def __init__(self) -> None:
        self.submitted = 0

    async def call(self, function: Any) -> Any:
        self.submitted += 1
        return function(None)


class Jobs:
    task: LearningTask | None

    def __init__(self) -> None:
        workload = SimpleNamespace(
            name="toy",
            variants=lambda kind: [VARIANT],
            demand=lambda params, kind: MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1),
        )
        self.job: Any = SimpleNamespace(
            workload=workload,
            params={},
            reference="m:toy",
            speed_key="",
            encoded_params=b"{}",
            storage="memory",
            load=100,
            measure=None,
        )
        self.thread, self.state = InlineThread(), PlanningState(ModelStore(None))
        self.context: Any = SimpleNamespace(
            fleet=SimpleNamespace(unstarted=set),
            planner_thread=self.thread,
            planning=self.state,
        )

    def run(
        self,
        seconds: float = 1.0,
        *,
        learn: bool = True,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> JobPlan:
        planner = RunPlanner(self.job, [INFO], None, self.context)
        plan = asyncio.run(planner.plan())
        (assignment,) = plan.assignments
        runs = {"cpu0": DeviceRun(assignment, INFO, ((100, ChunkTimes(compute=(0.0, seconds))),))}
        meanwhile()
        self.task = planner.learning_task(plan, runs)
        if learn and self.task is not None:
            self.task()
        return plan

    def exclude_while_planning(self) -> None:
        """Let the only variant fail in another job while the next plan is made."""
        workload = self.job.workload
        demand = workload.demand

        def excluding_demand(params: Any, kind: str) -> MemoryDemand:
            workload.demand = demand
            self.state.exclude_variant(self.job, INFO, VARIANT.name, "it has crashed")
            return demand(params, kind)

        workload.demand = excluding_demand

    def learnt_runs(self) -> int:
        return sum(self.state.store.runs(key) for key in self.state.store.keys())  # noqa: SIM118 - no mapping


def familiar_jobs(seconds: float = 1.0) -> Jobs:
    jobs = Jobs()
    for _ in range(LEARNT_ONE_BY_ONE):
        jobs.run(seconds)
    return jobs
