"""Repeated jobs of one kind: how their shares are chosen, and when they are planned again."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from toy_loop import ToyLoop

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.planner.job_planner import Assignment, JobPlan
from hetsched.planner.learning import DeviceRun

LOAD = 4000


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


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.stress) for n in range(1, 20))]
)
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
