"""What a share costs with the best plan, estimated: rings of equal chunks by closed form.

Potts & Baker 1989: equal sublots are a good heuristic for a flow shop of three stages; the closed
form is ours. Where the latest shares took longer or shorter, the whole curve is scaled by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.models.curves.curve import planner_curve
from hetsched.plans.device_plan import Overlap
from hetsched.plans.phase_costs import seconds_of

MOST_CHUNKS = 64
"""More gain nothing that could be measured, unless memory forces more."""
SLOTS = (1, 2, 3, 4)
ANCHORS = 5
"""Observations of whole shares, the latest, that correct the estimate."""
ALIKE = 1.6
"""Shares that differ by less are of one kind. Arbitrary; below 2, or halves of shares count."""
LEAST, MOST = 0.8, 1.25
"""The correction's bounds while one run could be to blame for it."""
SURE = 3
"""Observations of which one that is far off is outvoted."""
GRID = 20
"""Shares at which times are estimated."""

Floats = NDArray[np.float64]
_FEW = np.array([1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, MOST_CHUNKS])


class Estimate:
    """About the time of the best plan as a function of the share: equal chunks by closed form.

    Parameters
    ----------
    model : DeviceModel
    memory : MemoryDemand
    overlap : Overlap
    load : int, units
        No share is larger.

    Attributes
    ----------
    units, seconds : (n,) float64
        At a few shares from 1 to `load`.

    Raises
    ------
    DataError
        Not even one unit fits.
    """

    def __init__(
        self, model: DeviceModel, memory: MemoryDemand, overlap: Overlap, load: int
    ) -> None:
        self._model = model
        self._overlap = overlap
        self._most = _most(load, memory)
        self.units = np.unique(np.geomspace(1, load, GRID).round())
        self.seconds = self.at(self.units)

    def at(self, units: Floats) -> Floats:
        """(n,) float64, seconds, at (n,) shares."""
        seconds = _estimates(units, self._model, self._most, self._overlap, _FEW)
        least: Floats = seconds.min(axis=(1, 2))
        return least


def latest_shares(model: DeviceModel) -> list[tuple[float, float, int]]:
    """Units, seconds and observations of the shares measured last, the latest first.

    Sizes whose computation was measured were chunks; their total is the sum of phases that didn't
    overlap, and says nothing about plans. Much smaller ones may be parts of a factored share.
    """
    evidence = planner_curve(model.total).evidence()
    if evidence is None:
        return []
    chunks: Any = getattr(model.compute, "points", ())
    sizes = {float(point[0]) for point in chunks}
    found = [one for one in evidence.latest() if one[0] not in sizes]
    near = [one for one in found if found[0][0] / ALIKE <= one[0] <= found[0][0] * ALIKE]
    return near[:ANCHORS]


def correction(latest: Sequence[tuple[float, float, int]], estimated: SpeedFunction) -> float:
    """What shares took over what is estimated: the median of the last few observations.

    `latest`: as `latest_shares` has them.

    A single disturbed run is outvoted by the next two, and then forgotten; until it can be, the
    correction is bounded.
    """
    ratios: list[float] = []
    for share, seconds, count in latest:
        ratios += [seconds / float(estimated.time(share))] * count
    if not ratios:
        return 1.0
    ratio = median_low(ratios[:ANCHORS])
    return ratio if len(ratios) >= SURE else min(max(ratio, LEAST), MOST)


def largest_measured(model: DeviceModel) -> float:
    """The largest share whose total was measured, units; 0 if none was."""
    points: Any = getattr(model.total, "points", ())
    return float(points[-1][0]) if len(points) else 0.0


def _most(share: int, memory: MemoryDemand) -> dict[int, int]:
    """Slots -> the largest chunk, units, of which so many fit; one slot is always there.

    Raises DataError when one unit doesn't fit.
    """
    fitting = [slots for slots in SLOTS if slots == 1 or memory.fits([1] * slots)]
    return {slots: memory.most(share, slots) for slots in fitting}


def _estimates(
    units: Floats,
    model: DeviceModel,
    most: dict[int, int],
    overlap: Overlap,
    counts: NDArray[np.int64],
) -> Floats:
    """Seconds for `units` (n), slots (s) and `counts` (k): (n, s, k) float64.

    t = i + w + o + (L - 1) max(w, pace, (i + w + o) / slots): the first chunk goes through all
    phases, every further one adds what the busiest resource needs for it.
    """
    share = units[:, None, None]
    slots = np.array(list(most), dtype=float)[None, :, None]
    largest = np.array(list(most.values()), dtype=float)[None, :, None]
    forced = np.ceil(share / largest)
    chunks = np.minimum(np.maximum(counts[None, None, :], forced), share)
    size = share / chunks
    copy_in, compute, copy_out = (
        np.zeros(size.shape) if curve is None else seconds_of(curve, size)
        for curve in (model.h2d, model.compute, model.d2h)
    )
    through = copy_in + compute + copy_out
    if overlap is Overlap.NONE:
        serial: Floats = chunks * through
        return serial
    duplex = model.duplex if overlap is Overlap.FULL else (0.5, 0.5)
    busiest = np.maximum(compute, pace(copy_in, copy_out, duplex))
    found: Floats = through + (chunks - 1) * np.maximum(busiest, through / slots)
    return found


def pace(copy_in: Floats, copy_out: Floats, duplex: tuple[float, float]) -> Floats:
    """Seconds that one chunk's two copies keep the link busy in the steady state.

    max(i, o) with undisturbed directions, i + o with one engine (as if each had half the pace).
    """
    gained = max(sum(duplex) - 1, 0.0)
    shorter = np.minimum(copy_in / duplex[0], copy_out / duplex[1])
    pace: Floats = copy_in + copy_out - gained * shorter
    return pace
