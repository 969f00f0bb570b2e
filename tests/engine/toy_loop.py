"""A toy job that is planned and learnt from again and again: subclasses say what it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from hetsched.device import DeviceInfo
from hetsched.engine.planning.experience import Experience, plan_key
from hetsched.engine.planning.plan_and_learn import Measured, learn, plan
from hetsched.memory import MemoryDemand
from hetsched.planner.job_planner import JobPlan
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
        made: Any = [Variant(name, "2", lambda *_: print) for name in variants]
        workload = SimpleNamespace(
            name="toy",
            speed_key=lambda params: "",
            variants=lambda kind: made,
            demand=lambda params, kind: demand,
        )
        self.job: Any = SimpleNamespace(
            workload=workload,
            params={},
            reference="m:toy",
            storage="memory",
            load=load,
            measure=None,
        )
        self.store, self.experience = ModelStore(None), Experience()

    def info(self, device: str) -> DeviceInfo:
        return next(info for info in self.infos if info.name == device)

    def plan(self) -> JobPlan:
        return plan(self.job, self.infos, self.store, self.experience, None)

    def learn(self, found: JobPlan, measured: Mapping[str, Measured]) -> None:
        known = plan_key(self.job, [info.name for info in self.infos], None)
        learn(self.job, found, measured, self.store, self.experience, known)
