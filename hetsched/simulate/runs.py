"""Runs of simulated machines under the product's Balancer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        """Seconds of the slowest machine."""
        return max(self.seconds)

    @property
    def spread(self) -> float:
        """(max - min) / min over the machines with a share."""
        busy = [t for t, share in zip(self.seconds, self.shares, strict=True) if share]
        return (max(busy) - min(busy)) / min(busy)


@dataclass(frozen=True)
class LoopTrace:
    """A whole balancing loop."""

    runs: tuple[LoopRun, ...]
    final: LoopRun  # with the shares finally chosen, if measured; else the last run
    balanced: bool
    reason: str  # why the balancer stopped; "": the maximum number of runs came first

    @property
    def best(self) -> LoopRun:
        return min(self.runs, key=lambda run: run.makespan)

    @property
    def points(self) -> int:
        """Maximum number of sizes measured on one machine: points of its partial model."""
        sizes = zip(*(run.shares for run in self.runs), strict=True)
        return max(len({size for size in column if size}) for column in sizes)

    def first_within(self, seconds: float) -> int | None:
        """Return the number, from 1, of the first run within `seconds`; None if there is none."""
        return next((k for k, run in enumerate(self.runs, 1) if run.makespan <= seconds), None)

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


def drive(balancer: Balancer, measure: Measure, max_runs: int) -> LoopTrace:
    """Ask, run and report until a new balancer stops or after `max_runs`, at least 1.

    It is asked once more at the end, for its final shares.
    """
    runs: list[LoopRun] = []
    while len(runs) < max_runs and not balancer.reason:
        shares = balancer.ask().shares
        times = measure(shares)
        runs.append(LoopRun(shares, tuple(busy_seconds(time) for time in times)))
        balancer.tell(times)
    chosen = balancer.ask().shares
    final = next((run for run in reversed(runs) if run.shares == chosen), runs[-1])
    return LoopTrace(tuple(runs), final, balancer.balanced, balancer.reason)


def busy_seconds(time: DeviceTime) -> float:
    """Return the seconds of all phases except waiting; 0 for a lost device."""
    if time is None:
        return 0.0
    if isinstance(time, float):
        return time
    return sum(seconds for phase, seconds in time.items() if phase is not Phase.WAIT)


def best_split(machines: Sequence[SpeedFunction], load: int) -> LoopRun:
    """Return the exact optimum, computed from the machines' true curves."""
    shares = optimal(machines, load).shares
    pairs = zip(machines, shares, strict=True)
    return LoopRun(shares, tuple(float(machine.time(share)) for machine, share in pairs))
