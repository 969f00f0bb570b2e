import math
import random
from dataclasses import dataclass

import pytest
from balancer_machines import Times, at_speeds, makespan

from hetsched.partition import Balancer

SEEDS = 4
RUNS = 200
LOAD = 4000


@dataclass
class Noisy:
    """Four devices; `best`: seconds of the best split without noise."""

    draw: random.Random
    times: Times
    best: float

    def run(self, balancer: Balancer) -> tuple[int, ...]:
        shares = balancer.ask().shares
        balancer.tell([self._noisy(t(x)) for t, x in zip(self.times, shares, strict=True)])
        return shares

    def _noisy(self, seconds: float) -> float:
        hiccup = 20 if self.draw.random() < 0.01 else 1
        return seconds * math.exp(self.draw.gauss(0, 0.05)) * hiccup


def machine(seed: int) -> tuple[Noisy, list[float]]:
    draw = random.Random(seed)
    speeds = [10 ** draw.uniform(0, 1) for _ in range(4)]
    return Noisy(draw, at_speeds(*speeds), LOAD / sum(speeds)), speeds


@pytest.mark.parametrize("method", ["geometric", pytest.param("smooth", marks=pytest.mark.stress)])
def test_noise_costs_little_and_moves_little(method: str) -> None:
    losses, moves = [], []
    for seed in range(SEEDS):
        noisy, _ = machine(seed)
        balancer = Balancer(LOAD, 4, method)
        splits = [noisy.run(balancer) for _ in range(RUNS)]
        losses.append(
            sum(makespan(noisy.times, split) for split in splits) / RUNS / noisy.best - 1
        )
        moves.append(sum(a != b for a, b in zip(splits[10:], splits[9:-1], strict=True)))

    assert sum(losses) / SEEDS <= 0.03
    assert sum(moves) / SEEDS <= 0.05 * (RUNS - 10)
