"""Runs in a process that uses a library for the first time: slower than in a warm process. Pure.

Code is loaded, page tables are filled, caches and branch predictors learn. The time of such a run
is kept as the curve "cold", its ratio to the warm curve is learnt, and the run counts as evidence
of the warm speed only after division by that ratio. So neither `hetsched run`, whose processes are
always fresh, nor the first job of a daemon distorts the models of the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.models.curves.curve import SpeedFunction
from hetsched.models.evidence.confidence import robust_median
from hetsched.models.evidence.observations import ObservationWindows
from hetsched.models.evidence.samples import Sample

MIN_RATIO, MAX_RATIO = 0.8, 2.0
"""Limits of the ratio; a run beyond them says that the speed has changed."""


def cold_ratio(cold: ObservationWindows, total: SpeedFunction) -> float:
    """Return the time of a share in a fresh process over that in a warm one."""
    ratios = [seconds / float(total.time(units)) for units, seconds, _ in cold.latest()]
    return min(max(robust_median(ratios), MIN_RATIO), MAX_RATIO) if ratios else 1.0


def as_warm(
    samples: Sequence[Sample], cold: ObservationWindows | None, total: SpeedFunction | None
) -> list[Sample]:
    """Return the samples of a run, with its total as a warm process would have needed it.

    Parameters
    ----------
    cold : ObservationWindows or None
        Of earlier runs in fresh processes; None: this is the first.
    total : SpeedFunction or None
        The warm curve; None: this is the first run, whose total is the best guess.
    """
    fresh = next((sample for sample in samples if sample.curve == "cold"), None)
    if fresh is None or total is None or fresh.contended:
        return list(samples)
    if cold is None:
        cold = ObservationWindows([(fresh.units, fresh.seconds)])
    seconds = fresh.seconds / cold_ratio(cold, total)
    others = [sample for sample in samples if sample.curve != "total"]
    return [*others, Sample("total", fresh.units, seconds)]
