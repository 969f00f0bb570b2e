"""Clarke, Lastovetsky & Rychkov 2011: Jacobi's method on four machines, two with little memory.

The paper gives processors, memory and sizes but no speeds, and how speed falls beyond the memory
only as a picture. Assumed here: speed in proportion to the clock; 44 MiB of each machine's memory
for everything else; beyond the capacity the time of a row rises linearly, to 75 times over 5 % of
the capacity. The loop then pages in the same run as the paper's. `settings` varies all three.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hetsched.errors import UsageError
from hetsched.models import Constant
from hetsched.partition import Balancer
from hetsched.simulate.curves import Linear, Paging
from hetsched.simulate.results import Cell, Chart, Report, Series, Table
from hetsched.simulate.runs import Run, Trace, best_split, drive, measured

RAM_MIB = (256, 256, 512, 1024)
"""P1 to P4: the paper's table 1, cluster 2."""
CLOCK_GHZ = (3.6, 3.0, 3.4, 3.4)
ELEMENTS = 5000 * 11000
"""Matrix elements a second for each GHz. It sets the unit of time, and no share depends on it."""
BYTES = 8
"""Of a matrix element; a row has as many as there are rows."""
MIB = 1 << 20

NEAR = 1.05
"""A run is near the optimum if it takes at most so many times as long."""
TOLERANCE = 0.05
"""Of the balancers; the paper doesn't give its own."""
MOST_RUNS = 30
MOST_ROWS = 100_000


@dataclass(frozen=True)
class Setting:
    """A matrix of `rows` x `rows`, and how the four machines page.

    Attributes
    ----------
    rows : int
        The load: a unit is a row.
    reserve : float, MiB
        Of each machine's memory, for everything else.
    factor : float
        How many times as long a row takes on a machine that pages.
    width : float
        The part of the capacity over which it becomes so slow.
    linear : "time" or "speed"
        What changes linearly there.
    """

    rows: int
    reserve: float = 44.0
    factor: float = 75.0
    width: float = 0.05
    linear: Linear = "time"

    def machines(self) -> list[Paging]:
        """P1 to P4.

        Raises
        ------
        UsageError
            Too few or too many rows; no memory left; a width or factor that can't be.
        """
        if not len(RAM_MIB) <= self.rows <= MOST_ROWS:
            raise UsageError(f"rows: {self.rows}, it must be {len(RAM_MIB)} to {MOST_ROWS}")
        if not 0 <= self.reserve < min(RAM_MIB):
            raise UsageError(
                f"reserve: {self.reserve:g} MiB, it must be 0 or more and less than the smallest"
                f" machine's {min(RAM_MIB)} MiB"
            )
        return [
            Paging(
                Constant(ghz * ELEMENTS / self.rows),
                (ram - self.reserve) * MIB / (BYTES * self.rows),
                self.factor,
                self.width,
                self.linear,
            )
            for ram, ghz in zip(RAM_MIB, CLOCK_GHZ, strict=True)
        ]


@dataclass(frozen=True)
class Outcome:
    """What one method made of one setting.

    Attributes
    ----------
    trace : Trace
    optimum : Run
        The exact one, found with the machines' own curves.
    pages : tuple of int
        Numbers of the runs, from 1, in which a machine pages.
    """

    setting: Setting
    method: str
    trace: Trace
    optimum: Run
    pages: tuple[int, ...]

    @property
    def near(self) -> int | None:
        """Number of the first run that is near the optimum; None: none is."""
        return self.trace.within(NEAR * self.optimum.makespan)

    @property
    def ratios(self) -> list[float]:
        """Of each run: its time over the optimum's."""
        return [run.makespan / self.optimum.makespan for run in self.trace.runs]


def balance(
    setting: Setting,
    method: str,
    *,
    limited: bool = False,
    for_ever: bool = False,
    tolerance: float = TOLERANCE,
    most: int = MOST_RUNS,
) -> Outcome:
    """Let `method` balance `setting`.

    Parameters
    ----------
    setting : Setting
    method : str
        Of `Balancer`.
    limited : bool
        Whether the balancer knows the machines' capacities.
    for_ever : bool
        Whether it forgets what it has measured, as the paper's loops do.
    tolerance : float
    most : int
        Runs.
    """
    machines = setting.machines()
    limits = [int(machine.capacity) for machine in machines] if limited else None
    balancer = Balancer(
        setting.rows, len(machines), method, tolerance, limits, stop_when_seen=not for_ever
    )
    trace = drive(balancer, measured(machines), most)
    pages = tuple(
        number
        for number, run in enumerate(trace.runs, 1)
        if any(m.pages(share) for m, share in zip(machines, run.shares, strict=True))
    )
    return Outcome(setting, method, trace, optimum(setting), pages)


@functools.lru_cache(maxsize=256)
def optimum(setting: Setting) -> Run:
    """The exact optimum of `setting`, found with the machines' own curves."""
    return best_split(setting.machines(), setting.rows)


def settings(linear: Linear = "time") -> Iterator[Setting]:
    """72 of them: two sizes that page, six reserves, two factors, three widths."""
    for rows, reserve in itertools.product((11000, 12000), range(28, 49, 4)):
        for factor, width in itertools.product((20.0, 75.0), (0.02, 0.05, 0.1)):
            yield Setting(rows, float(reserve), factor, width, linear)


SOURCE = "Clarke, Lastovetsky & Rychkov 2011, Parallel Processing Letters"
STANDARD = Setting(11000)
PAPER = {
    (8000, "constant"): "balanced",
    (8000, "geometric"): "much the same",
    (11000, "constant"): "never, 300 MB a run",
    (11000, "geometric"): "9, pages in 8",
    (12000, "smooth"): "7",
}
"""(rows, method) -> the run in which it is near-optimal: sections 3.2, 5.3 and 6.4."""
METHODS = ("constant", "geometric", "smooth")
SHOWN_RUNS = 12


