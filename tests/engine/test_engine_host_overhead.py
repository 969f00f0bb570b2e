"""A GPU with host overhead, or that runs hot: what is learnt of it, and what is predicted."""

from __future__ import annotations

import pytest
from toy_loop import ToyLoop

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.planner.job_planner import Assignment, JobPlan
from hetsched.planner.learning import DeviceRun, makespan

LOAD, CORES = 1000, 4
CORE, GPU, FED = 4e-3, 1e-3, 0.3e-3
"""Seconds a unit: of a core, of the GPU, of its host overhead."""
DEMAND = MemoryDemand(input_bytes=1024, work_bytes=0, output_bytes=1024)


class Machine(ToyLoop):
    """Four equal cores, and a GPU whose host overhead they share; without noise."""

    def __init__(self) -> None:
        self.slower = 1.0
        infos = [
            DeviceInfo(name=f"cpu{i}", kind="cpu", identity="x", cores=(i,)) for i in range(CORES)
        ]
        infos.append(
            DeviceInfo(
                name="gpu0",
                kind="cuda",
                identity="g",
                link=True,
                memory=1 << 20,
                engines=2,
                cores=tuple(range(CORES)),
            )
        )
        super().__init__(LOAD, infos, demand=DEMAND)

    def run(self) -> tuple[JobPlan, float]:
        """Plan, run and learn; the plan and the makespan."""
        plan = self.plan()
        shares = {assignment.device: assignment.plan.share for assignment in plan.assignments}
        lost = FED * shares.get("gpu0", 0) / sum(name != "gpu0" for name in shares)
        runs = {assignment.device: self._ran(assignment, lost) for assignment in plan.assignments}
        self.learn(plan, runs)
        return plan, makespan(runs)

    def _ran(self, assignment: Assignment, lost: float) -> DeviceRun:
        info = self.info(assignment.device)
        pace = GPU * self.slower if info.link else CORE + lost / assignment.plan.share
        now, chunks = 0.0, []
        for chunk in assignment.chunks:
            start, now = now, now + chunk.count * pace
            times = ChunkTimes(compute=(start, now), busy=CORE * chunk.count)
            if info.link:
                fed = FED * chunk.count
                copied = (start, start + 1e-6 * chunk.count)
                times = ChunkTimes(
                    copy_in=copied, compute=(start, now), copy_out=copied, host_overhead=fed
                )
            chunks.append((chunk.count, times))
        return DeviceRun(assignment, info, tuple(chunks))

    def gpu_seconds(self) -> float:
        """Of 100 units on the GPU, computing only, as it is known."""
        plan = self.plan()
        model = next(
            assignment.model for assignment in plan.assignments if assignment.device == "gpu0"
        )
        assert model is not None
        return float(model.compute.time(100.0))

    def core_seconds(self, plan: JobPlan, units: int) -> float:
        """Of a core by itself, as it is known."""
        assignment = next(
            assignment for assignment in plan.assignments if assignment.device == "cpu0"
        )
        assert assignment.model is not None
        return float(assignment.model.total.time(float(units)))


def test_cores_are_learnt_without_host_overhead_and_predicted_with_it() -> None:
    machine = Machine()
    for _ in range(8):  # other sets of devices are tried meanwhile
        machine.run()
    plan, seconds = machine.run()

    assert machine.core_seconds(plan, 100) == pytest.approx(100 * CORE, rel=0.002)
    assert plan.predicted_seconds == pytest.approx(seconds, rel=0.01)


def test_a_core_without_host_overhead_is_predicted_at_its_full_speed() -> None:
    machine = Machine()
    for _ in range(4):
        machine.run()
    machine.infos.pop()

    plan, seconds = machine.run()

    assert plan.predicted_seconds == pytest.approx(seconds, rel=0.002)
