"""Repeated jobs of one kind: how their shares are chosen, and when they are planned again."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from toy_loop import ToyLoop

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.engine.planning.device_run import DeviceRun
from hetsched.engine.planning.plans import job_kind
from hetsched.errors import UsageError
from hetsched.memory import MemoryDemand
from hetsched.planner.job_planner import Assignment, Candidate, JobPlan, plan_job
from hetsched.planner.rebalancing.rebalancer import MAX_REPEATS

LOAD = 4000
DEMAND = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1)


class Machine(ToyLoop):
    """Cores of different kinds, `speeds` in units a second; a store that counts look-ups."""

    def __init__(self, *speeds: float, noise: float = 0.0) -> None:
        self.speeds, self.noise, self.draw = list(speeds), noise, random.Random(5)
        infos = [
            DeviceInfo(name=f"cpu{i}", kind="cpu", identity=f"kind {i}")
            for i in range(len(speeds))
        ]
        super().__init__(LOAD, infos)
        self.plans: list[JobPlan] = []

    def run(self, steals: bool = False) -> tuple[int, ...]:
        """Plan, run and learn; the shares as planned, or as if all was stolen that pays."""
        plan = self.plan()
        self.plans.append(plan)
        runs = {}
        for assignment in plan.assignments:
            number = int(assignment.device[3:])
            pace = self._wild() / self.speeds[number]
            now, chunks = 0.0, []
            for count in self._counts(assignment, steals):
                end = now + count * pace
                chunks.append((count, ChunkTimes(compute=(now, end))))
                now = end
            runs[assignment.device] = DeviceRun(assignment, self.infos[number], tuple(chunks))
        self.learn(plan, runs)
        return tuple(runs[info.name].share for info in self.infos)

    def _counts(self, assignment: Assignment, steals: bool) -> list[int]:
        if not steals:
            return [chunk.count for chunk in assignment.chunks]
        size = assignment.max_chunk
        share = round(LOAD * self.speeds[int(assignment.device[3:])] / sum(self.speeds))
        return [min(size, share - done) for done in range(0, share, size)]

    def _wild(self) -> float:
        if not self.noise:
            return 1.0
        hiccup = 20 if self.draw.random() < 0.01 else 1
        return math.exp(self.draw.gauss(0, self.noise)) * hiccup


def test_from_the_second_run_on_all_finish_together() -> None:
    machine = Machine(1.0, 3.0)

    assert [machine.run() for _ in range(4)] == [(2000, 2000)] + 3 * [(1000, 3000)]


def test_a_good_plan_is_followed_unseen_for_some_runs() -> None:
    machine = Machine(1.0, 3.0)

    for _ in range(3 + 2 * MAX_REPEATS):
        machine.run()

    is_new = [before is not after for before, after in pairwise(machine.plans)]
    assert is_new[:3] == [True, False, False]
    assert sum(is_new) <= 4


def test_noise_changes_the_split_in_few_runs_and_costs_little() -> None:
    machine = Machine(1.0, 2.0, 3.5, 7.0, noise=0.05)

    splits = [machine.run() for _ in range(120)]

    moves = [before != after for before, after in pairwise(splits[9:])]
    longest = [
        max(x / s for x, s in zip(split, machine.speeds, strict=True)) for split in splits[1:]
    ]
    assert sum(moves) <= 0.08 * len(moves)
    assert sum(longest) / len(longest) <= 1.03 * LOAD / sum(machine.speeds)


def test_a_core_that_slows_down_gets_less_from_the_fourth_run_on() -> None:
    machine = Machine(1.0, 3.0)
    for _ in range(12):
        machine.run()
    machine.speeds[1] = 1.0

    for _ in range(3):
        machine.run()

    assert machine.run() == (2000, 2000)


@pytest.mark.parametrize("seed", range(5))
def test_from_work_that_moved_the_models_learn_and_the_split_follows(seed: int) -> None:
    machine = Machine(1.0, 3.0, noise=0.02)
    machine.draw.seed(seed)
    for _ in range(12):
        machine.run()
    machine.speeds[1] = 1.5

    for _ in range(5):
        machine.run(steals=True)

    planned = [assignment.plan.share for assignment in machine.plans[-1].assignments]
    assert planned == pytest.approx([1600, 2400], rel=0.05)


def test_after_a_run_in_which_work_moved_the_job_is_planned_again() -> None:
    machine = Machine(1.0, 3.0)
    for _ in range(4):
        machine.run()
    machine.speeds[1] = 2.0

    machine.run(steals=True)
    machine.run(steals=True)

    assert machine.plans[-2] is machine.plans[-3]
    assert machine.plans[-1] is not machine.plans[-2]


def test_what_was_not_planned_last_teaches_no_split() -> None:
    machine = Machine(1.0, 3.0)
    machine.run()
    rebalancer = machine.state.plans.rebalancer(
        job_kind(machine.job, ["cpu0", "cpu1"], None), machine.job.load
    )

    rebalancer.report(machine.plans[0], {"cpu0": 1.0, "cpu1": 99.0}, 99.0)

    assert machine.run() == (1000, 3000)


def test_after_running_out_of_memory_the_job_is_planned_again() -> None:
    machine = Machine(1.0, 3.0)
    for _ in range(3):
        machine.run()

    machine.state.record_out_of_memory("cpu0", 1000)
    machine.run()

    assert machine.plans[-1] is not machine.plans[-2]


def _core(name: str) -> Candidate:
    info = DeviceInfo(name=name, kind="cpu", identity="x")
    return Candidate(info=info, demand=DEMAND, models={"numpy": None}, run_counts={"numpy": 0})


def test_shares_that_are_held_are_only_cut_into_chunks() -> None:
    plan = plan_job(10, [_core("cpu0"), _core("cpu1")], {"cpu0": 3, "cpu1": 7})

    assert [assignment.plan.share for assignment in plan.assignments] == [3, 7]


def test_shares_that_are_held_must_make_up_the_load() -> None:
    with pytest.raises(UsageError, match="they sum to 9 units, the load is 10"):
        plan_job(10, [_core("cpu0"), _core("cpu1")], {"cpu0": 3, "cpu1": 6})
