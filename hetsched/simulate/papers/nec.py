"""NEC, US 9,038,088: balancing an iterative routine by the waits of its nodes.

The patent names k-means and preconditioned conjugate gradients (PCG) and measures neither; the
nodes here are straight lines of computing, with a fixed time of transfers. So are the random
clusters, which show what its variants cost: one pair a repartition, many pairs, groups, and the
global partition of the same history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetsched.errors import UsageError
from hetsched.partition import Balancer, Phase, geometric
from hetsched.partition.balancing.imbalance import imbalance_factor
from hetsched.partition.balancing.splitting import Split
from hetsched.simulate.results import Cell, Chart, Report, Series, Table
from hetsched.simulate.runs import Measure, Run, Shares, Trace, best_split, drive

TOLERANCE = 0.1
"""The patent has a threshold and doesn't print it."""
MOST_RUNS = 400
SHOWN_RUNS = 60
MOST_NODES = 128


@dataclass(frozen=True)
class Machine:
    """A node: `pace` seconds of computing a unit, `transfer` seconds of any share's transfers."""

    pace: float
    transfer: float = 0.0

    def time(self, x: Any, /) -> Any:
        """Seconds for `x` units (number or array); 0 for x = 0."""
        units = np.asarray(x, dtype=np.float64)
        seconds = np.where(units > 0, self.transfer + self.pace * units, 0.0)
        return float(seconds) if np.ndim(x) == 0 else seconds

    def speed(self, x: Any, /) -> Any:
        """Units a second at `x` > 0 units (number or array)."""
        return x / self.time(x)


@dataclass(frozen=True)
class Case:
    """An application on nodes of which the relative speeds are known.

    Attributes
    ----------
    name : str
    load : int, units
    machines : tuple of Machine
    tolerance : float
    """

    name: str
    load: int
    machines: tuple[Machine, ...]
    tolerance: float = TOLERANCE


# k-means exchanges its means, PCG the edges of its strips: whatever the shares, as long.
TWO_NODES = Case("two nodes, 1:2", 1000, (Machine(2e-3), Machine(1e-3)))
K_MEANS = Case(
    "k-means, 1:1:10",
    120_000,
    (Machine(1e-5, 3.6e-4), Machine(1e-5, 3.6e-4), Machine(1e-6, 3.6e-4)),
)
PCG = Case("PCG, 1:2:4:8", 10_000, tuple(Machine(8e-6 / 2**i, 9.5e-5) for i in range(4)), 0.05)
CASES = (TWO_NODES, K_MEANS, PCG)


@dataclass(frozen=True)
class Rule:
    """A way to repartition; `pairs`, `groups` and `split` as in `Balancer`."""

    name: str
    pairs: int = 1
    groups: tuple[tuple[int, ...], ...] | None = None
    split: Split | None = None


ONE_PAIR = Rule("one pair")
GLOBAL = Rule("global", split=geometric)
"""The partition with equal times by the models of the same history, instead of trades."""


@dataclass(frozen=True)
class Outcome:
    """What a rule made of a case."""

    case: Case
    rule: Rule
    trace: Trace
    optimum: Run

    @property
    def factors(self) -> list[float]:
        """Imbalance factor of each run."""
        return [imbalance_factor(run.seconds) for run in self.trace.runs]

    @property
    def ratio(self) -> float:
        """Time of an iteration with the last split over the least possible."""
        return self.trace.final.makespan / self.optimum.makespan

    @property
    def repartitions(self) -> int:
        return sum(units > 0 for units in self.trace.moved())

    @property
    def excess(self) -> float:
        """Units moved over the least that leads from the first split to the last."""
        first, last = self.trace.runs[0].shares, self.trace.final.shares
        least = sum(max(b - a, 0) for a, b in zip(first, last, strict=True))
        return sum(self.trace.moved()) / least if least else 1.0


def phases(machines: Sequence[Machine]) -> Measure:
    """Nodes that tell of their phases, waits at the barrier included."""

    def told(shares: Shares) -> list[Mapping[Phase, float]]:
        busy = [machine.time(share) for machine, share in zip(machines, shares, strict=True)]
        return [
            {
                Phase.COMPUTE: machine.pace * share,
                Phase.TRANSFER: machine.transfer if share else 0.0,
                Phase.WAIT: max(busy) - seconds,
            }
            for machine, share, seconds in zip(machines, shares, busy, strict=True)
        ]

    return told


