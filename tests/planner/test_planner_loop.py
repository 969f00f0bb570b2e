"""The loop of planning, running and learning: it converges and stays."""

from dataclasses import dataclass, field

import pytest
from planner_devices import MIB, PLANE, demand, shares

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.models.samples import run_samples
from hetsched.planner.job_planner import Assignment, Candidate, JobPlan, plan_job
from hetsched.plans import Overlap, timeline


@dataclass
class Machine:
    """Devices that are only curves: what the engine does with them, without an engine."""

    truth: dict[str, tuple[DeviceInfo, DeviceModel]]
    memory: int
    learnt: dict[str, DeviceModel] = field(default_factory=dict)

    def run(self, load: int) -> tuple[JobPlan, float, float]:
        """One job: its plan, makespan and spread."""
        plan = plan_job(load, [self.candidate(info) for info, _ in self.truth.values()])
        times = {a.device: self.execute(a) for a in plan.assignments}
        return plan, max(times.values()), max(times.values()) / min(times.values()) - 1

    def candidate(self, info: DeviceInfo) -> Candidate:
        models = {"v": self.learnt.get(info.name)}
        return Candidate(info, demand(self.memory if info.link else None), models, {"v": 3})

    def execute(self, assignment: Assignment) -> float:
        info, model = self.truth[assignment.device]
        times = timeline(assignment.plan, model, Overlap.of(info.engines))
        done = [
            (c.units, ChunkTimes(copy_in=c.copy_in, compute=c.compute, copy_out=c.copy_out))
            for c in times.chunks
        ]
        measured = self.learnt.setdefault(assignment.device, fresh(info.link))
        for s in run_samples(
            done, assignment.plan.sub_distributions, assignment.plan.share, times.makespan
        ):
            getattr(measured, s.curve).observe(s.units, s.seconds)
        return times.makespan


def fresh(link: bool) -> DeviceModel:
    total, compute = PiecewiseLinear(), Affine() if link else PiecewiseLinear()
    return DeviceModel(total, compute, Affine(), Affine()) if link else DeviceModel(total, compute)


def machine(memory: int, engines: int, speedup: float, link_rate: float) -> Machine:
    """Two cores of 10 ms a plane, and a GPU so many times as fast behind a link of so many B/s."""
    infos = [DeviceInfo(name=f"cpu{i}", kind="emulated", identity="c") for i in range(2)]
    slow = Affine(0.0, 10e-3)
    truth = {info.name: (info, DeviceModel(slow, slow)) for info in infos}
    link = Affine(1e-5, PLANE / link_rate)
    model = DeviceModel(slow, Affine(3e-5, 10e-3 / speedup), link, link)
    info = DeviceInfo(name="g", kind="emulated", identity="g", link=True, engines=engines)
    return Machine(truth | {"g": (info, model)}, memory)


@pytest.mark.parametrize("load", [64, 256])
@pytest.mark.parametrize(
    ("memory", "engines", "speedup", "rate"),
    [
        (64 * MIB, 2, 3, 1e9), (64 * MIB, 1, 3, 1e9), (64 * MIB, 0, 3, 1e9),
        (64 * MIB, 2, 20, 1e9), (1 << 30, 2, 20, 6e9), (20 * MIB, 1, 10, 0.5e9),
    ],
)  # fmt: skip
def test_from_run_4_on_devices_finish_together_as_predicted(
    memory: int, engines: int, speedup: float, rate: float, load: int
) -> None:
    """Spread under 0.10 or one unit's worth; predicted within 15 % of measured."""
    subject = machine(memory, engines, speedup, rate)
    for _ in range(3):
        subject.run(load)
    for _ in range(3):
        plan, makespan, spread = subject.run(load)
        assert spread <= max(0.10, 10e-3 / (makespan - 10e-3))
        assert plan.predicted_seconds == pytest.approx(makespan, rel=0.15)


def test_the_loop_settles() -> None:
    subject = machine(64 * MIB, 2, 3, 1e9)
    splits = [shares(subject.run(256)[0]) for _ in range(6)]
    assert splits[-1] == splits[-2]
