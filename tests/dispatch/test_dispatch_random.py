"""Random histories of tails, thefts, deaths and late answers: each unit counts once."""

import pytest
from random_machine import RandomMachine


@pytest.mark.parametrize("seeds", [300, pytest.param(3000, marks=pytest.mark.stress)])
def test_each_unit_counts_once_whatever_happens(seeds: int) -> None:
    for seed in range(seeds):
        machine = RandomMachine(seed)

        machine.run()

        assert machine.counts == [1] * machine.load, f"seed {seed}"
