"""From what a run took to what is known, and to what the next plan says of it."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.executor.experience import Experience, plan_key
from hetsched.executor.planning import Measured, learn, plan
from hetsched.memory import MemoryDemand
from hetsched.store.models import ModelStore
from hetsched.workload import Variant

INFO = DeviceInfo(name="cpu0", kind="cpu", identity="some processor")
DEMAND = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1)


class Loop:
    """One core and one job, again and again."""

    def __init__(self) -> None:
        variant: Any = Variant("numpy", "2", lambda *_: print)
        workload = SimpleNamespace(
            name="toy",
            speed_key=lambda params: "",
            variants=lambda kind: [variant],
            demand=lambda params, kind: DEMAND,
        )
        self.job: Any = SimpleNamespace(
            workload=workload, params={}, reference="m:toy", place="arena", load=100, measure=None
        )
        self.store, self.experience = ModelStore(None), Experience()

    def run(self, seconds: float, busy: float | None = None) -> tuple[str, ...]:
        """The reasons of the plan of a run that takes so long."""
        found = plan(self.job, [INFO], self.store, self.experience, None)
        (one,) = found.assignments
        times = ChunkTimes(compute=(0.0, seconds), busy=busy)
        measured = {"cpu0": Measured(one, INFO, ((100, times),))}
        known = plan_key(self.job, ["cpu0"], None)
        learn(self.job, found, measured, self.store, self.experience, known)
        return found.reasons


def test_a_change_of_speed_is_logged_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    with caplog.at_level(logging.INFO, "hetsched.executor.planning"):
        said = [loop.run(seconds) for seconds in [1.0] * 12 + [2.0] * 6]

    change = "cpu0: toy by numpy takes 2 times as long as before, by its last 3 runs"
    assert [change in reasons for reasons in said].count(True) == 1
    assert change in said[15]
    assert caplog.messages == [change]


def test_a_core_that_others_use_is_not_taken_for_a_slower_one() -> None:
    loop = Loop()
    for _ in range(5):
        loop.run(1.0, busy=1.0)
    for _ in range(2):
        loop.run(2.0, busy=1.0)
    again = plan(loop.job, [INFO], loop.store, loop.experience, None)
    assert again.predicted_seconds == pytest.approx(1.0)
