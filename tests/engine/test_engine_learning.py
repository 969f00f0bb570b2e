"""From a run's times to models, and to the next plan."""

from __future__ import annotations

import logging

import msgspec
import pytest
from toy_loop import ToyLoop

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.engine.planning.job_planning import learn, predicted_cold
from hetsched.engine.planning.planning_state import DeviceRun, FinishedRun, job_kind
from hetsched.memory import MemoryDemand

INFO = DeviceInfo(name="cpu0", kind="cpu", identity="some processor")
DEMAND = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1)


class Loop(ToyLoop):
    """One core and one job, again and again."""

    def __init__(self) -> None:
        super().__init__(100, [INFO])

    def run(
        self, seconds: float, busy: float | None = None, *, is_contended: bool = False
    ) -> tuple[str, ...]:
        """The reasons of the plan of a run that takes so long."""
        plan = self.plan()
        (assignment,) = plan.assignments
        times = ChunkTimes(compute=(0.0, seconds), busy=busy)
        runs = {"cpu0": DeviceRun(assignment, INFO, ((100, times),))}
        self.learn(plan, runs, is_contended=is_contended)
        return plan.reasons


def test_a_change_of_speed_is_logged_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    with caplog.at_level(logging.INFO, "hetsched.engine.planning.job_planning"):
        notes = [loop.run(seconds) for seconds in [1.0] * 12 + [2.0] * 6]

    change = "cpu0: toy by numpy takes 2 times as long as before, by its last 3 runs"
    assert [change in reasons for reasons in notes].count(True) == 1
    assert change in notes[15]
    assert caplog.messages == [change]


def test_a_core_that_others_use_is_not_taken_for_a_slower_one() -> None:
    loop = Loop()
    for _ in range(5):
        loop.run(1.0, busy=1.0)
    for _ in range(2):
        loop.run(2.0, busy=1.0)
    again = loop.plan()
    assert again.predicted_seconds == pytest.approx(1.0)


def test_lasting_use_by_others_is_predicted_and_among_the_reasons() -> None:
    loop = Loop()
    for seconds in (1.0, 1.0, 1.0, 2.5, 2.4, 2.5):
        reasons = loop.run(seconds, busy=1.0)
        assert reasons[0] in (
            "cpu0: 100 units, an equal share: no measurements for numpy yet",
            "cpu0: 100 units by the speed of numpy",
        )

    plan = loop.plan()

    assert plan.predicted_seconds == pytest.approx(2.5)
    assert plan.reasons[0] == (
        "cpu0: 100 units by the speed of numpy, 2.5 times as slow as usual in recent runs"
    )


def test_a_run_beside_which_small_jobs_ran_is_not_taken_for_a_slower_one() -> None:
    loop = Loop()
    for _ in range(5):
        loop.run(1.0)

    for _ in range(2):
        loop.run(1.5, is_contended=True)

    assert loop.plan().predicted_seconds == pytest.approx(1.0)


def test_the_late_start_of_a_fresh_process_is_predicted() -> None:
    infos = [msgspec.structs.replace(INFO, name=name) for name in ("cpu0", "cpu1")]
    loop = ToyLoop(100, infos)
    for fresh in ((), (), (), (), ("cpu0", "cpu1")):
        plan = loop.plan()
        late = 0.5 if fresh else 0.0
        starts = {"cpu0": 0.0, "cpu1": late}
        runs = {
            a.device: DeviceRun(a, loop.info(a.device), ((50, times),))
            for a in plan.assignments
            for times in (ChunkTimes(compute=(starts[a.device], starts[a.device] + 1.0)),)
        }
        kind = job_kind(loop.job, [*starts], None)
        finished = FinishedRun(plan, runs, fresh=frozenset(fresh))
        learn(loop.job, finished, loop.state, kind)

    warm = loop.plan()

    assert warm.predicted_seconds == pytest.approx(1.0)
    assert predicted_cold(warm, ["cpu0", "cpu1"]).predicted_seconds == pytest.approx(1.5)
