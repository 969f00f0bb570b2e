"""Devices that slow each other down, through the planner's loop."""

import pytest

from benchmarks.learning.co_runners import (
    BUSY_CORES_SLOW_GPU,
    COUNTED_FROM,
    MAX_RATIO,
    MAX_SEARCH,
    RUNS,
    Contention,
    random_table,
    runs_of,
    search_cost,
    set_seconds,
)

LAST_RUN = 16


def test_a_gpu_slowed_by_cores_is_used_alone() -> None:
    runs = runs_of(BUSY_CORES_SLOW_GPU, seed=0, runs=LAST_RUN)

    final = {a.device: a.plan.share for a in runs[-1].plan.assignments}
    assert final == {"gpu0": 400}
    assert runs[-1].noiseless == pytest.approx(0.2, rel=0.01)
    assert set_seconds(BUSY_CORES_SLOW_GPU)[frozenset({"gpu0", "cpu0", "cpu1"})] == pytest.approx(
        0.225, rel=0.01
    )


@pytest.mark.parametrize(
    ("contention", "seed"),
    [(random_table(0), 1), (random_table(7), 1), (random_table(8), 8)],
    ids=["table 0", "table 7", "table 8, whose last chunks run alone"],
)
def test_the_best_set_is_found_and_the_search_costs_little(
    contention: Contention, seed: int
) -> None:
    best = min(set_seconds(contention).values())
    runs = runs_of(contention, seed=seed, runs=LAST_RUN)

    later = [run.noiseless for run in runs[COUNTED_FROM - 1 :]]
    assert sum(later) / len(later) <= MAX_RATIO * best
    assert search_cost(runs, best) <= MAX_SEARCH * RUNS
