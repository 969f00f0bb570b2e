"""NEC, US 9,038,088: balancing an iterative routine by the waits of its nodes.

The patent names k-means and preconditioned conjugate gradients (PCG) but prints no measurements;
the nodes here have a linear compute time and a fixed transfer time. So have those of the random
clusters, which show the cost of its variants: one pair per repartition, many pairs, groups, and
the global partition of the same history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetsched.errors import UsageError
from hetsched.partition import Balancer, Phase, geometric
from hetsched.partition.distribution import Shares
from hetsched.partition.iterations import IMBALANCE_TOLERANCE
from hetsched.simulate.runs import Cell, ExperimentResult, LoopTrace, Measure, Table, drive

MAX_RUNS = 400
NODES = (4, 16, 64)
"""Of the random clusters."""
MAX_NODES = 128


@dataclass(frozen=True)
class ClusterNode:
    """A node: `pace` seconds of computing per unit, `transfer` seconds for any share."""

    pace: float
    transfer: float = 0.0

    def time(self, x: Any, /) -> Any:
        units = np.asarray(x, dtype=np.float64)
        seconds = np.where(units > 0, self.transfer + self.pace * units, 0.0)
        return float(seconds) if np.ndim(x) == 0 else seconds

    def speed(self, x: Any, /) -> Any:
        return x / self.time(x)


@dataclass(frozen=True)
class NecCase:
    name: str
    load: int
    nodes: tuple[ClusterNode, ...]
    tolerance: float = IMBALANCE_TOLERANCE


# k-means exchanges its means, PCG the edges of its strips: the same time for any shares.
CASES = (
    NecCase("two nodes, 1:2", 1000, (ClusterNode(2e-3), ClusterNode(1e-3))),
    NecCase(
        "k-means, 1:1:10",
        120_000,
        (ClusterNode(1e-5, 3.6e-4), ClusterNode(1e-5, 3.6e-4), ClusterNode(1e-6, 3.6e-4)),
    ),
    NecCase(
        "PCG, 1:2:4:8", 10_000, tuple(ClusterNode(8e-6 / 2**i, 9.5e-5) for i in range(4)), 0.05
    ),
)


Rule = Mapping[str, Any]
"""A variant of repartitioning: keywords of `Balancer`."""
ONE_PAIR: Rule = {}
GLOBAL: Rule = {"split": geometric}
"""Partition for equal times by models of the same history, instead of trades."""


def phase_times(nodes: Sequence[ClusterNode]) -> Measure:
    """Return a measurement of nodes that report each phase, including waits at the barrier."""

    def measure(shares: Shares) -> list[Mapping[Phase, float]]:
        busy = [node.time(share) for node, share in zip(nodes, shares, strict=True)]
        return [
            {
                Phase.COMPUTE: node.pace * share,
                Phase.TRANSFER: node.transfer if share else 0.0,
                Phase.WAIT: max(busy) - seconds,
            }
            for node, share, seconds in zip(nodes, shares, busy, strict=True)
        ]

    return measure


def balance(case: NecCase, rule: Rule) -> LoopTrace:
    count, tolerance = len(case.nodes), case.tolerance
    balancer = Balancer(case.load, count, "imbalance-factor", tolerance, **rule)
    return drive(balancer, case.nodes, MAX_RUNS, phase_times(case.nodes))


def random_cluster(count: int, seed: int) -> NecCase:
    """Draw `count` nodes: 1,000 units each, speeds within a factor of 8.

    A transfer takes as long as 50 units on the slowest possible node.
    """
    if not 2 <= count <= MAX_NODES:
        raise UsageError(f"nodes: {count} must be 2 to {MAX_NODES}")
    rng = np.random.default_rng((seed, count))
    nodes = tuple(ClusterNode(1e-3 / 8 ** rng.uniform(), 0.05) for _ in range(count))
    return NecCase(f"{count} nodes", 1000 * count, nodes)


def rules_for(nodes: int) -> dict[str, Rule]:
    rules = {"one pair": ONE_PAIR}
    if nodes >= 4:
        four = tuple(tuple(range(i, min(i + 4, nodes))) for i in range(0, nodes, 4))
        ring = tuple((i, (i + 1) % nodes) for i in range(nodes))
        rules["all pairs"] = {"pairs": nodes // 2}
        rules |= {"groups of 4": {"groups": four}} if nodes > 4 else {"2 pairs": {"pairs": 2}}
        rules["neighbours"] = {"groups": ring}
    return {**rules, "global": GLOBAL}


def run_experiment(nodes: Sequence[int] = NODES, *, seed: int = 1) -> ExperimentResult:
    clusters = [random_cluster(count, seed) for count in nodes]
    both = {"one pair": ONE_PAIR, "global": GLOBAL}
    named = [(case, *rule) for case in CASES for rule in both.items()]
    random = [(case, *rule) for case in clusters for rule in rules_for(len(case.nodes)).items()]
    header = (
        "nodes; rule; factor before; factor after; repartitions; time / optimum; moved / least;"
        " end"
    )
    tables = (
        Table.of(
            "Applications named in the patent, which prints no measurements",
            f"{header}; shares",
            [_row(*each) for each in named],
            names=2,
        ),
        Table.of(
            f"Random clusters (seed {seed}), imbalance-factor threshold {IMBALANCE_TOLERANCE:g}",
            header,
            [_row(*each)[:-1] for each in random],
            names=2,
        ),
    )
    return ExperimentResult("nec", "NEC Laboratories 2015, US 9,038,088", tables)


def _row(case: NecCase, name: str, rule: Rule) -> tuple[Cell, ...]:
    trace = balance(case, rule)
    before, after = (1 - min(r.seconds) / max(r.seconds) for r in (trace.runs[0], trace.final))
    moved, last = trace.moved_units(), trace.final.shares
    least = sum(max(b - a, 0) for a, b in zip(trace.runs[0].shares, last, strict=True))
    return (
        case.name, name, before, after, sum(units > 0 for units in moved), trace.ratio,
        sum(moved) / least if least else 1.0, trace.reason or f"{MAX_RUNS} runs",
        " ".join(map(str, last)),
    )  # fmt: skip
