"""Variants that race within a run.

Two cases. Neighbours: two cores and two variants whose times depend on what runs beside them; one
core that tries b beside a sees b lose, though b beside b is the best. Four variants on two cores,
with 5 % noise in every chunk, of which 1 % take 20 times as long: which one is chosen by run 5,
and what 50 runs cost over always using the fastest, both without the noise.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.learning.variant_machine import Disturbance, equal_cores
from benchmarks.results import Bar, Result
from hetsched.planner.records import JobPlan
from hetsched.simulate.learning import learn

PAIR_TIMES = {("a", "a"): 1.25, ("a", "b"): 1.0, ("b", "a"): 1.5, ("b", "b"): 1.15}
"""(variant, variant on the other core) -> time of a unit; alone it takes 1."""
UNIT_SECONDS = 0.001
PAIR_NOISE, PAIR_RUNS, PAIR_LOAD = 0.02, 12, 64

LOAD, RUNS, CHOSEN_BY = 128, 50, 5
"""Units; runs of each seed; the run by which the fastest is chosen."""
NOISE, HICCUPS = 0.05, Disturbance(0.01, 20.0)
SAME_SPEED = 1.03
SEEDS_PER_SEED = 10
"""Seeds of the second case per seed of the command: 100 by default."""
MIN_CHOSEN, MAX_COST = 0.95, 0.04

Table = Callable[[random.Random], list[float]]
TABLES: dict[str, Table] = {
    "within 50 %": lambda rng: [1.0, *(rng.uniform(1.0, 1.5) for _ in range(3))],
    "4 % apart": lambda rng: [1.0, 1.04, 1.08, 1.12],
    "up to 4 times": lambda rng: [1.0, 1.4, 2.0, 4.0],
}
"""Times of the variants over the fastest one's."""


@dataclass(frozen=True)
class Choice:
    """How 50 runs of four variants went.

    Attributes
    ----------
    is_fastest : bool
        The variant of run 5 is within 3 % of the fastest.
    cost : float
        Time of all runs over that of the fastest variant, less 1.
    """

    is_fastest: bool
    cost: float


def pair_variants(seed: int, runs: int = PAIR_RUNS) -> tuple[str, ...]:
    """Return the variants of the two cores in the last run of the case with neighbours."""

    def pace(variant: str, others: tuple[str, ...]) -> float:
        return UNIT_SECONDS * (PAIR_TIMES[variant, others[0]] if others else 1.0)

    machine = equal_cores(2, PAIR_LOAD, ("a", "b"), pace)
    return _variants(learn(machine, runs, PAIR_NOISE, seed)[-1].plan)


def four_variants(table: Table, seed: int) -> Choice:
    """Return how the planner chooses among four variants, in a random order of preference."""
    rng = random.Random(seed)
    ratios = table(rng)
    rng.shuffle(ratios)
    times = dict(zip("abcd", ratios, strict=True))

    def pace(variant: str, others: tuple[str, ...]) -> float:
        return times[variant] * UNIT_SECONDS

    machine = equal_cores(2, LOAD, tuple(times), pace, HICCUPS)
    runs = learn(machine, RUNS, NOISE, seed)
    chosen = _variants(runs[CHOSEN_BY - 1].plan)
    best = min(ratios) * UNIT_SECONDS * LOAD / 2
    return Choice(
        all(times[variant] <= SAME_SPEED * min(ratios) for variant in chosen),
        sum(run.noiseless for run in runs) / (RUNS * best) - 1,
    )


def _variants(plan: JobPlan) -> tuple[str, ...]:
    return tuple(assignment.variant for assignment in plan.assignments)


def measure(seeds: int) -> Result:
    columns = ("case", "seeds", "solved", "cost of 50 runs, mean", "worst seed")
    result = Result("learning_variants", "Learning: which variant is the fastest", columns)
    solved = sum(pair_variants(seed) == ("b", "b") for seed in range(seeds))
    result.rows.append(("neighbours: b beside b", f"{seeds}", f"{solved}", "-", "-"))
    result.data.append({"case": "neighbours", "seeds": seeds, "solved": solved})
    result.bars.append(
        Bar("neighbours: part of the seeds that end with b + b", solved / seeds, 1.0)
    )
    for name, table in TABLES.items():
        choices = [four_variants(table, seed) for seed in range(seeds * SEEDS_PER_SEED)]
        _add(result, name, choices)
    return result


def _add(result: Result, name: str, choices: list[Choice]) -> None:
    chosen = sum(choice.is_fastest for choice in choices)
    costs = [choice.cost for choice in choices]
    mean, worst = statistics.fmean(costs), max(costs)
    row = (f"four variants {name}", f"{len(choices)}", f"{chosen}", f"{mean:.2%}", f"{worst:.2%}")
    result.rows.append(row)
    result.data.append({"case": name, "chosen": chosen, "costs": costs})
    part = chosen / len(choices)
    result.bars.append(Bar(f"{name}: fastest within 3 % by run {CHOSEN_BY}", part, MIN_CHOSEN))
    title = f"{name}: cost of {RUNS} runs over the fastest variant, mean"
    result.bars.append(Bar(title, mean, MAX_COST, at_least=False))
