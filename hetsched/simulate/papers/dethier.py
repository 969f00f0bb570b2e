"""Dethier, Marchot, de Marneffe 2008: rebalancing when half of the machines slow down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.cluster.mapping import (
    Flow,
    Grid,
    Mapping,
    Tree,
    cheapest_flows,
    quotas,
    spanning_tree,
    tree_flows,
)
from hetsched.errors import UsageError
from hetsched.simulate.runs import Cell, ExperimentResult, Table

SIDE = 100
MACHINES = 50
DEGREE = 4
"""Neighbours that each machine chooses at least; ours, the paper doesn't say."""
GIGAHERTZ = (3.0, 2.0, 1.0)
"""Of the slower half of the machines, one phase after another."""
BLOCKS = {2.0: (240, 160), 1.0: (300, 100)}
MOVED = {2.0: 2457, 1.0: 3123}
MAX_TREES = 1000

Rule = Callable[[Tree, Mapping, np.ndarray], list[Flow]]
RULES: dict[str, Rule] = {
    "tree": lambda tree, mapping, quota: tree_flows(tree, mapping.held, quota),
    "min-cost flow": lambda _, mapping, quota: cheapest_flows(mapping.pairs, mapping.held, quota),
}


@dataclass(frozen=True)
class Rebalance:
    """What one rebalance did.

    Blocks of a fast and a slow machine; data messages and the blocks in them; blocks that
    changed machines; cut edges afterwards.
    """

    fast: int
    slow: int
    flows: int
    carried: int
    moved: int
    cut: int


def neighbourhood(machines: int, degree: int, rng: np.random.Generator) -> list[list[int]]:
    """Let each machine choose neighbours at random until it has `degree`."""
    chosen: list[set[int]] = [set() for _ in range(machines)]
    for machine in range(machines):
        while len(chosen[machine]) < min(degree, machines - 1):
            other = int(rng.integers(machines))
            if other != machine:
                chosen[machine].add(other)
                chosen[other].add(machine)
    return [sorted(others) for others in chosen]


def rebalances(rule: Rule, seed: int) -> tuple[int, list[Rebalance]]:
    rng = np.random.default_rng(seed)
    grid = Grid((SIDE, SIDE), corners=True, periodic=True)
    tree, _ = spanning_tree(neighbourhood(MACHINES, DEGREE, rng))
    slow = rng.permutation(MACHINES)[: MACHINES // 2]
    power = np.full(MACHINES, GIGAHERTZ[0])
    mapping = Mapping.shared_out(grid, tree, quotas(tree, len(grid), power))
    mapping.refine()
    first, done = mapping.cut, []
    for gigahertz in GIGAHERTZ[1:]:
        power[slow] = gigahertz
        quota = quotas(tree, len(grid), power)
        before = mapping.owner.copy()
        flows = rule(tree, mapping, quota)
        mapping.ship(flows)
        mapping.refine(before)
        held = mapping.held
        fast = np.delete(held, slow)
        if np.ptp(fast) or np.ptp(held[slow]):
            raise AssertionError("machines of the same power hold different numbers of blocks")
        carried = sum(flow.blocks for flow in flows)
        moved = int((mapping.owner != before).sum())
        done.append(
            Rebalance(int(fast[0]), int(held[slow[0]]), len(flows), carried, moved, mapping.cut)
        )
    return first, done


def run_experiment(trees: int = 30, *, seed: int = 1) -> ExperimentResult:
    if not 1 <= trees <= MAX_TREES:
        raise UsageError(f"--trees {trees}: must be 1 to {MAX_TREES}")
    runs = {
        name: [rebalances(rule, seed + i) for i in range(trees)] for name, rule in RULES.items()
    }
    _, done = runs["tree"][0]
    sizes: list[Sequence[Cell]] = [("50 x 3 GHz", "200 / 200", "200 / 200")]
    moves: list[Sequence[Cell]] = []
    for phase, gigahertz in enumerate(GIGAHERTZ[1:]):
        fast, slow = BLOCKS[gigahertz]
        case = f"25 x 3 GHz, 25 x {gigahertz:g} GHz"
        here = f"{done[phase].fast} / {done[phase].slow}"
        sizes.append((case, f"{fast} / {slow}", here))
        for name, outcomes in runs.items():
            all_done = [of[phase] for _, of in outcomes]
            moved = [one.moved for one in all_done]
            moves.append(
                (
                    case,
                    name,
                    MOVED[gigahertz] if name == "tree" else None,
                    _median(moved),
                    min(moved),
                    max(moved),
                    _median([one.carried for one in all_done]),
                    max(one.flows for one in all_done),
                    _median([one.cut for one in all_done]),
                )
            )
    cut = _median([first for first, _ in runs["tree"]])
    tables = (
        Table.of("Blocks of a fast and a slow machine", "machines; paper; here", sizes),
        Table.of(
            f"Blocks moved, {trees} random trees (seed {seed}); first cut {cut} of"
            f" {Grid((SIDE, SIDE), corners=True, periodic=True).edges} edges",
            "machines; flows; paper; here (median); least; most; carried; messages; cut",
            moves,
            names=2,
        ),
    )
    return ExperimentResult("dethier", "Dethier, Marchot, de Marneffe 2008", tables)


def _median(values: Sequence[int]) -> int:
    return int(np.median(values))
