"""Isotonic regression by pooling adjacent violators (Barlow et al. 1972): times rise with size.

Every ray from the origin crosses a piecewise-linear speed function exactly once if and only if the
knot times strictly increase, so this alone makes partitions unique. SciPy has the same regression,
but importing it would dominate start-up time.
"""

from __future__ import annotations

import numpy as np

from hetsched.models.curves.segments import Floats

MIN_RELATIVE_RISE = 1e-9
"""Relative rise given to pooled times: far below any measurement, far above rounding (2e-16)."""


def isotonic(values: Floats, weights: Floats) -> Floats:
    """Return the nondecreasing (n,) array nearest `values` in weighted least squares. O(n)."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, total, count = value, weight, 1
        while blocks and blocks[-1][0] >= mean:
            other_mean, other_total, other_count = blocks.pop()
            mean = (other_mean * other_total + mean * total) / (other_total + total)
            total, count = other_total + total, other_count + count
        blocks.append((mean, total, count))
    return np.repeat([block[0] for block in blocks], [block[2] for block in blocks])


def rising(values: Floats, weights: Floats) -> Floats:
    """Return `isotonic` made strictly increasing by at least `MIN_RELATIVE_RISE`."""
    fitted = isotonic(values, weights)
    for j in range(1, len(fitted)):
        fitted[j] = max(fitted[j], fitted[j - 1] * (1 + MIN_RELATIVE_RISE))
    return fitted
