from __future__ import annotations

import math
import random

import pytest

from hetsched.job import IterationSeconds
from hetsched.partition.iterations import IterationBalance, TimedIteration

ROWS, ITERATIONS = 2048, 300
SLICE, REPORT = 4e-3, 50e-3
"""Seconds of a time slice, and between two reports of a device."""
FIXED = tuple(range(20, 55, 5))


def end_of(start: float, work: float, first_edge: float) -> float:
    """When `work` seconds have been computed, in every other slice only."""
    now = start
    while work > 0:
        number = math.floor((now - first_edge) / SLICE + 1e-9)
        edge = first_edge + (number + 1) * SLICE
        if number % 2 == 0:
            used = min(work, edge - now)
            work -= used
            edge = now + used
        now = edge
    return now


def seconds(work: float, percent: int | None, seed: int) -> float:
    """Time of a job whose iterations are `work` seconds of one core; None: balanced."""
    draw = random.Random(seed)
    balance = IterationBalance(ROWS, 2, seconds_per_row=4e-6, capacities=[ROWS, ROWS])
    first = ROWS // 2 if percent is None else ROWS * percent // 100
    rows: tuple[int, ...] = (first, ROWS - first)
    now, reported, edge = 0.0, 0.0, draw.uniform(0, SLICE)
    batch: list[TimedIteration] = []
    for iteration in range(1, ITERATIONS + 1):
        shares = [work * count / ROWS * math.exp(draw.gauss(0, 0.02)) for count in rows]
        ends = [end_of(now, shares[0], edge), now + shares[1]]
        times = [IterationSeconds(end - now, wait=max(ends) - end) for end in ends]
        batch.append(TimedIteration(iteration, rows, times))
        now = max(ends)
        following = rows
        if now - reported >= REPORT:
            balance.tell(batch, ITERATIONS - iteration)
            batch, reported = [], now
            following = balance.rows
        rows = following if percent is None else rows
    return now


@pytest.mark.parametrize("work", [2e-3, 6e-3, 20e-3])
def test_a_job_beside_a_busy_neighbour_is_nearly_as_fast_as_with_the_best_split(
    work: float,
) -> None:
    best = min(seconds(work, percent, 0) for percent in FIXED)

    assert max(seconds(work, None, seed) for seed in range(3)) <= 1.15 * best


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("remaining", [ITERATIONS, None])
def test_two_equal_cores_keep_their_rows_beside_processes_that_interrupt_both(
    seed: int, remaining: int | None
) -> None:
    draw = random.Random(seed)
    balance, moves = IterationBalance(ROWS, 2, capacities=[ROWS, ROWS]), 0

    for first in range(1, ITERATIONS + 1, 10):
        batch = []
        for iteration in range(first, first + 10):
            ends = [5e-3 + SLICE * (draw.random() < 0.2) * draw.randint(1, 5) for _ in range(2)]
            times = [IterationSeconds(end, wait=max(ends) - end) for end in ends]
            batch.append(TimedIteration(iteration, balance.rows, times))
        moves += balance.tell(batch, remaining and remaining - first - 9) is not None

    assert moves <= 2
    assert max(balance.rows) <= 1.1 * min(balance.rows)
