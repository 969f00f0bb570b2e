"""A bound for installments: sub-distributions that follow each other, each no larger than memory.

Sub-distributions of one chunk are serial. Those of several fill and drain the pipeline; their cost
per unit falls as they grow, so that none does better than one that fills memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hetsched.plans.bounds.bound_terms import BoundInputs, least_over_counts, raised_by_paths
from hetsched.plans.bounds.convex_minorant import rooted_minorant
from hetsched.plans.device_plan import Overlap
from hetsched.plans.phase_costs import Floats


def installment_bound(share: int, inputs: BoundInputs, overlap: Overlap) -> float:
    """Seconds that installments for `share` units take at least, if they don't fit as a whole."""
    fills = -(-share // inputs.room)
    first = max(fills, -(-share // inputs.largest))
    raised = _raised(share, inputs, overlap)
    return max(
        _least_per_unit(inputs, overlap) * share,
        least_over_counts(share, first, inputs, overlap, raised, fills),
    )


def _least_per_unit(inputs: BoundInputs, overlap: Overlap) -> float:
    """Seconds per unit of any sub-distribution, at least."""
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
