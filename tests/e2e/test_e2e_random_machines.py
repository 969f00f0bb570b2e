"""Machines drawn at random, from nothing, on virtual clocks: balanced by the fourth run."""

from __future__ import annotations

import statistics

import pytest

from benchmarks.machines import draw
from benchmarks.random_machines import embedded
from hetsched.config import parse

SHAPE = (150, 64, 64)
UNIT_BYTES = 64 * 64 * 8


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.stress) for seed in range(3, 20))]
)
def test_the_split_is_found_by_the_fourth_run_and_predicted(seed: int) -> None:
    runs = embedded(draw(seed, "virtual", UNIT_BYTES), SHAPE)

    assert runs[3]["spread"] <= runs[3]["allowed"]
    assert statistics.median(abs(run["accuracy"] - 1) for run in runs[3:]) <= 0.10


def test_a_seed_draws_one_machine_and_another_seed_another() -> None:
    machines = {draw(seed, "virtual") for seed in range(20)}

    assert draw(3, "virtual") in machines
    assert len(machines) == 20
    for text in machines:
        assert 2 <= len(parse(text, "drawn").device) <= 4
