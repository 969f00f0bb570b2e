"""A bound for installments: consecutive sub-distributions, each no larger than memory.

A sub-distribution of one chunk is serial. Others fill and drain the pipeline; their cost per unit
falls with size, so one that fills memory is the best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hetsched.plans.bounds.bound_terms import BoundInputs, least_over_counts, raised_by_paths
from hetsched.plans.bounds.convex_minorant import rooted_minorant
from hetsched.plans.device_plan import Overlap
from hetsched.plans.phase_costs import Floats


def installment_bound(share: int, inputs: BoundInputs, overlap: Overlap) -> float:
    """Return the minimum seconds of installments for `share` units that exceed memory."""
    fills = -(-share // inputs.room)
    first = max(fills, -(-share // inputs.largest))
    raised = _raised(share, inputs, overlap)
    return max(
        _least_per_unit(inputs, overlap) * share,
        least_over_counts(share, first, inputs, overlap, raised, fills),
    )


def _least_per_unit(inputs: BoundInputs, overlap: Overlap) -> float:
    """Return the minimum seconds per unit of any sub-distribution."""
    c_in, compute, c_out = (rooted_minorant(curve) for curve in inputs.minorants)
    room, largest = inputs.room, inputs.largest
    single = float((c_in + compute + c_out)[largest]) / largest
    if room < 2:
        return single
    rooted = replace(inputs, minorants=(c_in, compute, c_out))
    first = max(2, -(-room // largest))
    filled = least_over_counts(room, first, rooted, overlap, _raised(room, rooted, overlap))
    return min(single, filled / room)


def _raised(
    share: int, inputs: BoundInputs, overlap: Overlap
) -> Callable[[Floats, Floats], Floats]:
    return lambda counts, bounds: raised_by_paths(share, counts, inputs, overlap, bounds)
