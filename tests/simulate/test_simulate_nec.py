"""NEC, US 9,038,088: k-means, PCG, and clusters drawn at random."""

from __future__ import annotations

import pytest

from hetsched.errors import UsageError
from hetsched.partition import Phase
from hetsched.simulate.papers import nec
from hetsched.simulate.papers.nec import (
    GLOBAL,
    ONE_PAIR,
    ClusterNode,
    balance,
    random_cluster,
    rules_for,
)

CLUSTERS = [(nodes, seed) for nodes in (4, 9, 16) for seed in (1, 2, 3)]


def test_two_nodes_are_balanced_after_one_repartition() -> None:
    outcome = balance(nec.TWO_NODES, ONE_PAIR)

    assert [run.shares for run in outcome.trace.runs] == [(500, 500), (333, 667)]
    assert outcome.factors == pytest.approx([0.5, 0.001], abs=0.001)


@pytest.mark.parametrize(
    ("case", "iterations", "shares"),
    [(nec.K_MEANS, 6, (10109, 9990, 99901)), (nec.PCG, 5, (655, 1311, 2676, 5358))],
    ids=lambda value: getattr(value, "name", None),
)
def test_applications_reach_the_golden_split(
    case: nec.NecCase, iterations: int, shares: tuple[int, ...]
) -> None:
    outcome = balance(case, ONE_PAIR)

    assert len(outcome.trace.runs) == iterations
    assert outcome.trace.final.shares == shares
    assert outcome.factors[-1] <= case.tolerance


@pytest.mark.parametrize(("nodes", "seed"), CLUSTERS)
def test_one_pair_never_makes_an_iteration_longer(nodes: int, seed: int) -> None:
    outcome = balance(random_cluster(nodes, seed), ONE_PAIR)

    times = [run.makespan for run in outcome.trace.runs]
    assert times == sorted(times, reverse=True)
    assert outcome.ratio <= 1.12


@pytest.mark.parametrize(("nodes", "seed"), CLUSTERS)
def test_every_variant_ends_near_the_optimum(nodes: int, seed: int) -> None:
    case = random_cluster(nodes, seed)

    ratios = {rule.name: balance(case, rule).ratio for rule in rules_for(nodes)}

    assert {name: ratio for name, ratio in ratios.items() if ratio > 1.15} == {}


@pytest.mark.parametrize(("nodes", "seed"), CLUSTERS)
def test_the_global_partition_needs_at_most_three_repartitions(nodes: int, seed: int) -> None:
    assert balance(random_cluster(nodes, seed), GLOBAL).repartitions <= 3


def test_many_pairs_are_faster_than_one_on_many_nodes() -> None:
    case = random_cluster(16, 1)
    one_pair, all_pairs = (balance(case, rule) for rule in rules_for(16)[:2])

    assert all_pairs.repartitions < one_pair.repartitions


def test_nodes_report_their_phases_and_wait_for_the_last() -> None:
    times = nec.phase_times([ClusterNode(1.0, 0.5), ClusterNode(2.0)])((3, 4))

    assert times == [
        {Phase.COMPUTE: 3.0, Phase.TRANSFER: 0.5, Phase.WAIT: 4.5},
        {Phase.COMPUTE: 8.0, Phase.TRANSFER: 0.0, Phase.WAIT: 0.0},
    ]


def test_the_result_has_every_rule() -> None:
    result = nec.run_experiment((4,), seed=2)
    named, random = result.tables

    assert len(named.rows) == 2 * len(nec.CASES)
    assert [row[1] for row in random.rows] == [rule.name for rule in rules_for(4)]
    assert [chart.title for chart in result.charts] == ["4 nodes"]


def test_the_result_gives_the_reason_why_each_ended() -> None:
    for table in nec.run_experiment((4,), seed=1).tables[1:]:
        rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        ends = {row["rule"]: row["end"] for row in rows}
        assert ends.pop("global") == "no further gain"
        assert set(ends.values()) == {"balanced"}
        assert all((row["factor after"] <= 0.1) == (row["end"] == "balanced") for row in rows)


@pytest.mark.parametrize("nodes", [-1, 1, nec.MAX_NODES + 1])
def test_clusters_that_arent_simulated_are_refused(nodes: int) -> None:
    with pytest.raises(UsageError, match=f"nodes: {nodes} must be 2 to"):
        nec.run_experiment((nodes,))
