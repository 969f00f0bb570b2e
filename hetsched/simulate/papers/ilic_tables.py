"""Tables and charts of `simulate ilic`, beside the paper's figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from hetsched.plans import DevicePlan, Overlap, timeline
from hetsched.simulate.papers.ilic import (
    LOAD,
    STANDARD,
    TOLERANCE,
    IdealPlan,
    IlicOutcome,
    IlicSetting,
    ideal_plan,
    run_paper_steps,
    run_single_chunks,
)
from hetsched.simulate.results import Cell, Chart, ExperimentResult, Series, Table

SOURCE = "Ilic & Sousa 2012, HeteroPar 2011"
PAPER_SHARES = ((64, 64, 64, 64), (181, 29, 23, 23), (199, 23, 17, 17), (205, 21, 15, 15))
PAPER_CHUNKS = (
    ((32, 16, 8, 4, 2, 1, 1),),
    ((8, 14, 18, 20, 9, 1), (8, 14, 18, 20, 21, 21, 9)),
    ((14, 26, 36, 16, 7, 3), (14, 26, 36, 16, 5)),
    ((14, 26, 36, 16, 7, 3), (14, 26, 36, 16, 7, 3, 1)),
)
PAPER_POINTS = (7, 15, 23, 25)
PAPER_REPEATS = (1, None, None, 28)
PAPER_GAINS = (1.4, 4.6, 4.5, 4.3)
PAPER_STEPS, FUNCTIONAL, CONSTANT, IDEAL = (
    "paper's steps",
    "single, functions",
    "single, constants",
    "best plans",
)
PAPER_METHODS: dict[str, tuple[Cell, ...]] = {
    PAPER_STEPS: (4, None, None),
    FUNCTIONAL: (10, "over 2", 4.3),
    CONSTANT: ("never", 2.2, 3.2),
}
"""Runs, time of the final shares and of all runs over those of the paper's steps: section 5.1."""
NOISY_LOOPS = 20


@dataclass(frozen=True)
class MethodComparison:
    """All methods on one machine."""

    setting: IlicSetting
    paper_steps: IlicOutcome
    functional: IlicOutcome
    constant: IlicOutcome
    ideal: IdealPlan

    @property
    def outcomes(self) -> tuple[tuple[str, IlicOutcome], ...]:
        """Return the outcomes of methods that learn, by name."""
        return (
            (PAPER_STEPS, self.paper_steps),
            (FUNCTIONAL, self.functional),
            (CONSTANT, self.constant),
        )


def compare(setting: IlicSetting, tolerance: float = TOLERANCE) -> MethodComparison:
    """Run all methods. Raises UsageError if the tolerance is out of range."""
    return MethodComparison(
        setting,
        run_paper_steps(setting, tolerance=tolerance),
        run_single_chunks(setting, tolerance=tolerance),
        run_single_chunks(setting, method="constant", tolerance=tolerance),
        ideal_plan(setting),
    )


def run_experiment(
    *, tolerance: float = TOLERANCE, noise: float = 0.02, seed: int = 1
) -> ExperimentResult:
    """Compare all methods on four machines: one or two copy engines, with and without the cliff.

    Parameters
    ----------
    tolerance : float
    noise : float
        Of the noisy loops: standard deviation of the logarithm of every time.
    seed : int
        Of the first noisy loop.

    Raises
    ------
    UsageError
        Tolerance or noise is out of range.
    """
    machines = [
        compare(IlicSetting(overlap, cliff), tolerance)
        for overlap in (Overlap.SINGLE, Overlap.FULL)
        for cliff in (True, False)
    ]
    single_engine, dual_engine = machines[0], machines[2]
    tables = (
        _runs(single_engine.paper_steps),
        _chunks(single_engine.paper_steps),
        _gains(single_engine.paper_steps, "one copy engine", True),
        _gains(dual_engine.paper_steps, "two copy engines", False),
        _methods(machines),
        _noisy_loops((single_engine, dual_engine), tolerance, noise, seed),
    )
    draw = (_speeds, _shares, _bars, _times)
    charts = tuple(chart(single_engine) for chart in draw)
    return ExperimentResult("ilic", SOURCE, tables, charts)


