"""What `ilic` found, as tables and charts beside the paper's figures."""

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
    Known,
    Outcome,
    Setting,
    chunked,
    known,
    single_chunks,
)
from hetsched.simulate.results import Cell, Chart, Report, Series, Table

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
CHUNKED, FUNCTIONAL, CONSTANT, KNOWN = (
    "paper's steps",
    "single, functions",
    "single, constants",
    "best plans",
)
PAPER_METHODS: dict[str, tuple[Cell, ...]] = {
    CHUNKED: (4, None, None),
    FUNCTIONAL: (10, "over 2", 4.3),
    CONSTANT: ("never", 2.2, 3.2),
}
"""Runs, time of the split over that of its chunks, time of all runs over theirs: section 5.1."""
RANDOM = 20
"""Loops with noise."""


@dataclass(frozen=True)
class Compared:
    """All methods on one machine."""

    setting: Setting
    chunked: Outcome
    functional: Outcome
    constant: Outcome
    known: Known


def compared(setting: Setting, tolerance: float = TOLERANCE) -> Compared:
    """Run all methods. Raises UsageError for a tolerance that can't be."""
    return Compared(
        setting,
        chunked(setting, tolerance=tolerance),
        single_chunks(setting, tolerance=tolerance),
        single_chunks(setting, method="constant", tolerance=tolerance),
        known(setting),
    )


def report(*, tolerance: float = TOLERANCE, noise: float = 0.02, seed: int = 1) -> Report:
    """The paper's machine, the same with two copy engines, and both without the cliff.

    Parameters
    ----------
    tolerance : float
    noise : float
        Of the random loops: standard deviation of the logarithm of every time.
    seed : int
        Of the first of them.

    Raises
    ------
    UsageError
        A tolerance or noise that can't be.
    """
    machines = [
        compared(Setting(overlap, cliff), tolerance)
        for overlap in (Overlap.SINGLE, Overlap.FULL)
        for cliff in (True, False)
    ]
    one, two = machines[0], machines[2]
    tables = (
        _runs(one.chunked),
        _chunks(one.chunked),
        _gains(one.chunked, "one copy engine", True),
        _gains(two.chunked, "two copy engines", False),
        _methods(machines),
        _random((one, two), tolerance, noise, seed),
    )
    return Report("ilic", SOURCE, tables, (_speeds(one), _shares(one), _bars(one), _times(one)))


def _runs(one: Outcome) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for at, (run, step) in enumerate(zip(one.trace.runs, one.steps, strict=True)):
        told: tuple[Cell, ...] = (None, None, None)
        if at < len(PAPER_SHARES):
            told = " ".join(map(str, PAPER_SHARES[at])), PAPER_POINTS[at], PAPER_REPEATS[at]
        shares = " ".join(map(str, run.shares))
        rows.append((at + 1, shares, told[0], len(step.total), told[1], step.repeats, told[2],
                     1e3 * run.makespan, run.spread))  # fmt: skip
    columns = ("run", "shares", "paper's shares", "points", "paper's points", "repeats",
               "paper's repeats", "ms", "spread")  # fmt: skip
    return Table(f"GPU and three cores, {LOAD} planes: {one.trace.reason}", columns, tuple(rows))


def _chunks(one: Outcome) -> Table:
    """The printed lists are timed on this machine."""
    gpu, overlap = one.setting.gpu(), one.setting.overlap
    rows: list[tuple[Cell, ...]] = []
    for at, step in enumerate(one.steps):
        told: tuple[Cell, ...] = (None, None)
        if at < len(PAPER_CHUNKS):
            paper = DevicePlan(PAPER_CHUNKS[at])
            told = _lists(PAPER_CHUNKS[at]), paper.share / timeline(paper, gpu, overlap).makespan
        speed = step.plan.share / step.seconds
        rows.append((at + 1, _lists(step.plan.sub_distributions), told[0], speed, told[1]))
    columns = ("run", "chunks", "paper's chunks", "planes/s", "paper's planes/s")
    return Table("Chunks of the GPU's share", columns, tuple(rows), names=3)


def _lists(sub_distributions: Iterable[Iterable[int]]) -> str:
    return " ".join("{" + " ".join(map(str, one)) + "}" for one in sub_distributions)


def _gains(one: Outcome, engines: str, paper: bool) -> Table:
    even = replace(one.setting, cliff=False).gpu()
    rows: list[tuple[Cell, ...]] = []
    for at, (run, step) in enumerate(zip(one.trace.runs, one.steps, strict=True)):
        share = run.shares[0]
        without = float(even.total.time(share)) / step.seconds
        said = PAPER_GAINS[at] if paper and at < len(PAPER_GAINS) else None
        rows.append((at + 1, share, 1e3 * step.seconds, step.size_gain, step.overlap_gain,
                     step.gain, said, without))  # fmt: skip
    columns = ("run", "share", "ms", "by smaller chunks", "by overlap", "together", "paper",
               "without the cliff")  # fmt: skip
    title = f"Speed-up of the GPU's chunks over a single one, {engines}"
    return Table(title, columns, tuple(rows))


