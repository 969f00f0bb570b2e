"""DFPA, Lastovetsky & Reddy 2010: partial speed functions, measured by a kernel beforehand.

Two experiments: the paper's 16 machines, and platforms drawn at random. The paper prints the
machines' speeds for one size, its iterations and the most points, but neither the tolerance nor
where the machines page. Assumed for the 16 machines: 16, 32, 64, 128 and 256 MiB in turn for the
slices of A and C; beyond, a row takes three times as long, reached over 50 % of the capacity; and
a fixed cost that takes as long as 25 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.errors import UsageError
from hetsched.partition import Balancer
from hetsched.simulate.curves import Paging, Saturating
from hetsched.simulate.results import Cell, Chart, Report, Series, Table
from hetsched.simulate.runs import Run, Trace, best_split, drive, measured

HCL_MFLOPS = (
    7696, 5196, 7852, 14418, 8000, 8173, 7288, 7396,
    9037, 8987, 13661, 14194, 11182, 14410, 12008, 15257,
)  # fmt: skip
"""hcl01 to hcl16, section 3: updating 2560 x 2560 by 2560 x 16 times 16 x 2560."""
PUBLISHED = {
    1024: 2, 2048: 2, 3072: 2, 4096: 5, 5120: 5,
    6144: 5, 7168: 5, 8192: 5, 9216: 5, 10240: 5,
}  # fmt: skip
"""Rows -> iterations, table 1. It has no more than 6 points a machine."""
BLOCK = 16
"""b: the kernel multiplies a slice of b columns by one of b rows."""
BYTES = 8
SLICES_MIB = (16, 32, 64, 128, 256)
FIXED_ROWS = 25.0
SLOWER, WIDTH = 3.0, 0.5
"""Paging, of the 16 machines and the random ones: times as slow, over which part of capacity."""
LINEAR = 1e12
"""Units after which the speed of a machine that doesn't fade would be halved."""

TOLERANCE = 0.1
MOST_RUNS = 40
MIB = 1 << 20


def hcl(rows: int) -> list[Paging]:
    """The 16 machines multiplying matrices of `rows` x `rows`; a unit is a row.

    Each holds slices of A and C, 2 rows x BYTES a row of its share.
    """
    flops = 2 * BLOCK * rows
    return [
        Paging(
            Saturating(mflops * 1e6 / flops, FIXED_ROWS, LINEAR),
            SLICES_MIB[i % len(SLICES_MIB)] * MIB / (2 * BYTES * rows),
            SLOWER,
            WIDTH,
        )
        for i, mflops in enumerate(HCL_MFLOPS)
    ]


@dataclass(frozen=True)
class Outcome:
    """One platform partitioned. `optimum`: the exact one, found with the true curves."""

    load: int
    trace: Trace
    optimum: Run

    @property
    def iterations(self) -> int:
        """As the paper counts: runs after the first."""
        return len(self.trace.runs) - 1

    @property
    def ratio(self) -> float:
        """Time of the split that was found over the optimum's."""
        return self.trace.final.makespan / self.optimum.makespan


def partition(
    machines: Sequence[Saturating | Paging], load: int, tolerance: float = TOLERANCE
) -> Outcome:
    """Run DFPA on `machines`."""
    balancer = Balancer(load, len(machines), "dfpa", tolerance)
    trace = drive(balancer, measured(machines), MOST_RUNS)
    return Outcome(load, trace, best_split(machines, load))


def smooth_platform(rng: np.random.Generator) -> tuple[int, list[Saturating]]:
    """A load and 2 to 16 machines without paging.

    100 to 2,000 units a machine; peak speeds 1 to 3; the fixed cost takes as long as 1 to 50 % of
    an even share, and speed would be halved at 2.5 to 10 even shares.
    """
    count = int(rng.integers(2, 17))
    share = int(rng.integers(100, 2001))
    machines = [
        Saturating(
            1000 * rng.uniform(1.0, 3.0),
            share * rng.uniform(0.01, 0.5),
            share * rng.uniform(2.5, 10),
        )
        for _ in range(count)
    ]
    return share * count, machines