def _runs(outcome: IlicOutcome) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for at, (run, step) in enumerate(zip(outcome.trace.runs, outcome.steps, strict=True)):
        published: tuple[Cell, ...] = (None, None, None)
        if at < len(PAPER_SHARES):
            published = " ".join(map(str, PAPER_SHARES[at])), PAPER_POINTS[at], PAPER_REPEATS[at]
        shares = " ".join(map(str, run.shares))
        rows.append((at + 1, shares, published[0], len(step.total), published[1], step.repeats,
                     published[2], 1e3 * run.makespan, run.spread))  # fmt: skip
    columns = ("run", "shares", "paper's shares", "points", "paper's points", "repeats",
               "paper's repeats", "ms", "spread")  # fmt: skip
    return Table(
        f"GPU and three cores, {LOAD} planes: {outcome.trace.reason}", columns, tuple(rows)
    )


def _chunks(outcome: IlicOutcome) -> Table:
    """Tabulate the chunks, with the paper's lists timed on the simulated machine."""
    gpu, overlap = outcome.setting.gpu(), outcome.setting.overlap
    rows: list[tuple[Cell, ...]] = []
    for at, step in enumerate(outcome.steps):
        published: tuple[Cell, ...] = (None, None)
        if at < len(PAPER_CHUNKS):
            plan = DevicePlan(PAPER_CHUNKS[at])
            published = (
                _lists(PAPER_CHUNKS[at]),
                plan.share / timeline(plan, gpu, overlap).makespan,
            )
        speed = step.plan.share / step.seconds
        rows.append(
            (at + 1, _lists(step.plan.sub_distributions), published[0], speed, published[1])
        )
    columns = ("run", "chunks", "paper's chunks", "planes/s", "paper's planes/s")
    return Table("Chunks of the GPU's share", columns, tuple(rows), names=3)


def _lists(sub_distributions: Iterable[Iterable[int]]) -> str:
    return " ".join("{" + " ".join(map(str, chunks)) + "}" for chunks in sub_distributions)


def _gains(outcome: IlicOutcome, engines: str, is_published: bool) -> Table:
    without_cliff = replace(outcome.setting, cliff=False).gpu()
    rows: list[tuple[Cell, ...]] = []
    for at, (run, step) in enumerate(zip(outcome.trace.runs, outcome.steps, strict=True)):
        share = run.shares[0]
        gain_without = float(without_cliff.total.time(share)) / step.seconds
        published = PAPER_GAINS[at] if is_published and at < len(PAPER_GAINS) else None
        rows.append((at + 1, share, 1e3 * step.seconds, step.size_gain, step.overlap_gain,
                     step.gain, published, gain_without))  # fmt: skip
    columns = ("run", "share", "ms", "by smaller chunks", "by overlap", "together", "paper",
               "without the cliff")  # fmt: skip
    title = f"Speed-up of the GPU's chunks over a single one, {engines}"
    return Table(title, columns, tuple(rows))


