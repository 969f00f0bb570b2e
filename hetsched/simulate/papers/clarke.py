"""Clarke, Lastovetsky & Rychkov 2011: Jacobi's method on four machines, two with little memory.

The paper gives processors, memory and sizes but no speeds, and shows the slowdown by paging only
as a picture. Assumed here: speed in proportion to the clock; 44 MiB of each machine's memory for
everything else; beyond the capacity the time of a row rises linearly, to 75 times over 5 % of the
capacity. The loop then pages in the same run as the paper's. `all_settings` varies all three.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hetsched.errors import UsageError
from hetsched.models import Constant
from hetsched.partition import Balancer
from hetsched.partition.iterations import TOLERANCE
from hetsched.simulate.curves import Linear, Paging
from hetsched.simulate.results import Cell, ExperimentResult, Table
from hetsched.simulate.runs import LoopRun, LoopTrace, best_split, drive, exact_times

RAM_MIB = (256, 256, 512, 1024)
"""P1 to P4: the paper's table 1, cluster 2."""
CLOCK_GHZ = (3.6, 3.0, 3.4, 3.4)
ELEMENT_BYTES = 8
"""A row has as many elements as there are rows."""
MAX_NEAR_RATIO = 1.05
"""Maximum ratio to the optimum's time of a run near the optimum."""
MAX_RUNS = 30


@dataclass(frozen=True)
class ClarkeSetting:
    """A matrix of `rows` x `rows` elements, and how the four machines page."""

    rows: int  # the load
    reserve: float = 44.0  # MiB of each machine that aren't available for the matrix
    factor: float = 75.0  # slowdown of a row on a machine that pages
    width: float = 0.05  # fraction of the capacity over which it is reached
    linear: Linear = "time"  # what changes linearly there

    def machines(self) -> list[Paging]:
        """Make P1 to P4."""
        if not len(RAM_MIB) <= self.rows <= 100_000:
            raise UsageError(f"rows: {self.rows} must be {len(RAM_MIB)} to 100000")
        if not 0 <= self.reserve < min(RAM_MIB):
            raise UsageError(
                f"reserve: {self.reserve:g} MiB must be at least 0 and less than the smallest"
                f" machine's {min(RAM_MIB)} MiB"
            )
        return [
            Paging(
                Constant(ghz * 55e6 / self.rows),  # any speed will do: it doesn't change shares
                (ram - self.reserve) * 2**20 / (ELEMENT_BYTES * self.rows),
                self.factor,
                self.width,
                self.linear,
            )
            for ram, ghz in zip(RAM_MIB, CLOCK_GHZ, strict=True)
        ]


STANDARD = ClarkeSetting(11000)
"""The machines with the assumptions above."""


@dataclass(frozen=True)
class ClarkeOutcome:
    """The result of one method in one setting."""

    setting: ClarkeSetting
    method: str
    trace: LoopTrace
    optimum: LoopRun  # exact, of the true curves
    pages: tuple[int, ...]  # numbers, from 1, of the runs in which a machine pages

    @property
    def near(self) -> int | None:
        """Number of the first run near the optimum; None without such a run."""
        return self.trace.first_within(MAX_NEAR_RATIO * self.optimum.makespan)

    @property
    def ratios(self) -> list[float]:
        """Each run's time over the optimum's."""
        return [run.makespan / self.optimum.makespan for run in self.trace.runs]


def balance(
    setting: ClarkeSetting,
    method: str,
    *,
    limited: bool = False,
    forgets_runs: bool = False,
    tolerance: float = TOLERANCE,
    max_runs: int = MAX_RUNS,
) -> ClarkeOutcome:
    """Balance `setting` with a method of `Balancer`.

    `limited`: it knows the machines' capacities. `forgets_runs`: it forgets measured
    distributions, like the paper's loops.
    """
    machines = setting.machines()
    limits = [int(machine.capacity) for machine in machines] if limited else None
    balancer = Balancer(
        setting.rows, len(machines), method, tolerance, limits, stop_when_seen=not forgets_runs
    )
    trace = drive(balancer, exact_times(machines), max_runs)
    pages = tuple(
        number
        for number, run in enumerate(trace.runs, 1)
        if any(m.pages(share) for m, share in zip(machines, run.shares, strict=True))
    )
    return ClarkeOutcome(setting, method, trace, optimum(setting), pages)


@functools.lru_cache(maxsize=256)
def optimum(setting: ClarkeSetting) -> LoopRun:
    """Compute the exact optimum of `setting` from the machines' true curves."""
    return best_split(setting.machines(), setting.rows)


def all_settings(linear: Linear = "time") -> Iterator[ClarkeSetting]:
    """Generate 72 settings: two sizes that page, six reserves, two factors, three widths."""
    for rows, reserve in itertools.product((11000, 12000), range(28, 49, 4)):
        for factor, width in itertools.product((20.0, 75.0), (0.02, 0.05, 0.1)):
            yield ClarkeSetting(rows, float(reserve), factor, width, linear)


