from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.cluster.mapping import (
    Grid,
    Mapping,
    Tree,
    cheapest_flows,
    diffuse,
    quotas,
    rack_tree,
    spanning_tree,
    tree_flows,
)
from hetsched.errors import UsageError
from hetsched.simulate.papers import dethier


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[list[int]], Grid, np.ndarray, np.ndarray]:
    """Neighbourhoods, a grid, and powers before and after."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    hosts = draw(st.integers(1, 12))
    shape = tuple(draw(st.lists(st.integers(3, 9), min_size=1, max_size=3)))
    grid = Grid(shape, corners=draw(st.booleans()), periodic=draw(st.booleans()))
    powers = rng.uniform(0.1, 10, (2, hosts))
    powers[1, draw(st.integers(0, hosts)) :: 3] = 0  # some hosts can do nothing
    powers[1, 0] = 1
    return dethier.neighbourhood(hosts, 2, rng), grid, powers[0], powers[1]


def test_quotas_round_the_running_sum_in_preorder() -> None:
    tree = Tree((-1, 0, 0, 1, 1, 2))
    assert quotas(tree, 1000, [1, 2, 3, 1, 1, 5]).tolist() == [77, 154, 230, 77, 77, 385]


def test_a_spanning_tree_leads_each_host_to_the_lowest_by_the_shortest_way() -> None:
    tree, messages = spanning_tree([[1, 4], [0, 2], [1, 3], [2, 4], [3, 0]])

    assert tree.parents == (-1, 0, 1, 4, 0)
    assert tree.depth == 2
    assert messages > 5
    with pytest.raises(UsageError, match="connected"):
        spanning_tree([[1], [0], [3], [2]])


@given(clusters(), st.sampled_from(["tree", "racks", "cheapest"]))
def test_each_host_gets_its_quota_and_refinement_never_harms(cluster, rule) -> None:  # type: ignore[no-untyped-def]
    near, grid, powers, later = cluster
    hosts = len(near)
    tree = rack_tree([hosts // 2, hosts - hosts // 2] if hosts > 1 else [1])
    if rule != "racks":
        tree, _ = spanning_tree(near)
    before = quotas(tree, len(grid), powers)
    mapping = Mapping.shared_out(grid, tree, before)
    assert mapping.held.tolist() == before.tolist()

    cut = mapping.cut
    mapping.refine()
    assert mapping.held.tolist() == before.tolist()
    assert mapping.cut <= cut

    quota, home = quotas(tree, len(grid), later), mapping.owner.copy()
    if rule == "cheapest":
        everyone = np.array([(a, b) for a in range(hosts) for b in range(a)]).reshape(-1, 2)
        flows = cheapest_flows(everyone, mapping.held, quota)
        surplus = np.maximum(mapping.held - quota, 0).sum()
        assert sum(flow.blocks for flow in flows) == surplus  # nothing moves twice
    else:
        flows = tree_flows(tree, mapping.held, quota)
        assert len(flows) <= hosts - 1
    mapping.ship(flows)
    assert mapping.held.tolist() == quota.tolist()

    cut = mapping.cut
    mapping.refine(home)
    assert mapping.held.tolist() == quota.tolist()
    assert mapping.cut <= cut


@given(clusters())
def test_peers_keep_every_block_and_share_as_they_say(cluster) -> None:  # type: ignore[no-untyped-def]
    near, grid, powers, _ = cluster
    tree, _ = spanning_tree(near)
    mapping = Mapping.shared_out(grid, tree, quotas(tree, len(grid), np.ones(len(near))))
    expected = mapping.held
    flows = diffuse(mapping.pairs, mapping.held, powers)
    for sender, receiver, blocks in flows:
        expected[sender] -= blocks
        expected[receiver] += blocks
        assert expected[sender] >= 0
    mapping.ship(flows)
    assert mapping.held.tolist() == expected.tolist()


def test_peers_are_within_a_tenth_of_the_optimum_after_30_rounds() -> None:
    rng = np.random.default_rng(0)
    grid, hosts = Grid((200, 200), corners=True), 400
    tree, _ = spanning_tree(dethier.neighbourhood(hosts, 4, rng))
    powers = rng.uniform(1, 10, hosts)
    mapping = Mapping.shared_out(grid, tree, quotas(tree, len(grid), np.ones(hosts)))
    mapping.ship(diffuse(mapping.pairs, mapping.held, powers, rounds=30))

    assert max(mapping.held / powers) <= 1.1 * len(grid) / powers.sum()


def test_the_papers_table_holds_and_fewer_blocks_move() -> None:
    result = dethier.run_experiment(3)
    sizes, moves = result.tables

    assert [row[1] for row in sizes.rows] == [row[2] for row in sizes.rows]
    medians = {(row[0], row[1]): row[3] for row in moves.rows}
    assert np.all(np.array(list(medians.values())) <= [2457, 1200, 3123, 1700])
    assert all(row[7] <= dethier.MACHINES - 1 for row in moves.rows)


@pytest.mark.parametrize("slow", [3, 2, 1])
def test_the_cut_is_near_that_of_metis(slow: int) -> None:
    pymetis = pytest.importorskip("pymetis")
    grid = Grid((100, 100), corners=True, periodic=True)
    powers, cuts = np.array([3.0] * 25 + [slow] * 25), []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        tree, _ = spanning_tree(dethier.neighbourhood(50, 4, rng))
        mapping = Mapping.shared_out(grid, tree, quotas(tree, len(grid), rng.permutation(powers)))
        mapping.refine()
        cuts.append(mapping.cut)
    best, _ = pymetis.part_graph(
        50, adjacency=grid.neighbours.tolist(), tpwgts=(powers / powers.sum()).tolist()
    )
    assert np.mean(cuts) <= 1.1 * best


@pytest.mark.parametrize(
    "faulty",
    [
        lambda: Grid((2, 9)),
        lambda: Grid(()),
        lambda: quotas(Tree((-1, 0)), 10, [0, 0]),
        lambda: quotas(Tree((-1, 0)), 10, [1, -1]),
        lambda: quotas(Tree((-1, 0)), 10, [1, float("nan")]),
        lambda: Mapping(Grid((3, 3)), np.full(9, 2), 2),
        lambda: cheapest_flows(np.array([[0, 1]]), np.array([3, 3, 3]), np.array([3, 2, 4])),
        lambda: Mapping(Grid((3, 3)), np.zeros(9, np.int64), 2).ship([(1, 0, 1)]),
    ],
)
def test_what_makes_no_sense_is_refused(faulty) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError):
        faulty()
