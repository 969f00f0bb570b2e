import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel
from hetsched.models.history import History
from hetsched.models.samples import run_samples
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import Assignment, Candidate
from hetsched.plans import Overlap, timeline

PLANE = 2 << 20
MIB = 1 << 20
QUIET = {"cpu0": 1.0, "cpu1": 1.0, "cpu2": 1.0, "gpu0": 1.0}
BUSY = QUIET | {"cpu1": 2.5}
"""How many times as long each device takes as it would uncontended."""


@dataclass
class Loop:
    """Devices that are only curves, and what was learnt of them, as models.db would keep it."""

    truth: dict[str, DeviceModel]
    noise: Callable[[], float] = lambda: 1.0
    learnt: dict[str, History] = field(default_factory=dict)
    shares: dict[str, int] = field(default_factory=dict)

    def run(self, load: int, pace: dict[str, float] = QUIET) -> float:
        """One job; its spread."""
        plan = plan_job(load, [self.candidate(name) for name in self.truth])
        self.shares = {a.device: a.plan.share for a in plan.assignments}
        times = [self.execute(a, pace[a.device] * self.noise()) for a in plan.assignments]
        return max(times) / min(times) - 1

    def candidate(self, name: str) -> Candidate:
        link = self.truth[name].link
        info = DeviceInfo(name=name, kind="emulated", identity=name, link=link, engines=2)
        limit = 64 * MIB if link else None
        demand = MemoryDemand(input_bytes=PLANE, work_bytes=0, output_bytes=PLANE, limit=limit)
        model = self.learnt.setdefault(name, History()).model(link)
        return Candidate(info, demand, {"v": model}, {"v": 3})

    def execute(self, assignment: Assignment, pace: float) -> float:
        times = timeline(assignment.plan, self.truth[assignment.device], Overlap.FULL)
        done = [
            (c.units, ChunkTimes(copy_in=c.copy_in, compute=c.compute, copy_out=c.copy_out))
            for c in times.chunks
        ]
        wall = times.makespan * pace
        self.learnt[assignment.device].add(
            run_samples(done, assignment.plan.sub_distributions, assignment.plan.share, wall)
        )
        return wall


@pytest.mark.parametrize("long", [7, 25])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.stress) for seed in range(1, 4))]
)
def test_shares_follow_when_a_core_is_slow_and_when_it_is_fast_again(seed: int, long: int) -> None:
    luck = random.Random(seed)
    curve = Affine(1e-3, 10e-3)
    cores = {f"cpu{index}": DeviceModel(curve, curve) for index in range(3)}
    loop = Loop(cores, lambda: luck.uniform(1.0, 1.04))
    for _ in range(8):
        loop.run(600)
    for pace in (BUSY, QUIET, BUSY, QUIET):
        spreads = [loop.run(600, pace) for _ in range(long)]
        assert max(spreads[5:]) < 0.10
