"""Clarke, Lastovetsky & Rychkov 2011: Jacobi's method on four machines, two with little memory.

The paper gives processors, memory and sizes but no speeds, and shows the slowdown by paging only
as a picture. Assumed here: speed in proportion to the clock; 44 MiB of each machine's memory for
everything else; beyond the capacity the time of a row rises linearly, to 75 times over 5 % of the
capacity. The loop then pages in the same run as the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hetsched.errors import UsageError
from hetsched.models import Constant
from hetsched.partition import Balancer
from hetsched.partition.iterations import TOLERANCE
from hetsched.simulate.curves import Linear, Paging
from hetsched.simulate.runs import Cell, ExperimentResult, LoopTrace, Table, drive

RAM_MIB = (256, 256, 512, 1024)
"""P1 to P4: the paper's table 1, cluster 2."""
CLOCK_GHZ = (3.6, 3.0, 3.4, 3.4)
ELEMENT_BYTES = 8
"""A row has as many elements as there are rows."""
MAX_NEAR_RATIO = 1.05
"""Of a run near the optimum: its time over the optimum's."""
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


def balance(
    setting: ClarkeSetting,
    method: str,
    *,
    limited: bool = False,
    forgets_runs: bool = False,
    tolerance: float = TOLERANCE,
    max_runs: int = MAX_RUNS,
) -> LoopTrace:
    """Balance `setting` with a method of `Balancer`.

    `limited`: it knows the machines' capacities. `forgets_runs`: it forgets measured
    distributions, like the paper's loops.
    """
    machines = setting.machines()
    limits = [int(machine.capacity) for machine in machines] if limited else None
    balancer = Balancer(
        setting.rows, len(machines), method, tolerance, limits, stop_when_seen=not forgets_runs
    )
    return drive(balancer, machines, max_runs)


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
            _row(name, setting, outcome, PAPER.get((load, name)) if is_standard else None)
            for name, outcome in outcomes.items()
        ]
        tables.append(_run_by_run(setting, outcomes["geometric"]))
    summary = Table.of(
        f"Runs until within {MAX_NEAR_RATIO - 1:.0%} of the optimum",
        "rows; method; near in run; paper; best / optimum; runs; that page; MB moved last",
        rows,
        4,
    )
    return ExperimentResult("clarke", SOURCE, (summary, *tables))


def _row(
    name: str, setting: ClarkeSetting, trace: LoopTrace, paper: str | None
) -> tuple[Cell, ...]:
    moved = trace.moved_units()
    megabytes = moved[-1] * setting.rows * ELEMENT_BYTES / 1e6 if moved else 0.0
    near = trace.first_within(MAX_NEAR_RATIO) or "never"
    paging = sum(map(bool, _pages(setting, trace)))
    return (
        setting.rows, name, near, paper, min(trace.ratios), len(trace.runs), paging, megabytes,
    )  # fmt: skip


def _pages(setting: ClarkeSetting, trace: LoopTrace) -> list[str]:
    """Return the machines that page in each run, "P1 P2"."""
    machines = setting.machines()
    return [
        " ".join(f"P{i}" for i, m in enumerate(machines, 1) if m.pages(run.shares[i - 1]))
        for run in trace.runs
    ]


def _run_by_run(setting: ClarkeSetting, trace: LoopTrace) -> Table:
    columns = zip(trace.runs, trace.ratios, _pages(setting, trace), strict=True)
    rows = [
        (number, *run.shares, ratio, pages or None)
        for number, (run, ratio, pages) in enumerate(columns, 1)
    ]
    title = f"geometric, {setting.rows} rows"
    return Table.of(title, "run; P1; P2; P3; P4; time / optimum; pages", rows)
