"""A toy job that is planned and learnt from again and again: subclasses define its times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from hetsched.device import DeviceInfo
from hetsched.engine.planning.job_plan import next_plan
from hetsched.engine.planning.job_planning import learn_run
from hetsched.engine.planning.planning_state import PlanningState, job_kind
from hetsched.memory import MemoryDemand
from hetsched.planner.job_planner import JobPlan
from hetsched.planner.learning import DeviceRun, Run
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
