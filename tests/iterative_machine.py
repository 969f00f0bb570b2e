"""Iterative jobs on simulated devices, in virtual time, under the product's `IterationBalance`."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hetsched.explain.recorder import received
from hetsched.explain.records import RowMove
from hetsched.job import IterationSeconds
from hetsched.models import SpeedFunction
from hetsched.partition import optimal
from hetsched.partition.iterations import IterationBalance, TimedIteration

MIXTURES = 10
"""Intermediate slowdowns from which the search for the best fixed split starts."""


Slowdown = Callable[[int], Sequence[float]]
"""Iteration -> factor of each device's time."""


@dataclass(frozen=True)
class IterativeMachine:
    """Devices that compute iterations.

    `moving`: seconds a row, in the first iteration of a device with rows that were another one's.
    `noise`: standard deviation of the logarithm of each time.
    """

    compute: Sequence[SpeedFunction]
    slowdown: Slowdown | None = None
    moving: float = 0.0
    noise: float = 0.0

    def seconds(self, device: int, rows: int, iteration: int = 0) -> float:
        """Return the seconds of an iteration without noise."""
        if not rows:
            return 0.0
        factor = self.slowdown(iteration)[device] if self.slowdown else 1.0
        return factor * float(self.compute[device].time(rows))

    def run(
        self, iteration: int, rows: Sequence[int], gained: Sequence[int], draw: random.Random
    ) -> list[IterationSeconds]:
        """Return the times of an iteration for which devices got `gained` rows from others."""
        times = [
            self.seconds(device, count, iteration) * math.exp(draw.gauss(0, self.noise))
            + self.moving * gained[device]
            for device, count in enumerate(rows)
        ]
        return [IterationSeconds(each, wait=max(times) - each) for each in times]


@dataclass
class IterationTrace:
    """A run: the rows of each device and the seconds, with those of moving, by iteration."""

    rows: list[tuple[int, ...]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    moves: list[RowMove] = field(default_factory=list)

    @property
    def total(self) -> float:
        return sum(self.seconds)

    @property
    def moved(self) -> int:
        """Rows that changed their device."""
        pairs = zip(self.rows, self.rows[1:], strict=False)
        return sum(sum(received(before, after)) for before, after in pairs)

    @property
    def least_moved(self) -> int:
        """Rows that would have changed their device without a detour."""
        return sum(received(self.rows[0], self.rows[-1]))


def drive(
    balance: IterationBalance,
    machine: IterativeMachine,
    iterations: int,
    *,
    seed: int = 0,
) -> IterationTrace:
    """Run an iterative job with a new `balance`."""
    draw = random.Random(seed)
    trace = IterationTrace()
    for iteration in range(1, iterations + 1):
        rows = balance.rows
        previous = trace.rows[-1] if trace.rows else rows
        times = machine.run(iteration, rows, received(previous, rows), draw)
        trace.rows.append(rows)
        trace.seconds.append(max(each.busy for each in times))
        move = balance.tell([TimedIteration(iteration, rows, times)], iterations - iteration)
        if move is not None:
            trace.moves.append(move)
    return trace


@dataclass(frozen=True)
class _SlowedCurve:
    """A device's iteration, slowed down by `factor`."""

    machine: IterativeMachine
    device: int
    factor: float

    def time(self, x: Any, /) -> Any:
        return self.factor * self.machine.compute[self.device].time(x)

    def speed(self, x: Any, /) -> Any:
        return x / self.time(x)


def best_fixed(machine: IterativeMachine, rows: int, iterations: int) -> tuple[int, ...]:
    """Search for the split that takes the least time for all iterations, without noise.

    Exact if no device changes its speed. Otherwise from the optima for `MIXTURES` factors between
    the first and the last, the best one, improved by moving ever fewer rows between two devices.
    """
    devices = range(len(machine.compute))
    start = machine.slowdown(1) if machine.slowdown else [1.0] * len(devices)
    end = machine.slowdown(iterations) if machine.slowdown else start

    def split(part: float) -> tuple[int, ...]:
        curves = [
            _SlowedCurve(machine, d, start[d] ** (1 - part) * end[d] ** part) for d in devices
        ]
        return optimal(curves, rows).shares

    if start == end:
        return split(0.0)

    def total(shares: tuple[int, ...]) -> float:
        return fixed_total(machine, shares, iterations)

    best = min((split(k / MIXTURES) for k in range(MIXTURES + 1)), key=total)
    step = max(1, rows // 16)
    while step:
        others = [
            tuple(n + step * ((i == to) - (i == of)) for i, n in enumerate(best))
            for of, to in itertools.permutations(devices, 2)
            if best[of] >= step
        ]
        nearest = min(others, key=total)
        if total(nearest) < total(best):
            best = nearest
        else:
            step //= 2
    return best


def fixed_total(machine: IterativeMachine, rows: Sequence[int], iterations: int) -> float:
    """Return the seconds of all iterations with these rows, without noise."""
    if machine.slowdown is None:
        return iterations * max(machine.seconds(d, n) for d, n in enumerate(rows))
    return sum(
        max(machine.seconds(d, n, k) for d, n in enumerate(rows)) for k in range(1, iterations + 1)
    )
