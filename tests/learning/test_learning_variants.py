"""Variants that race within a run, by a few seeds of the learning case."""

from __future__ import annotations

import statistics

import pytest

from benchmarks.learning import variants
from benchmarks.learning.variants import (
    MAX_COST,
    TABLES,
    four_variants,
    measure,
    pair_variants,
)


def test_two_cores_find_the_variant_that_is_best_beside_itself() -> None:
    assert {pair_variants(seed) for seed in range(4)} == {("b", "b")}


def test_the_fastest_of_four_variants_is_chosen_by_run_5_at_little_cost() -> None:
    choices = [four_variants(TABLES["within 50 %"], seed) for seed in range(6)]

    assert all(choice.is_fastest for choice in choices)
    assert statistics.fmean(choice.cost for choice in choices) <= MAX_COST


def test_the_family_has_a_row_and_bars_for_each_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "SEEDS_PER_SEED", 1)
    monkeypatch.setattr(variants, "RUNS", 8)

    result = measure(1)

    assert len(result.rows) == 1 + len(TABLES)
    assert len(result.bars) == 1 + 2 * len(TABLES)
