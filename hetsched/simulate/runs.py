"""Runs of machines that are curves, under the product's Balancer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hetsched.models import SpeedFunction
from hetsched.partition import Balancer, optimal
from hetsched.partition.balancing.phase import DeviceTime, Phase

Shares = tuple[int, ...]
Measure = Callable[[Shares], Sequence[DeviceTime]]
"""What the machines tell of a run with these shares."""


@dataclass(frozen=True)
class Run:
    """One iteration: the shares, and how long each machine was busy.

    Attributes
    ----------
    shares : tuple of int, units
    seconds : tuple of float, seconds
    """

    shares: Shares
    seconds: tuple[float, ...]

    @property
    def makespan(self) -> float:
        """Seconds of the slowest."""
        return max(self.seconds)

    @property
    def spread(self) -> float:
        """(max - min) / min over the machines that had a share."""
        busy = [t for t, share in zip(self.seconds, self.shares, strict=True) if share]
        return (max(busy) - min(busy)) / min(busy)


@dataclass(frozen=True)
class Trace:
    """A whole loop.

    Attributes
    ----------
    runs : tuple of Run
    final : Run
        Of the split that the balancer chose in the end, if that was measured; else the last.
    balanced : bool
    reason : str
        The balancer's for stopping; empty if the budget of runs ended first.
    """

    runs: tuple[Run, ...]
    final: Run
    balanced: bool
    reason: str

    @property
    def best(self) -> Run:
        return min(self.runs, key=lambda run: run.makespan)

    @property
    def points(self) -> int:
        """Most sizes at which any one machine was measured: points of its partial model."""
        sizes = zip(*(run.shares for run in self.runs), strict=True)
        return max(len({size for size in column if size}) for column in sizes)

    def within(self, seconds: float) -> int | None:
        """Number of the first run that took at most `seconds`, from 1; None: never."""
        return next((k for k, run in enumerate(self.runs, 1) if run.makespan <= seconds), None)

    def moved(self) -> list[int]:
        """Units that changed machines before each run but the first."""
        pairs = zip(self.runs, self.runs[1:], strict=False)
        return [
            sum(max(b - a, 0) for a, b in zip(before.shares, after.shares, strict=True))
            for before, after in pairs
        ]


def measured(machines: Sequence[SpeedFunction]) -> Measure:
    """Machines that tell the seconds of their curves, exactly."""
    return lambda shares: [
        float(machine.time(share)) if share else 0.0
        for machine, share in zip(machines, shares, strict=True)
    ]


def drive(balancer: Balancer, measure: Measure, most: int) -> Trace:
    """Ask, run, tell, until the balancer has made up its mind or `most` runs are over.

    Parameters
    ----------
    balancer : Balancer
        Fresh. It is asked once more in the end, for the split that it has chosen.
    measure : callable
    most : int
        Runs, at least 1.
    """
    runs: list[Run] = []
    while len(runs) < most and not balancer.reason:
        shares = balancer.ask().shares
        told = measure(shares)
        runs.append(Run(shares, tuple(busy(one) for one in told)))
        balancer.tell(told)
    chosen = balancer.ask().shares
    final = next((run for run in reversed(runs) if run.shares == chosen), runs[-1])
    return Trace(tuple(runs), final, balancer.balanced, balancer.reason)


def busy(told: DeviceTime) -> float:
    """Seconds in which a device did something, of what it told; 0 if it is lost."""
    if told is None:
        return 0.0
    if isinstance(told, float):
        return told
    return sum(seconds for phase, seconds in told.items() if phase is not Phase.WAIT)


def best_split(machines: Sequence[SpeedFunction], load: int) -> Run:
    """The exact optimum, found with the true curves."""
    shares = optimal(machines, load).shares
    pairs = zip(machines, shares, strict=True)
    return Run(shares, tuple(float(machine.time(share)) for machine, share in pairs))