def _methods(machines: Iterable[MethodComparison]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for machine in machines:
        engines, cliff = machine.setting.overlap.value, "yes" if machine.setting.cliff else "no"
        reference, ideal = machine.paper_steps, machine.ideal
        seconds = reference.trace.final.makespan
        for name, outcome in machine.outcomes:
            best = outcome.trace.final if outcome.trace.reason else outcome.trace.best
            runs: Cell = len(outcome.trace.runs) if outcome.trace.reason else "never"
            rows.append((
                engines, cliff, name, best.shares[0], 1e3 * best.makespan, runs,
                best.makespan / seconds, outcome.seconds / reference.seconds,
                *(PAPER_METHODS[name] if machine.setting == STANDARD else (None, None, None)),
            ))  # fmt: skip
        rows.append((
            engines, cliff, IDEAL, ideal.shares[0], 1e3 * ideal.seconds, None,
            ideal.seconds / seconds, None, None, None, None,
        ))  # fmt: skip
    columns = ("engines", "cliff", "method", "GPU's share", "ms", "runs", "time / steps'",
               "all runs / steps'", "paper's runs", "paper's time",
               "paper's all runs")  # fmt: skip
    return Table("Methods; best plans: all curves known", columns, tuple(rows), 3)


def _noisy_loops(
    machines: Iterable[MethodComparison], tolerance: float, noise: float, seed: int
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for machine in machines:
        traces = [
            run_paper_steps(machine.setting, tolerance=tolerance, noise=noise, seed=seed + i).trace
            for i in range(NOISY_LOOPS)
        ]
        runs = [len(trace.runs) for trace in traces]
        ratios = [trace.final.makespan / machine.ideal.seconds for trace in traces]
        rows.append((
            machine.setting.overlap.value, sum(trace.balanced for trace in traces), min(runs),
            statistics.median(runs), max(runs), statistics.median(ratios), max(ratios),
        ))  # fmt: skip
    columns = ("engines", "balanced", "fewest runs", "median", "most", "time / best plans'",
               "worst")  # fmt: skip
    title = f"{NOISY_LOOPS} loops of the paper's steps, noise {noise:g} (seeds from {seed})"
    return Table(title, columns, tuple(rows))


def _speeds(machine: MethodComparison) -> Chart:
    """Chart the paper's figure 3."""
    grid = np.arange(1.0, LOAD)
    curve = machine.setting.gpu().total
    series = [
        Series("a single chunk", tuple(grid.tolist()), tuple((grid / curve.time(grid)).tolist()))
    ]
    units, seconds = np.array(machine.paper_steps.steps[-1].total).T
    series.append(Series(PAPER_STEPS, tuple(units.tolist()), tuple((units / seconds).tolist())))
    for name, outcome in machine.outcomes[1:]:
        sizes = sorted({run.shares[0] for run in outcome.trace.runs})
        speeds = tuple(float(size / curve.time(size)) for size in sizes)
        series.append(Series(name, tuple(map(float, sizes)), speeds, "points"))
    return Chart("Total speed of the GPU", "planes", "planes/s", tuple(series))


def _shares(machine: MethodComparison) -> Chart:
    series = [Series("paper", (1, 2, 3, 4), tuple(float(shares[0]) for shares in PAPER_SHARES))]
    for name, outcome in machine.outcomes:
        shares = tuple(float(run.shares[0]) for run in outcome.trace.runs)
        series.append(Series(name, tuple(map(float, range(1, len(shares) + 1))), shares))
    return Chart("The GPU's share", "run", "planes", tuple(series))


def _bars(machine: MethodComparison) -> Chart:
    steps = machine.paper_steps.steps
    numbers = tuple(map(float, range(1, len(steps) + 1)))
    series = (
        Series("by smaller chunks", numbers, tuple(step.size_gain for step in steps), "bars"),
        Series("by overlap", numbers, tuple(step.overlap_gain for step in steps), "bars"),
        Series("together", numbers, tuple(step.gain for step in steps), "bars"),
        Series("paper", (1.0, 2.0, 3.0, 4.0), PAPER_GAINS, "bars"),
    )
    return Chart("Speed-up over a single chunk", "run", "times as fast", series)


def _times(machine: MethodComparison) -> Chart:
    lines = []
    for name, outcome in machine.outcomes:
        times = tuple(1e3 * run.makespan for run in outcome.trace.runs)
        lines.append(Series(name, tuple(map(float, range(1, len(times) + 1))), times))
    last = float(max(len(line.x) for line in lines))
    ideal_ms = 1e3 * machine.ideal.seconds
    ideal = Series(IDEAL, (1.0, last), (ideal_ms, ideal_ms))
    return Chart("Time of each run", "run", "ms", (ideal, *lines))
