"""Rebalance a stencil over many simulated hosts: by trees, racks, flows and peers."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

import numpy as np

from hetsched.cluster.mapping import (
    Grid,
    Mapping,
    cheapest_flows,
    diffuse,
    quotas,
    rack_tree,
    spanning_tree,
    tree_flows,
)
from hetsched.errors import UsageError
from hetsched.simulate.papers.dethier import DEGREE, neighbourhood
from hetsched.simulate.runs import Cell, ExperimentResult, Table

HOSTS = (50, 500, 2000)
MAX_HOSTS = 10_000
BLOCKS = 100
"""Of each host on average."""
RACK = 40
ROUNDS = 30
"""Of messages among peers in a rebalance."""
SPEEDS = (1.0, 10.0)
BALANCED = 1.1
"""Time of an iteration over the optimum's that counts as balanced."""
MAX_ITERATIONS = 10


def run_experiment(hosts: Sequence[int] = HOSTS, *, seed: int = 1) -> ExperimentResult:
    """Start from equal parts on hosts of random speeds; rebalance by each rule."""
    for count in hosts:
        if not 9 <= count <= MAX_HOSTS:
            raise UsageError(f"--hosts {count}: must be 9 to {MAX_HOSTS}")
    rows = [row for count in hosts for row in _rebalances(count, seed)]
    table = Table.of(
        f"{BLOCKS} blocks a host, speeds {SPEEDS[0]:g} to {SPEEDS[1]:g} (seed {seed})",
        "hosts; rule; messages; longest chain; moved %; cut before; cut after; time before;"
        " time after; iterations; computed s",
        rows,
        names=2,
    )
    return ExperimentResult("cluster", "times are over the optimum's", (table,))


def _rebalances(hosts: int, seed: int) -> Iterator[Sequence[Cell]]:
    rng = np.random.default_rng((seed, hosts))
    side = math.isqrt(hosts * BLOCKS)
    grid = Grid((side, side), corners=True)
    power = rng.uniform(*SPEEDS, hosts)
    near, _ = spanning_tree(neighbourhood(hosts, DEGREE, rng))
    racks = [RACK] * (hosts // RACK) + ([hosts % RACK] if hosts % RACK else [])
    trees = {"tree": near, "racks": rack_tree(racks)}
    optimum = len(grid) / power.sum()
    for rule in ("tree", "racks", "min-cost flow", "peers"):
        tree = trees.get(rule, near)
        quota = quotas(tree, len(grid), np.ones(hosts))
        start = Mapping.shared_out(grid, tree, quota)
        mapping = Mapping(grid, start.owner, hosts)
        messages, chain, iterations, began = 0, 0, 0, time.process_time()
        while max(mapping.held / power) > BALANCED * optimum and iterations < MAX_ITERATIONS:
            pairs = mapping.pairs
            if rule == "peers":
                flows = diffuse(pairs, mapping.held, power, ROUNDS)
                messages += 2 * ROUNDS * len(pairs)
                chain += ROUNDS
            else:
                quota = quotas(tree, len(grid), power)
                messages += 2 * (hosts - 1)  # sums up, the load down
                if rule == "min-cost flow":
                    flows = cheapest_flows(pairs, mapping.held, quota)
                    chain += 2
                else:
                    flows = tree_flows(tree, mapping.held, quota)
                    chain += 2 * tree.depth
            mapping.ship(flows)
            mapping.refine(start.owner)
            messages += len(flows) + 2 * len(pairs)  # blocks; borders, there and back
            chain += _longest(flows) + 1
            iterations += 1
        seconds = time.process_time() - began
        yield (
            hosts,
            rule,
            messages,
            chain,
            100 * float((mapping.owner != start.owner).mean()),
            start.cut,
            mapping.cut,
            float(max(start.held / power) / optimum),
            float(max(mapping.held / power) / optimum),
            iterations,
            seconds,
        )


def _longest(flows: Sequence[tuple[int, int, int]]) -> int:
    """Most flows of which each waits for the one before."""
    after: dict[int, int] = {}
    for sender, receiver, _ in flows:
        after[receiver] = max(after.get(receiver, 0), after.get(sender, 0) + 1)
    return max(after.values(), default=0)
