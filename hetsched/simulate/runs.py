"""Runs of simulated machines under the product's Balancer, and results of experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hetsched.models import SpeedFunction
from hetsched.partition import Balancer, optimal
from hetsched.partition.distribution import Shares
from hetsched.partition.phases import DeviceTime, Phase

Measure = Callable[[Shares], Sequence[DeviceTime]]
"""Shares of a run -> each machine's report."""


@dataclass(frozen=True)
class LoopRun:
    """One iteration: the shares and each machine's busy seconds."""

    shares: Shares
    seconds: tuple[float, ...]

    @property
    def makespan(self) -> float:
        return max(self.seconds)

    @property
    def spread(self) -> float:
        """(max - min) / min over the machines with a share."""
        busy = [t for t, share in zip(self.seconds, self.shares, strict=True) if share]
        return (max(busy) - min(busy)) / min(busy)


@dataclass(frozen=True)
class LoopTrace:
    """A whole balancing loop. `optimum`: exact, computed from the machines' true curves."""

    runs: tuple[LoopRun, ...]
    final: LoopRun  # with the shares finally chosen, if measured; else the last run
    reason: str  # why the balancer stopped; "": the maximum number of runs came first
    optimum: LoopRun

    @property
    def best(self) -> LoopRun:
        return min(self.runs, key=lambda run: run.makespan)

    @property
    def ratio(self) -> float:
        """Time of the final shares over the optimum's."""
        return self.final.makespan / self.optimum.makespan

    @property
    def ratios(self) -> list[float]:
        return [run.makespan / self.optimum.makespan for run in self.runs]

    @property
    def points(self) -> int:
        """Maximum number of sizes measured on one machine: points of its partial model."""
        sizes = zip(*(run.shares for run in self.runs), strict=True)
        return max(len({size for size in column if size}) for column in sizes)

    def first_within(self, ratio: float) -> int | None:
        """Return the number, from 1, of the first run within `ratio` of the optimum, if any."""
        return next((k for k, each in enumerate(self.ratios, 1) if each <= ratio), None)

    def moved_units(self) -> list[int]:
        """Return the units moved before each run except the first."""
        pairs = zip(self.runs, self.runs[1:], strict=False)
        return [
            sum(max(b - a, 0) for a, b in zip(before.shares, after.shares, strict=True))
            for before, after in pairs
        ]


def exact_times(machines: Sequence[SpeedFunction]) -> Measure:
    """Return a measurement of machines that report the seconds of their curves, without noise."""
    return lambda shares: [
        float(machine.time(share)) if share else 0.0
        for machine, share in zip(machines, shares, strict=True)
    ]


def drive(
    balancer: Balancer,
    machines: Sequence[SpeedFunction],
    max_runs: int,
    measure: Measure | None = None,
) -> LoopTrace:
    """Ask, run and report until a new balancer stops or after `max_runs`, at least 1.

    It is asked once more at the end, for its final shares. `measure` None: `machines` report the
    seconds of their curves.
    """
    measure = measure or exact_times(machines)
    runs: list[LoopRun] = []
    while len(runs) < max_runs and not balancer.reason:
        shares = balancer.ask().shares
        times = measure(shares)
        runs.append(LoopRun(shares, tuple(map(_busy_seconds, times))))
        balancer.tell(times)
    chosen = balancer.ask().shares
    final = next((run for run in reversed(runs) if run.shares == chosen), runs[-1])
    optimum = best_split(machines, sum(chosen))
    return LoopTrace(tuple(runs), final, balancer.reason, optimum)


def _busy_seconds(time: DeviceTime) -> float:
    """Return the seconds of all phases except waiting; 0 for a lost device."""
    if time is None:
        return 0.0
    if isinstance(time, float):
        return time
    return sum(seconds for phase, seconds in time.items() if phase is not Phase.WAIT)


def best_split(machines: Sequence[SpeedFunction], load: int) -> LoopRun:
    shares = optimal(machines, load).shares
    pairs = zip(machines, shares, strict=True)
    return LoopRun(shares, tuple(float(machine.time(share)) for machine, share in pairs))


# ---- the result of an experiment

Cell = str | int | float | None
"""None: no value, such as a figure that a paper doesn't give."""


@dataclass(frozen=True)
class Table:
    """Rows under named columns; the first `names` columns identify the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    names: int = 1

    @classmethod
    def of(cls, title: str, header: str, rows: Iterable[Sequence[Cell]], names: int = 1) -> Table:
        """Make a table of rows under columns that are separated by "; "."""
        return cls(title, tuple(header.split("; ")), tuple(map(tuple, rows)), names)


@dataclass(frozen=True)
class ExperimentResult:
    """Tables of one experiment, with its source: a paper or a profile."""

    experiment: str
    source: str
    tables: tuple[Table, ...]
