"""Random histories of tails, thefts, deaths and late answers: each unit counts once."""

import pytest
from random_machine import RandomMachine

RUNS_PER_TEST = 250


@pytest.mark.parametrize("first_seed", range(0, 1000, RUNS_PER_TEST))
def test_each_unit_counts_once_whatever_happens(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + RUNS_PER_TEST):
        machine = RandomMachine(seed)

        machine.run()

        assert machine.counts == [1] * machine.load, f"seed {seed}"
