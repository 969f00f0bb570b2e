"""Tables and charts of `simulate clarke`, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hetsched.simulate.curves import Linear
from hetsched.simulate.papers.clarke import (
    ELEMENT_BYTES,
    MAX_NEAR_RATIO,
    MAX_RUNS,
    STANDARD,
    TOLERANCE,
    ClarkeOutcome,
    ClarkeSetting,
    all_settings,
    balance,
)
from hetsched.simulate.results import Cell, Chart, ExperimentResult, Series, Table

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
MAX_CHART_RUNS = 12


def run_experiment(
    loads: Sequence[int] = (8000, 11000, 12000),
    *,
    like: ClarkeSetting = STANDARD,
    tolerance: float = TOLERANCE,
) -> ExperimentResult:
    """Compare every method with the paper, on matrices of these sizes.

    Parameters
    ----------
    loads : sequence of int, rows
    like : ClarkeSetting
        How the machines page. The paper's column is empty unless this is the standard setting.
    tolerance : float

    Raises
    ------
    UsageError
        A setting or the tolerance is out of range.
    """
    tables, charts = [], []
    rows: list[tuple[Cell, ...]] = []
    for load in loads:
        setting = replace(like, rows=load)
        outcomes = {
            method: balance(
                setting, method, tolerance=tolerance,
                forgets_runs=method == "constant",
                max_runs=MAX_CHART_RUNS if method == "constant" else MAX_RUNS,
            )
            for method in METHODS
        }  # fmt: skip
        outcomes["limits known"] = balance(setting, "geometric", limited=True, tolerance=tolerance)
        is_standard = setting == replace(STANDARD, rows=load)
        rows += [
            _row(name, outcome, PAPER.get((load, name)) if is_standard else None)
            for name, outcome in outcomes.items()
        ]
        charts += [_times(outcomes), _speeds(outcomes["geometric"])]
        tables.append(_run_by_run(outcomes["geometric"]))
    columns = ("rows", "method", "near in run", "paper", "best / optimum", "runs", "that page",
               "MB moved last")  # fmt: skip
    title = f"Runs until within {MAX_NEAR_RATIO - 1:.0%} of the optimum"
    summary = Table(title, columns, tuple(rows), 4)
    return ExperimentResult("clarke", SOURCE, (summary, *tables), tuple(charts))


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
    rows = tuple(_summary(name, outcomes) for name, outcomes in by_method.items())
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
        for name, outcomes in by_method.items()
    )
    title = (
        f"Settings within {MAX_NEAR_RATIO - 1:.0%} of the optimum; {linear} is linear in paging"
    )
    chart = Chart(title, "runs", "settings", series)
    return ExperimentResult("clarke", SOURCE, (Table(title, columns, rows),), (chart,))


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
    columns = ("run", "P1", "P2", "P3", "P4", "time / optimum", "pages")
    return Table(f"geometric, {outcome.setting.rows} rows", columns, tuple(rows))


def _times(outcomes: dict[str, ClarkeOutcome]) -> Chart:
    series = []
    for name, outcome in outcomes.items():
        ratios = outcome.ratios[:MAX_CHART_RUNS]
        series.append(Series(name, tuple(range(1, len(ratios) + 1)), tuple(ratios)))
    rows = outcomes["geometric"].setting.rows
    return Chart(f"{rows} rows", "run", "time / optimum", tuple(series), log=True, y_min=1.0)


def _speeds(outcome: ClarkeOutcome) -> Chart:
    """Chart the true speeds and the measured points (the paper's figure 9)."""
    series = []
    largest = max(max(run.shares) for run in outcome.trace.runs)
    grid = np.linspace(largest / 400, largest, 400)
    for i, machine in enumerate(outcome.setting.machines()):
        line = machine.speed(grid)
        sizes = sorted({run.shares[i] for run in outcome.trace.runs})
        series.append(Series(f"P{i + 1}", tuple(grid.tolist()), tuple(line.tolist())))
        points = tuple(float(machine.speed(share)) for share in sizes)
        series.append(Series(f"P{i + 1} measured", tuple(map(float, sizes)), points, "points"))
    title = f"{outcome.setting.rows} rows, geometric"
    return Chart(title, "share (rows)", "speed (rows/s)", tuple(series))
