"""A planner in each process, as of `hetsched run`: what earlier ones have learnt counts."""

from __future__ import annotations

import pytest
from toy_loop import ToyLoop

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.engine.planning.planning_state import PlanningState
from hetsched.planner.learning import DeviceRun

PACES = {"cpu0": 1.0, "cpu1": 1.0, "cpu2": 8.0}


class Processes(ToyLoop):
    """Three equal cores of which one has become slow; each run is in a process of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        infos = [DeviceInfo(name=name, kind="cpu", identity="core") for name in PACES]
        super().__init__(12, infos)
        self.paces = dict.fromkeys(PACES, 1.0)
        self.now = 1e9
        monkeypatch.setattr("hetsched.engine.planning.job_planning.time.time", lambda: self.now)

    def run(self) -> dict[str, int]:
        self.now += 60.0
        self.state = PlanningState(self.state.store, machine=lambda: self.infos)
        plan = self.plan()
        runs = {}
        for assignment in plan.assignments:
            now, chunks = 0.0, []
            for chunk in assignment.chunks:
                end = now + chunk.count * self.paces[assignment.device]
                chunks.append((chunk.count, ChunkTimes(compute=(now, end))))
                now = end
            info = self.info(assignment.device)
            runs[assignment.device] = DeviceRun(assignment, info, tuple(chunks))
        self.learn(plan, runs)
        return plan.shares


def test_a_core_that_was_slow_is_looked_at_now_and_then_and_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processes = Processes(monkeypatch)
    for _ in range(5):
        processes.run()
    processes.paces = PACES
    slow = [processes.run() for _ in range(60)][8:]
    processes.paces = dict.fromkeys(PACES, 1.0)
    later = [processes.run() for _ in range(20)]

    looks = sum("cpu2" in shares for shares in slow)
    assert 2 <= looks <= 20
    assert later[-1] == dict.fromkeys(PACES, 4)