def _methods(machines: Iterable[Compared]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for here in machines:
        papers = here.setting == STANDARD
        ours = here.chunked
        for name, one in (
            (CHUNKED, ours),
            (FUNCTIONAL, here.functional),
            (CONSTANT, here.constant),
        ):
            best = one.trace.final if one.trace.reason else one.trace.best
            runs: Cell = len(one.trace.runs) if one.trace.reason else "never"
            rows.append((
                here.setting.overlap.value, "yes" if here.setting.cliff else "no", name,
                best.shares[0], 1e3 * best.makespan, runs,
                best.makespan / ours.trace.final.makespan, one.seconds / ours.seconds,
                *(PAPER_METHODS[name] if papers else (None, None, None)),
            ))  # fmt: skip
        ratio = here.known.seconds / ours.trace.final.makespan
        rows.append((
            here.setting.overlap.value, "yes" if here.setting.cliff else "no", KNOWN,
            here.known.shares[0], 1e3 * here.known.seconds, None, ratio, None, None, None, None,
        ))  # fmt: skip
    columns = ("engines", "cliff", "method", "GPU's share", "ms", "runs", "time / steps'",
               "all runs / steps'", "paper's runs", "paper's time",
               "paper's all runs")  # fmt: skip
    return Table("Methods; best plans: all curves known", columns, tuple(rows), 3)


def _random(machines: Iterable[Compared], tolerance: float, noise: float, seed: int) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for here in machines:
        found = [
            chunked(here.setting, tolerance=tolerance, noise=noise, seed=seed + i)
            for i in range(RANDOM)
        ]
        runs = [len(one.trace.runs) for one in found]
        ratios = [one.trace.final.makespan / here.known.seconds for one in found]
        rows.append((
            here.setting.overlap.value, sum(one.trace.balanced for one in found), min(runs),
            statistics.median(runs), max(runs), statistics.median(ratios), max(ratios),
        ))  # fmt: skip
    columns = ("engines", "balanced", "fewest runs", "median", "most", "time / best plans'",
               "worst")  # fmt: skip
    title = f"{RANDOM} loops of the paper's steps, noise {noise:g} (seeds from {seed})"
    return Table(title, columns, tuple(rows))


def _speeds(here: Compared) -> Chart:
    """The paper's figure 3."""
    grid = np.arange(1.0, LOAD)
    curve = here.setting.gpu().total
    series = [
        Series("a single chunk", tuple(grid.tolist()), tuple((grid / curve.time(grid)).tolist()))
    ]
    units, seconds = np.array(here.chunked.steps[-1].total).T
    series.append(Series(f"{CHUNKED}", tuple(units.tolist()), tuple((units / seconds).tolist())))
    for name, one in ((FUNCTIONAL, here.functional), (CONSTANT, here.constant)):
        sizes = sorted({run.shares[0] for run in one.trace.runs})
        speeds = tuple(float(size / curve.time(size)) for size in sizes)
        series.append(Series(name, tuple(map(float, sizes)), speeds, "points"))
    return Chart("Total speed of the GPU", "planes", "planes/s", tuple(series))


def _shares(here: Compared) -> Chart:
    series = [Series("paper", (1, 2, 3, 4), tuple(float(one[0]) for one in PAPER_SHARES))]
    for name, one in _named(here):
        shares = tuple(float(run.shares[0]) for run in one.trace.runs)
        series.append(Series(name, tuple(map(float, range(1, len(shares) + 1))), shares))
    return Chart("The GPU's share", "run", "planes", tuple(series))


def _bars(here: Compared) -> Chart:
    steps = here.chunked.steps
    numbers = tuple(map(float, range(1, len(steps) + 1)))
    series = (
        Series("by smaller chunks", numbers, tuple(step.size_gain for step in steps), "bars"),
        Series("by overlap", numbers, tuple(step.overlap_gain for step in steps), "bars"),
        Series("together", numbers, tuple(step.gain for step in steps), "bars"),
        Series("paper", (1.0, 2.0, 3.0, 4.0), PAPER_GAINS, "bars"),
    )
    return Chart("Speed-up over a single chunk", "run", "times as fast", series)


def _times(here: Compared) -> Chart:
    lines = []
    for name, one in _named(here):
        times = tuple(1e3 * run.makespan for run in one.trace.runs)
        lines.append(Series(name, tuple(map(float, range(1, len(times) + 1))), times))
    most = float(max(len(one.x) for one in lines))
    best = 1e3 * here.known.seconds
    known_best = Series(KNOWN, (1.0, most), (best, best))
    return Chart("Time of each run", "run", "ms", (known_best, *lines))


def _named(here: Compared) -> tuple[tuple[str, Outcome], ...]:
    return (
        (CHUNKED, here.chunked),
        (FUNCTIONAL, here.functional),
        (CONSTANT, here.constant),
    )
