"""DFPA, Lastovetsky & Reddy 2010: partial speed functions, measured with a benchmark kernel.

Two experiments: the paper's 16 machines, and random platforms. The paper prints the machines'
speeds for one size, its iterations and the maximum number of points, but neither the tolerance
nor where the machines page. Assumed for the 16 machines: 16, 32, 64, 128 and 256 MiB in turn for
the slices of A and C; beyond, a row takes three times as long, reached over 50 % of the capacity;
and a fixed cost that takes as long as 25 rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from hetsched.errors import UsageError
from hetsched.partition import Balancer
from hetsched.simulate.curves import Paging, Saturating
from hetsched.simulate.runs import Cell, ExperimentResult, LoopTrace, Table, best_split, drive

HCL_MFLOPS = (
    7696, 5196, 7852, 14418, 8000, 8173, 7288, 7396,
    9037, 8987, 13661, 14194, 11182, 14410, 12008, 15257,
)  # fmt: skip
"""hcl01 to hcl16, section 3: updating 2560 x 2560 by 2560 x 16 times 16 x 2560."""
PUBLISHED = {
    1024: 2, 2048: 2, 3072: 2, 4096: 5, 5120: 5,
    6144: 5, 7168: 5, 8192: 5, 9216: 5, 10240: 5,
}  # fmt: skip
"""Rows -> iterations, table 1."""
TOLERANCE = 0.1


def hcl(rows: int) -> list[Paging]:
    """Make the 16 machines, multiplying matrices of `rows` x `rows`; a unit is a row."""
    flops = 2 * 16 * rows  # the kernel multiplies a slice of 16 columns by one of 16 rows
    row_bytes = 2 * 8 * rows  # slices of A and C, in double precision
    slices_mib = itertools.cycle((16, 32, 64, 128, 256))
    return [
        Paging(
            Saturating(mflops * 1e6 / flops, half=25.0, fade=1e12),
            (mib << 20) / row_bytes,
            factor=3.0,
            width=0.5,
        )
        for mflops, mib in zip(HCL_MFLOPS, slices_mib, strict=False)
    ]


def partition(
    machines: Sequence[Saturating | Paging], load: int, tolerance: float = TOLERANCE
) -> LoopTrace:
    return drive(Balancer(load, len(machines), "dfpa", tolerance), machines, max_runs=40)


def smooth_platform(rng: np.random.Generator) -> tuple[int, list[Saturating]]:
    """Draw a load and 2 to 16 machines without paging.

    100 to 2,000 units per machine; peak speeds 1 to 3; a fixed cost equal to 1 to 50 % of an even
    share; speed halved at 2.5 to 10 even shares.
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


def paging_platform(rng: np.random.Generator) -> tuple[int, list[Paging]]:
    """Draw a smooth platform whose machines all page, most of them near their best share.

    Beyond 50 to 150 % of its share with enough memory, a machine becomes 3 times as slow over half
    of its capacity.
    """
    load, machines = smooth_platform(rng)
    shares = best_split(machines, load).shares
    paging = [
        Paging(machine, max(share, 1) * rng.uniform(0.5, 1.5), factor=3.0, width=0.5)
        for machine, share in zip(machines, shares, strict=True)
    ]
    return load, paging


def random_outcomes(
    paging: bool, count: int, seed: int, tolerance: float = TOLERANCE
) -> list[LoopTrace]:
    """Partition `count` random platforms. Raises UsageError if `count` is below 1."""
    if count < 1:
        raise UsageError(f"platforms: {count} must be at least 1")
    rng = np.random.default_rng(seed)
    outcomes = []
    for _ in range(count):
        load, machines = paging_platform(rng) if paging else smooth_platform(rng)
        outcomes.append(partition(machines, load, tolerance))
    return outcomes


MAX_PUBLISHED_POINTS = 6
"""Of any machine in the paper; building the full models took 60."""


def run_experiment(
    platforms: int = 200, *, seed: int = 1, tolerance: float = TOLERANCE
) -> ExperimentResult:
    outcomes = {rows: partition(hcl(rows), rows, tolerance) for rows in PUBLISHED}
    kinds = {
        "smooth": random_outcomes(False, platforms, seed, tolerance),
        "paging, 3 times as slow": random_outcomes(True, platforms, seed, tolerance),
    }
    tables = (
        Table.of(
            f"16 machines, tolerance {tolerance:g}",
            "rows; iterations; paper; points; paper, at most; time / optimum; end",
            [
                (rows, len(trace.runs) - 1, PUBLISHED[rows], trace.points, MAX_PUBLISHED_POINTS,
                 trace.ratio, trace.reason)  # the paper doesn't count the first run
                for rows, trace in outcomes.items()
            ],
        ),
        Table.of(
            f"Random platforms (seed {seed}), 2 to 16 machines",
            "kind; platforms; 3 points; 5; 6; most; worst time / optimum",
            (_summary(name, outcomes) for name, outcomes in kinds.items()),
        ),
    )  # fmt: skip
    return ExperimentResult("dfpa", "Lastovetsky & Reddy 2010, HeteroPar 2009", tables)


def _summary(name: str, outcomes: Sequence[LoopTrace]) -> tuple[Cell, ...]:
    points = [outcome.points for outcome in outcomes]
    counts = [sum(count <= limit for count in points) for limit in (3, 5, 6)]
    return name, len(outcomes), *counts, max(points), max(outcome.ratio for outcome in outcomes)
