"""From a run's times to models, and to the next plan."""

from __future__ import annotations

import msgspec
import pytest
from toy_loop import ToyLoop

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.planner.learning import DeviceRun

INFO = DeviceInfo(name="cpu0", kind="cpu", identity="some processor")


class Loop(ToyLoop):
    """One core and one job, again and again."""

    def __init__(self) -> None:
        super().__init__(100, [INFO])

    def run(self, seconds: float) -> None:
        """Learn from a run that takes so long."""
        plan = self.plan()
        (assignment,) = plan.assignments
        times = ChunkTimes(compute=(0.0, seconds))
        self.learn(plan, {"cpu0": DeviceRun(assignment, INFO, ((100, times),))})


def test_two_slow_runs_are_not_taken_for_a_slower_core_but_three_are() -> None:
    loop = Loop()
    for seconds in [1.0] * 5 + [2.0] * 2:
        loop.run(seconds)
    assert loop.plan().predicted_seconds == pytest.approx(1.0)

    loop.run(2.0)

    assert loop.plan().predicted_seconds == pytest.approx(2.0)


def test_the_late_start_of_a_fresh_process_is_part_of_its_time() -> None:
    infos = [msgspec.structs.replace(INFO, name=name) for name in ("cpu0", "cpu1")]
    loop = ToyLoop(100, infos)
    for _ in range(3):
        plan = loop.plan()
        runs = {
            a.device: DeviceRun(a, loop.info(a.device), ((50, times),))
            for a, start in zip(plan.assignments, (0.0, 0.5), strict=True)
            for times in (ChunkTimes(compute=(start, start + 1.0), cold=True),)
        }
        loop.learn(plan, runs)

    assert loop.plan().predicted_seconds == pytest.approx(1.2)  # 60 and 40 units
