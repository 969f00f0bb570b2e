"""Measured times of whole shares, and the correction of predictions by them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low
from typing import Any

from hetsched.models import DeviceModel, SpeedFunction
from hetsched.models.curves.curve import planner_curve

MAX_OBSERVATIONS = 5
"""Latest observations of whole shares used to correct predictions."""
MAX_SHARE_RATIO = 1.6
"""Shares that differ by more aren't compared. Arbitrary; below 2, to exclude halves of shares."""
MIN_CORRECTION, MAX_CORRECTION = 0.8, 1.25
"""Bounds on a correction that may be due to a single run."""
TRUSTED_OBSERVATIONS = 3
"""Observations whose median a single outlier can't determine."""

MeasuredShare = tuple[float, float, int]
"""Units, seconds and number of observations."""


def latest_shares(model: DeviceModel) -> list[MeasuredShare]:
    """Return the last measured shares, latest first.

    Sizes with a measured computation were chunks: their total is the sum of their phases, without
    overlap, and says nothing about plans. Much smaller sizes may be parts of a factored share.
    """
    evidence = planner_curve(model.total).evidence()
    if evidence is None:
        return []
    chunks: Any = getattr(model.compute, "points", ())
    chunk_sizes = {float(point[0]) for point in chunks}
    shares = [entry for entry in evidence.latest() if entry[0] not in chunk_sizes]
    comparable = [
        entry
        for entry in shares
        if shares[0][0] / MAX_SHARE_RATIO <= entry[0] <= shares[0][0] * MAX_SHARE_RATIO
    ]
    return comparable[:MAX_OBSERVATIONS]


def correction(latest: Sequence[MeasuredShare], predicted: SpeedFunction) -> float:
    """Return the median ratio of measured to predicted time of the last few observations.

    `latest`: as returned by `latest_shares`.

    The median ignores a single contended run after two further runs; until then the correction is
    bounded.
    """
    ratios: list[float] = []
    for share, seconds, count in latest:
        ratios += [seconds / float(predicted.time(share))] * count
    if not ratios:
        return 1.0
    ratio = median_low(ratios[:MAX_OBSERVATIONS])
    if len(ratios) >= TRUSTED_OBSERVATIONS:
        return ratio
    return min(max(ratio, MIN_CORRECTION), MAX_CORRECTION)


def largest_measured(model: DeviceModel) -> float:
    """Return the largest share whose total was measured, units; 0 if none was."""
    points: Any = getattr(model.total, "points", ())
    return float(points[-1][0]) if len(points) else 0.0