def balance(case: Case, rule: Rule) -> Outcome:
    """Let `rule` balance `case`, from equal shares."""
    balancer = Balancer(
        case.load, len(case.machines), "imbalance-factor", case.tolerance,
        split=rule.split, pairs=rule.pairs, groups=rule.groups,
    )  # fmt: skip
    trace = drive(balancer, phases(case.machines), MOST_RUNS)
    return Outcome(case, rule, trace, best_split(case.machines, case.load))


def cluster(nodes: int, seed: int) -> Case:
    """`nodes` nodes, 1,000 units each, up to 8 times as fast as others, transfers as for 50 units.

    Raises
    ------
    UsageError
        Fewer than 2 nodes or more than `MOST_NODES`.
    """
    if not 2 <= nodes <= MOST_NODES:
        raise UsageError(f"nodes: {nodes}, it must be 2 to {MOST_NODES}")
    rng = np.random.default_rng((seed, nodes))
    machines = tuple(Machine(1e-3 / 8 ** rng.uniform(), 0.05) for _ in range(nodes))
    return Case(f"{nodes} nodes", 1000 * nodes, machines)


def rules(nodes: int) -> tuple[Rule, ...]:
    """The patent's variants, those in which so many nodes differ, and the global partition."""
    found = [ONE_PAIR]
    if nodes >= 4:
        four = tuple(tuple(range(i, min(i + 4, nodes))) for i in range(0, nodes, 4))
        ring = tuple((i, (i + 1) % nodes) for i in range(nodes))
        found.append(Rule("all pairs", pairs=nodes // 2))
        found.append(Rule("groups of 4", groups=four) if nodes > 4 else Rule("2 pairs", pairs=2))
        found.append(Rule("neighbours", groups=ring))
    return (*found, GLOBAL)


def report(nodes: Sequence[int] = (4, 16, 64), *, seed: int = 1) -> Report:
    """The three named cases with one pair and globally; random clusters with every variant.

    Parameters
    ----------
    nodes : sequence of int
        Sizes of the clusters.
    seed : int

    Raises
    ------
    UsageError
        A cluster of no size that is simulated.
    """
    clusters = [cluster(count, seed) for count in nodes]
    named = [balance(case, rule) for case in CASES for rule in (ONE_PAIR, GLOBAL)]
    random = [balance(case, rule) for case in clusters for rule in rules(len(case.machines))]
    columns = ("nodes", "rule", "factor before", "factor after", "repartitions", "time / optimum",
               "moved / least", "end")  # fmt: skip
    return Report(
        "nec",
        "NEC Laboratories 2015, US 9,038,088",
        (
            Table(
                "Applications that the patent names; it prints no measurements",
                (*columns, "shares"),
                tuple((*_row(one), " ".join(map(str, one.trace.final.shares))) for one in named),
                names=2,
            ),
            Table(
                f"Random clusters (seed {seed}), threshold of the factor {TOLERANCE:g}",
                columns,
                tuple(map(_row, random)),
                names=2,
            ),
        ),
        tuple(_chart(case, [one for one in random if one.case is case]) for case in clusters),
    )


def _row(one: Outcome) -> tuple[Cell, ...]:
    factors = one.factors
    after = imbalance_factor(one.trace.final.seconds)
    end = one.trace.reason or f"{MOST_RUNS} runs"
    return (one.case.name, one.rule.name, factors[0], after, one.repartitions, one.ratio,
            one.excess, end)  # fmt: skip


def _chart(case: Case, outcomes: Sequence[Outcome]) -> Chart:
    series = []
    for one in outcomes:
        runs = one.trace.runs[:SHOWN_RUNS]
        ratios = [run.makespan / one.optimum.makespan for run in runs]
        series.append(Series(one.rule.name, tuple(range(1, len(ratios) + 1)), tuple(ratios)))
    return Chart(case.name, "iteration", "time / optimum", tuple(series), least=1.0)
