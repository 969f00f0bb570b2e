"""Devices without a share are probed, also when each job has a process of its own."""

from __future__ import annotations

from pathlib import Path

from toy_loop import ToyLoop

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.engine.planning.device_run import DeviceRun, spread
from hetsched.engine.planning.planning_state import PlanningState
from hetsched.planner.job_planner import JobPlan
from hetsched.store.model_store import ModelStore

CORES, LOAD, SLOWDOWN = 4, 16, 6.0


class Machine(ToyLoop):
    """Equal cores; each run is that of a new process which shares `models.db` with the others."""

    def __init__(self, path: Path) -> None:
        infos = [DeviceInfo(name=f"cpu{i}", kind="cpu", identity="x") for i in range(CORES)]
        super().__init__(LOAD, infos)
        self.path = path
        self.runs: dict[str, DeviceRun] = {}

    def run(self, slowdown: float = 1.0) -> JobPlan:
        """Plan, run with the last core so many times as slow, learn."""
        self.state = PlanningState(ModelStore(self.path))
        plan = self.plan()
        self.runs = {}
        for assignment in plan.assignments:
            pace = slowdown if assignment.device == f"cpu{CORES - 1}" else 1.0
            chunks, now = [], 0.0
            for chunk in assignment.chunks:
                end = now + pace * chunk.count
                chunks.append((chunk.count, ChunkTimes(compute=(now, end))))
                now = end
            info = self.info(assignment.device)
            self.runs[assignment.device] = DeviceRun(assignment, info, tuple(chunks))
        self.learn(plan, self.runs)
        self.state.store.close()
        return plan


def excluded(path: Path) -> Machine:
    """A machine whose last core has been too slow to get a share in its first runs."""
    machine = Machine(path)
    for _ in range(3):
        machine.run(SLOWDOWN)
    return machine


def test_each_process_goes_on_counting_the_runs_without_a_share(tmp_path: Path) -> None:
    machine = excluded(tmp_path / "models.db")

    plans = [machine.run(SLOWDOWN) for _ in range(24)]

    assert [run for run, plan in enumerate(plans) if plan.has_probes] == [1, 3, 7, 15, 23]
    assert all(f"cpu{CORES - 1}" not in p.shares for p in plans if not p.has_probes)


def test_a_core_that_is_fast_again_has_an_equal_share_again(tmp_path: Path) -> None:
    machine = excluded(tmp_path / "models.db")
    machine.run(SLOWDOWN)

    plans = [machine.run() for _ in range(6)]

    assert set(plans[-1].shares.values()) == {LOAD // CORES}
    assert "cpu3: 1 unit as a probe: no share in the last 1 run" in plans[0].reasons


def test_a_probe_does_not_count_in_the_spread(tmp_path: Path) -> None:
    machine = excluded(tmp_path / "models.db")
    machine.run(SLOWDOWN)

    plan = machine.run(SLOWDOWN)

    assert plan.has_probes
    assert sum(plan.shares.values()) == LOAD
    ordinary = {d: run for d, run in machine.runs.items() if not run.assignment.is_probe}
    assert spread(machine.runs) == spread(ordinary)
