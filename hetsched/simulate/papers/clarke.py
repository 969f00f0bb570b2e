"""Clarke, Lastovetsky & Rychkov 2011: Jacobi's method on four machines, two with little memory.

The paper gives processors, memory and sizes but no speeds, and shows the slowdown by paging only
as a picture. Assumed here: speed in proportion to the clock; 44 MiB of each machine's memory for
everything else; beyond the capacity the time of a row rises linearly, to 75 times over 5 % of the
capacity. The loop then pages in the same run as the paper's. `all_settings` varies all three.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from hetsched.errors import UsageError
from hetsched.models import Constant
from hetsched.partition import Balancer
from hetsched.simulate.curves import Linear, Paging
from hetsched.simulate.runs import LoopRun, LoopTrace, best_split, drive, exact_times

RAM_MIB = (256, 256, 512, 1024)
"""P1 to P4: the paper's table 1, cluster 2."""
CLOCK_GHZ = (3.6, 3.0, 3.4, 3.4)
ELEMENTS = 5000 * 11000
"""Matrix elements per second and GHz. It only scales times, not shares."""
ELEMENT_BYTES = 8
"""A row has as many elements as there are rows."""
MIB = 1 << 20

MAX_NEAR_RATIO = 1.05
"""Maximum ratio to the optimum's time of a run near the optimum."""
TOLERANCE = 0.05
"""Ours; the paper doesn't give its tolerance."""
MAX_RUNS = 30
MAX_ROWS = 100_000


@dataclass(frozen=True)
class ClarkeSetting:
    """A matrix of `rows` x `rows` elements, and how the four machines page.

    Attributes
    ----------
    rows : int
        The load: a unit is a row.
    reserve : float, MiB
        Memory of each machine that isn't available for the matrix.
    factor : float
        Slowdown of a row on a machine that pages.
    width : float
        Fraction of the capacity over which the slowdown is reached.
    linear : "time" or "speed"
        Which of the two changes linearly there.
    """

    rows: int
    reserve: float = 44.0
    factor: float = 75.0
    width: float = 0.05
    linear: Linear = "time"

    def machines(self) -> list[Paging]:
        """Make P1 to P4.

        Raises
        ------
        UsageError
            Rows, reserve, width or factor is out of range.
        """
        if not len(RAM_MIB) <= self.rows <= MAX_ROWS:
            raise UsageError(f"rows: {self.rows} must be {len(RAM_MIB)} to {MAX_ROWS}")
        if not 0 <= self.reserve < min(RAM_MIB):
            raise UsageError(
                f"reserve: {self.reserve:g} MiB must be at least 0 and less than the smallest"
                f" machine's {min(RAM_MIB)} MiB"
            )
        return [
            Paging(
                Constant(ghz * ELEMENTS / self.rows),
                (ram - self.reserve) * MIB / (ELEMENT_BYTES * self.rows),
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
    """The result of one method in one setting.

    Attributes
    ----------
    trace : LoopTrace
    optimum : LoopRun
        Exact, computed from the machines' true curves.
    pages : tuple of int
        Numbers, from 1, of the runs in which a machine pages.
    """

    setting: ClarkeSetting
    method: str
    trace: LoopTrace
    optimum: LoopRun
    pages: tuple[int, ...]

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
    """Balance `setting` with `method`.

    Parameters
    ----------
    setting : ClarkeSetting
    method : str
        As in `Balancer`.
    limited : bool
        Whether the balancer knows the machines' capacities.
    forgets_runs : bool
        Whether it forgets measured distributions, like the paper's loops.
    tolerance : float
    max_runs : int
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
