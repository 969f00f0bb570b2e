"""Several variants of a workload: trying them, and a device that changes, move little else."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from toy_loop import ToyLoop

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.planner.learning import DeviceRun

DIFFERENT, EQUAL = (1e4, 2e4, 3.5e4, 7e4), (3e4,) * 4
"""Units a second of four cores."""
SLOWER = (1.0, 1.15, 1.4)
"""How many times as long each variant takes as the best."""
NOISE = 0.02
CHANGED = 30
"""The run in which a core becomes half as fast."""


class Machine(ToyLoop):
    """Four cores and three variants of one job, run again and again."""

    def __init__(self, speeds: tuple[float, ...], seed: int) -> None:
        self.pace = [[slower / speed for slower in SLOWER] for speed in speeds]
        self.draw = random.Random(seed)
        are_equal = len(set(speeds)) == 1
        infos = [
            DeviceInfo(name=f"cpu{i}", kind="cpu", identity="x" if are_equal else f"kind {i}")
            for i in range(len(speeds))
        ]
        super().__init__(4000, infos, [f"v{i}" for i in range(len(SLOWER))])
        self.variants: tuple[str, ...] = ()

    def run(self) -> tuple[tuple[int, ...], float]:
        """Plan, run and learn: the shares, and the spread of the times without noise."""
        plan = self.plan()
        runs, exact = {}, []
        for assignment in plan.assignments:
            number = int(assignment.device[3:])
            paces = [self.pace[number][int(variant[1:])] for variant in assignment.variants]
            exact.append(sum(chunk.count * paces[chunk.kernel] for chunk in assignment.chunks))
            luck = math.exp(self.draw.gauss(0, NOISE))
            now, chunks = 0.0, []
            for chunk in assignment.chunks:
                end = now + chunk.count * paces[chunk.kernel] * luck
                times = ChunkTimes(compute=(now, end), kernel=chunk.kernel)
                chunks.append((chunk.count, times))
                now = end
            runs[assignment.device] = DeviceRun(assignment, self.infos[number], tuple(chunks))
        self.learn(plan, runs)
        self.variants = tuple(assignment.variant for assignment in plan.assignments)
        shares = tuple(assignment.plan.share for assignment in plan.assignments)
        return shares, max(exact) / min(exact) - 1

    def slow_down(self, core: int, *variants: int) -> None:
        """`core` takes twice as long, with these variants or (none given) with all."""
        for variant in variants or range(len(SLOWER)):
            self.pace[core][variant] *= 2


def changes(speeds: tuple[float, ...], seed: int) -> float:
    """Part of the runs, after the tenth, that have another split than the run before."""
    machine = Machine(speeds, seed)
    splits = [machine.run()[0] for _ in range(110)]
    return sum(before != after for before, after in pairwise(splits[9:])) / 100


def rebalanced(speeds: tuple[float, ...], seed: int) -> bool:
    """Whether the fourth run after a core has changed is balanced."""
    machine = Machine(speeds, seed)
    for _ in range(CHANGED):
        machine.run()
    machine.slow_down(seed % len(speeds))
    return [machine.run()[1] for _ in range(4)][3] < 0.1


def test_three_variants_change_the_split_in_at_most_one_run_of_twenty() -> None:
    fractions = [changes(speeds, seed=0) for speeds in (DIFFERENT, EQUAL)]

    assert sum(fractions) / len(fractions) <= 0.05


@pytest.mark.stress
def test_a_core_that_changes_is_rebalanced_by_the_fourth_run_whatever_the_variants() -> None:
    assert all(rebalanced(DIFFERENT, seed) for seed in range(8))


@pytest.mark.stress
def test_so_is_one_of_equal_cores() -> None:
    assert all(rebalanced(EQUAL, seed) for seed in range(4))