def paging_platform(
    rng: np.random.Generator, slower: float = SLOWER, width: float = WIDTH
) -> tuple[int, list[Paging]]:
    """A smooth platform all of whose machines page, most of them near where they must work.

    Beyond 50 to 150 % of the share that it would have with memory enough, a machine becomes
    `slower` times as slow over `width` of its capacity.
    """
    load, machines = smooth_platform(rng)
    shares = best_split(machines, load).shares
    paging = [
        Paging(machine, max(share, 1) * rng.uniform(0.5, 1.5), slower, width)
        for machine, share in zip(machines, shares, strict=True)
    ]
    return load, paging


def random_outcomes(
    paging: bool, count: int, seed: int, tolerance: float = TOLERANCE
) -> list[Outcome]:
    """`count` random platforms partitioned. Raises UsageError if there are none."""
    if count < 1:
        raise UsageError(f"platforms: {count}, it must be 1 at least")
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        load, machines = paging_platform(rng) if paging else smooth_platform(rng)
        found.append(partition(machines, load, tolerance))
    return found


MOST_POINTS = 6
"""Of any machine in the paper; building the full models took 60."""


def report(platforms: int = 200, *, seed: int = 1, tolerance: float = TOLERANCE) -> Report:
    """The 16 machines beside the paper's table 1, and two kinds of random platforms.

    Parameters
    ----------
    platforms : int
        Random ones, of each kind.
    seed : int
    tolerance : float

    Raises
    ------
    UsageError
        No platforms, or a tolerance that can't be.
    """
    here = [partition(hcl(rows), rows, tolerance) for rows in PUBLISHED]
    kinds = {
        "smooth": random_outcomes(False, platforms, seed, tolerance),
        f"paging, {SLOWER:g} times as slow": random_outcomes(True, platforms, seed, tolerance),
    }
    sizes = tuple(float(rows) for rows in PUBLISHED)
    charts = (
        Chart(
            "16 machines",
            "matrix rows",
            "iterations",
            (
                Series("paper", sizes, tuple(map(float, PUBLISHED.values())), "bars"),
                Series("here", sizes, tuple(float(one.iterations) for one in here), "bars"),
            ),
        ),
        Chart(
            f"{platforms} random platforms",
            "most points of a machine",
            "platforms",
            tuple(_histogram(name, outcomes) for name, outcomes in kinds.items()),
        ),
    )
    tables = (
        Table(
            f"16 machines, tolerance {tolerance:g}",
            ("rows", "iterations", "paper", "points", "paper, at most", "time / optimum", "end"),
            tuple(
                (one.load, one.iterations, PUBLISHED[one.load], one.trace.points, MOST_POINTS,
                 one.ratio, one.trace.reason)
                for one in here
            ),
        ),
        Table(
            f"Random platforms (seed {seed}), 2 to 16 machines",
            ("kind", "platforms", "3 points", "5", "6", "most", "worst time / optimum"),
            tuple(_summary(name, outcomes) for name, outcomes in kinds.items()),
        ),
    )  # fmt: skip
    return Report("dfpa", "Lastovetsky & Reddy 2010, HeteroPar 2009", tables, charts)


def _summary(name: str, outcomes: Sequence[Outcome]) -> tuple[Cell, ...]:
    points = [one.trace.points for one in outcomes]
    few = [sum(count <= most for count in points) for most in (3, 5, 6)]
    return name, len(outcomes), *few, max(points), max(one.ratio for one in outcomes)


def _histogram(name: str, outcomes: Sequence[Outcome]) -> Series:
    points = [one.trace.points for one in outcomes]
    counts = range(1, max(points) + 1)
    heights = tuple(float(points.count(count)) for count in counts)
    return Series(name, tuple(map(float, counts)), heights, "bars")