def report(
    loads: Sequence[int] = (8000, 11000, 12000),
    *,
    like: Setting = STANDARD,
    tolerance: float = TOLERANCE,
) -> Report:
    """Every method on matrices of these sizes, beside what the paper says.

    Parameters
    ----------
    loads : sequence of int, rows
    like : Setting
        How the machines page. The paper's column stays empty if that isn't the standard.
    tolerance : float

    Raises
    ------
    UsageError
        A setting or tolerance that can't be.
    """
    tables, charts = [], []
    rows: list[tuple[Cell, ...]] = []
    for load in loads:
        setting = replace(like, rows=load)
        outcomes = {
            method: balance(
                setting, method, tolerance=tolerance,
                for_ever=method == "constant",
                most=SHOWN_RUNS if method == "constant" else MOST_RUNS,
            )
            for method in METHODS
        }  # fmt: skip
        outcomes["limits known"] = balance(setting, "geometric", limited=True, tolerance=tolerance)
        known = setting == replace(STANDARD, rows=load)
        rows += [
            _row(name, one, PAPER.get((load, name)) if known else None)
            for name, one in outcomes.items()
        ]
        charts += [_times(outcomes), _speeds(outcomes["geometric"])]
        tables.append(_run_by_run(outcomes["geometric"]))
    columns = ("rows", "method", "near in run", "paper", "best / optimum", "runs", "that page",
               "MB moved last")  # fmt: skip
    first = Table(f"Runs until within {NEAR - 1:.0%} of the optimum", columns, tuple(rows), 4)
    return Report("clarke", SOURCE, (first, *tables), tuple(charts))


def sweep(linear: Linear = "time", *, tolerance: float = TOLERANCE) -> Report:
    """All 72 settings: how many runs each method needs. Takes some seconds."""
    found = {
        name: [
            balance(one, method, limited=limited, tolerance=tolerance) for one in settings(linear)
        ]
        for name, method, limited in (
            ("constant", "constant", False),
            ("geometric", "geometric", False),
            ("smooth", "smooth", False),
            ("limits known", "geometric", True),
        )
    }
    rows = tuple(_summary(name, outcomes) for name, outcomes in found.items())
    columns = (
        "method",
        "settings",
        "near",
        "in 2 runs",
        "in 9",
        "in 12",
        "most runs",
        "that page",
    )
    series = tuple(
        Series(name, tuple(range(1, 13)), tuple(_near_by(outcomes, k) for k in range(1, 13)))
        for name, outcomes in found.items()
    )
    title = f"Settings within {NEAR - 1:.0%} of the optimum; {linear} is linear in paging"
    chart = Chart(title, "runs", "settings", series)
    return Report("clarke", SOURCE, (Table(title, columns, rows),), (chart,))


def _near_by(outcomes: Sequence[Outcome], runs: int) -> int:
    return sum(one.near is not None and one.near <= runs for one in outcomes)


def _summary(name: str, outcomes: Sequence[Outcome]) -> tuple[Cell, ...]:
    near = [one.near for one in outcomes if one.near is not None]
    counts = [_near_by(outcomes, runs) for runs in (2, 9, 12)]
    pages = sum(len(one.pages) for one in outcomes)
    return name, len(outcomes), len(near), *counts, max(near, default=None), pages


def _row(name: str, one: Outcome, paper: str | None) -> tuple[Cell, ...]:
    moved = one.trace.moved()
    megabytes = moved[-1] * one.setting.rows * BYTES / 1e6 if moved else 0.0
    runs = len(one.trace.runs)
    return (
        one.setting.rows, name, one.near or "never", paper, min(one.ratios), runs, len(one.pages),
        megabytes,
    )  # fmt: skip


def _run_by_run(one: Outcome) -> Table:
    machines = one.setting.machines()
    rows = []
    for number, (run, ratio) in enumerate(zip(one.trace.runs, one.ratios, strict=True), 1):
        pairs = zip(machines, run.shares, strict=True)
        pages = [f"P{i}" for i, (m, share) in enumerate(pairs, 1) if m.pages(share)]
        rows.append((number, *run.shares, ratio, " ".join(pages) or None))
    columns = ("run", "P1", "P2", "P3", "P4", "time / optimum", "pages")
    return Table(f"geometric, {one.setting.rows} rows", columns, tuple(rows))


def _times(outcomes: dict[str, Outcome]) -> Chart:
    series = []
    for name, one in outcomes.items():
        ratios = one.ratios[:SHOWN_RUNS]
        series.append(Series(name, tuple(range(1, len(ratios) + 1)), tuple(ratios)))
    rows = outcomes["geometric"].setting.rows
    return Chart(f"{rows} rows", "run", "time / optimum", tuple(series), log=True, least=1.0)


def _speeds(one: Outcome) -> Chart:
    """The true speeds, and where they were measured (the paper's figure 9)."""
    series = []
    most = max(max(run.shares) for run in one.trace.runs)
    grid = np.linspace(most / 400, most, 400)
    for i, machine in enumerate(one.setting.machines()):
        line, seen = machine.speed(grid), sorted({run.shares[i] for run in one.trace.runs})
        series.append(Series(f"P{i + 1}", tuple(grid.tolist()), tuple(line.tolist())))
        points = tuple(float(machine.speed(share)) for share in seen)
        series.append(Series(f"P{i + 1} measured", tuple(map(float, seen)), points, "points"))
    title = f"{one.setting.rows} rows, geometric"
    return Chart(title, "share (rows)", "speed (rows/s)", tuple(series))
