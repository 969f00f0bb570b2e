"""An estimate of the time of a share's best plan: rings of equal chunks in closed form.

Potts & Baker 1989: equal sublots are a good heuristic for a flow shop of three stages; the closed
form is ours.
"""

from __future__ import annotations

import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.plans.device_plan import Overlap
from hetsched.plans.memory_fit import MAX_SLOTS
from hetsched.plans.phase_costs import Floats, phase_seconds

ESTIMATED_SHARES = 20
"""Number of shares, spread evenly by ratio, at which times are estimated."""
CHUNK_COUNTS = np.array([1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64])
"""More chunks gain nothing measurable, unless memory forces more."""


class ShareEstimate:
    """Approximate time of the best plan as a function of the share.

    Parameters
    ----------
    model : DeviceModel
    memory : MemoryDemand
    overlap : Overlap
    load : int, units
        The largest share.

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
        self._largest_chunks = _largest_chunks(load, memory)
        self.units = np.unique(np.geomspace(1, load, ESTIMATED_SHARES).round())
        self.seconds = self.at(self.units)

    def at(self, units: Floats) -> Floats:
        """Estimate (n,) float64, seconds, for (n,) shares."""
        seconds = _equal_ring_seconds(units, self._model, self._largest_chunks, self._overlap)
        fastest: Floats = seconds.min(axis=(1, 2))
        return fastest


def _largest_chunks(share: int, memory: MemoryDemand) -> dict[int, int]:
    """Return slots -> the largest chunk, units, of which so many fit; always with one slot.

    Raises DataError if one unit doesn't fit.
    """
    fitting = [n for n in range(1, MAX_SLOTS + 1) if n == 1 or memory.fits([1] * n)]
    return {slots: memory.max_chunk(share, slots) for slots in fitting}


def _equal_ring_seconds(
    units: Floats, model: DeviceModel, largest_chunks: dict[int, int], overlap: Overlap
) -> Floats:
    """Return (n, s, k) float64, seconds by share (n), slots (s) and number of chunks (k).

    t = i + w + o + (L - 1) max(w, pace, (i + w + o) / slots): the first chunk goes through all
    phases; each further one adds the busiest resource's time for it.
    """
    share = units[:, None, None]
    slots = np.array(list(largest_chunks), dtype=float)[None, :, None]
    largest = np.array(list(largest_chunks.values()), dtype=float)[None, :, None]
    fewest = np.ceil(share / largest)
    chunks = np.minimum(np.maximum(CHUNK_COUNTS[None, None, :], fewest), share)
    copy_in, compute, copy_out = phase_seconds(model, share / chunks)
    all_phases = copy_in + compute + copy_out
    if overlap is Overlap.NONE:
        serial: Floats = chunks * all_phases
        return serial
    duplex = model.duplex if overlap is Overlap.FULL else (0.5, 0.5)
    busiest = np.maximum(compute, link_seconds(copy_in, copy_out, duplex))
    seconds: Floats = all_phases + (chunks - 1) * np.maximum(busiest, all_phases / slots)
    return seconds


def link_seconds(copy_in: Floats, copy_out: Floats, duplex: tuple[float, float]) -> Floats:
    """Return the seconds for which one chunk's two copies occupy the link in the steady state.

    max(i, o) where the directions are independent, i + o with one engine (as if each direction
    had half the pace).
    """
    gained = max(sum(duplex) - 1, 0.0)
    shorter = np.minimum(copy_in / duplex[0], copy_out / duplex[1])
    seconds: Floats = copy_in + copy_out - gained * shorter
    return seconds
