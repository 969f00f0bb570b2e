"""The windows of each curve of one model key: which are used, and how they are made. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.models.contention import RECENT_RUNS
from hetsched.models.evidence.observations import ObservationWindows, Observed
from hetsched.models.evidence.run_medians import RunMedian
from hetsched.models.evidence.samples import CurveName

MAX_SIZES = 32
"""Latest sizes kept per curve; every run may add one."""
LINKED_WINDOW = 5
"""Totals kept per size for a device with a link: their plans differ."""
NEAR = 1.5
"""Sizes that differ by less are monitored together for a change of speed. Arbitrary."""

Curves = dict[CurveName, ObservationWindows]


def windows_of(curves: Curves, curve: CurveName, *, is_contended: bool) -> ObservationWindows:
    """Return the windows of a curve, new ones if there are none.

    `is_contended`: of contended runs.
    """
    if curve not in curves:
        has_link = "h2d" in curves or "d2h" in curves or curve in ("h2d", "d2h")
        curves[curve] = _empty_windows(
            is_contended=is_contended,
            is_linked_total=curve == "total" and has_link,
            has_link=has_link,
        )
    return curves[curve]


def pairs_and_chunks(medians: Sequence[RunMedian]) -> tuple[list[Observed], list[int]]:
    """Return the arguments of `ObservationWindows.add_run`."""
    pairs = [(units, seconds) for units, seconds, _ in medians]
    return pairs, [chunks for _, _, chunks in medians]


def _empty_windows(
    *, is_contended: bool, is_linked_total: bool, has_link: bool
) -> ObservationWindows:
    if is_contended:  # the other processes change, not the device
        return ObservationWindows(
            max_sizes=MAX_SIZES if has_link else RECENT_RUNS,
            window=RECENT_RUNS,
            near=NEAR,
            detects_changes=False,
        )
    if is_linked_total:
        return ObservationWindows(max_sizes=MAX_SIZES, window=LINKED_WINDOW, detects_changes=False)
    return ObservationWindows(max_sizes=MAX_SIZES, near=NEAR, may_step=has_link)
