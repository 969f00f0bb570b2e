"""A bound for installments: consecutive sub-distributions, each no larger than memory.

A sub-distribution of one chunk is serial. Others fill and drain the pipeline; their cost per unit
falls with size, so one that fills memory is the best.
"""

from __future__ import annotations

from dataclasses import replace

from hetsched.plans.bounds.bound_terms import (
    BoundInputs,
    Raise,
    least_over_counts,
    raised_by_paths,
    raised_by_residence,
)
from hetsched.plans.bounds.convex_minorant import rooted_minorant
from hetsched.plans.device_plan import Overlap


def installment_bound(share: int, inputs: BoundInputs, overlap: Overlap) -> float:
    """Return the minimum seconds of installments for `share` units that exceed memory."""
    fills = -(-share // inputs.room)
    first = max(fills, -(-share // inputs.largest))
    least = least_over_counts(
        share, first, inputs, overlap, *_raised(share, inputs, overlap), fills=fills
    )
    return max(_least_per_unit(inputs, overlap) * share, least)


def _least_per_unit(inputs: BoundInputs, overlap: Overlap) -> float:
    """Return the minimum seconds per unit of any sub-distribution."""
    c_in, compute, c_out = (rooted_minorant(curve) for curve in inputs.minorants)
    room, largest = inputs.room, inputs.largest
    single = sum(float(phase.seconds[-1]) for phase in (c_in, compute, c_out)) / largest
    if room < 2:
        return single
    rooted = replace(inputs, minorants=(c_in, compute, c_out))
    first = max(2, -(-room // largest))
    filled = least_over_counts(room, first, rooted, overlap, *_raised(room, rooted, overlap))
    return min(single, filled / room)


def _raised(share: int, inputs: BoundInputs, overlap: Overlap) -> tuple[Raise, Raise]:
    return (
        lambda counts, bounds: raised_by_paths(share, counts, inputs, overlap, bounds),
        lambda counts, bounds: raised_by_residence(share, counts, inputs, bounds),
    )