# ---- beside the paper's figures

SOURCE = "Clarke, Lastovetsky & Rychkov 2011, Parallel Processing Letters"
PAPER = {
    (8000, "constant"): "balanced",
    (8000, "geometric"): "much the same",
    (11000, "constant"): "never, 300 MB a run",
    (11000, "geometric"): "9, pages in 8",
    (12000, "smooth"): "7",
}
"""(rows, method) -> the run that is near the optimum: sections 3.2, 5.3 and 6.4."""
METHODS = ("constant", "geometric", "smooth")
LOADS = (8000, 11000, 12000)
MAX_CONSTANT_RUNS = 12


def run_experiment(
    loads: Sequence[int] = LOADS,
    *,
    like: ClarkeSetting = STANDARD,
    tolerance: float = TOLERANCE,
) -> ExperimentResult:
    """Compare every method with the paper, on matrices of these sizes."""
    tables = []
    rows: list[tuple[Cell, ...]] = []
    for load in loads:
        setting = replace(like, rows=load)
        outcomes = {
            method: balance(
                setting, method, tolerance=tolerance,
                forgets_runs=method == "constant",
                max_runs=MAX_CONSTANT_RUNS if method == "constant" else MAX_RUNS,
            )
            for method in METHODS
        }  # fmt: skip
        outcomes["limits known"] = balance(setting, "geometric", limited=True, tolerance=tolerance)
        is_standard = setting == replace(STANDARD, rows=load)
        rows += [
            _row(name, outcome, PAPER.get((load, name)) if is_standard else None)
            for name, outcome in outcomes.items()
        ]
        tables.append(_run_by_run(outcomes["geometric"]))
    summary = Table.of(
        f"Runs until within {MAX_NEAR_RATIO - 1:.0%} of the optimum",
        "rows; method; near in run; paper; best / optimum; runs; that page; MB moved last",
        rows,
        4,
    )
    return ExperimentResult("clarke", SOURCE, (summary, *tables))


def run_sweep(linear: Linear = "time", *, tolerance: float = TOLERANCE) -> ExperimentResult:
    """Count the runs that each method needs in all 72 settings. Takes some seconds."""
    by_method = {
        name: [
            balance(setting, method, limited=limited, tolerance=tolerance)
            for setting in all_settings(linear)
        ]
        for name, method, limited in (
            ("constant", "constant", False),
            ("geometric", "geometric", False),
            ("smooth", "smooth", False),
            ("limits known", "geometric", True),
        )
    }
    title = (
        f"Settings within {MAX_NEAR_RATIO - 1:.0%} of the optimum; {linear} is linear in paging"
    )
    table = Table.of(
        title,
        "method; settings; near; in 2 runs; in 9; in 12; most runs; that page",
        (_summary(name, outcomes) for name, outcomes in by_method.items()),
    )
    return ExperimentResult("clarke", SOURCE, (table,))


def _near_by(outcomes: Sequence[ClarkeOutcome], runs: int) -> int:
    return sum(outcome.near is not None and outcome.near <= runs for outcome in outcomes)


def _summary(name: str, outcomes: Sequence[ClarkeOutcome]) -> tuple[Cell, ...]:
    near = [outcome.near for outcome in outcomes if outcome.near is not None]
    counts = [_near_by(outcomes, runs) for runs in (2, 9, 12)]
    pages = sum(len(outcome.pages) for outcome in outcomes)
    return name, len(outcomes), len(near), *counts, max(near, default=None), pages


def _row(name: str, outcome: ClarkeOutcome, paper: str | None) -> tuple[Cell, ...]:
    moved = outcome.trace.moved_units()
    megabytes = moved[-1] * outcome.setting.rows * ELEMENT_BYTES / 1e6 if moved else 0.0
    runs = len(outcome.trace.runs)
    return (
        outcome.setting.rows, name, outcome.near or "never", paper, min(outcome.ratios), runs,
        len(outcome.pages), megabytes,
    )  # fmt: skip


def _run_by_run(outcome: ClarkeOutcome) -> Table:
    machines = outcome.setting.machines()
    rows = []
    for number, (run, ratio) in enumerate(zip(outcome.trace.runs, outcome.ratios, strict=True), 1):
        pairs = zip(machines, run.shares, strict=True)
        pages = [f"P{i}" for i, (m, share) in enumerate(pairs, 1) if m.pages(share)]
        rows.append((number, *run.shares, ratio, " ".join(pages) or None))
    title = f"geometric, {outcome.setting.rows} rows"
    return Table.of(title, "run; P1; P2; P3; P4; time / optimum; pages", rows)
