"""The makespans of many plans at once: the recurrences of `timeline`, vectorised over plans.

For searches; a plan that was found is judged by `timeline`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hetsched.plans.device_plan import Overlap
from hetsched.plans.phase_costs import Costs, Floats

Sizes = NDArray[np.int64]


def padded(plans: Sequence[Sequence[int]]) -> Sizes:
    """Chunk lists as rows, with zeros at the end: chunks of nothing cost nothing."""
    longest = max(map(len, plans))
    return np.array([[*plan, *(0,) * (longest - len(plan))] for plan in plans], dtype=np.int64)


def makespans(
    sizes: Sizes, slots: int | NDArray[np.int64], costs: Costs, overlap: Overlap
) -> Floats:
    """Seconds of each plan of one sub-distribution.

    Parameters
    ----------
    sizes : (n, chunks) int64, units
        Rows end with zeros where they have fewer chunks.
    slots : int or (n,) int64
        Of a ring; 0: all chunks are in device memory together.
    costs : Costs
    overlap : Overlap

    Returns
    -------
    (n,) float64, seconds
    """
    chunks = sizes.shape[1]
    copy_in, compute, copy_out = (np.ascontiguousarray(t[sizes].T) for t in costs.phases)
    serial: Floats = (copy_in + compute + copy_out).sum(axis=0)
    if overlap is Overlap.NONE:
        return serial
    each = np.broadcast_to(np.asarray(slots, dtype=np.int64), serial.shape)
    each = np.where(each == 0, chunks, each)
    if overlap is Overlap.SINGLE:
        return np.where(each == 1, serial, _single(copy_in, compute, copy_out))
    if min(costs.duplex) < 1:
        return np.where(each == 1, serial, _fluid(copy_in, compute, copy_out, each, costs.duplex))
    return _full(copy_in, compute, copy_out, each)


def _full(copy_in: Floats, compute: Floats, copy_out: Floats, slots: Sizes) -> Floats:
    """Two copy engines. `left` has as many rows of zeros first as there may be slots."""
    chunks, plans = copy_in.shape
    least = int(slots.min())
    ahead = int(slots.max())
    left = np.zeros((ahead + chunks, plans))
    columns = np.arange(plans)
    freed = ahead - slots
    arrived = computed = out = np.zeros(plans)
    for index in range(chunks):
        if index >= least:
            guard = left[index] if least == ahead else left[freed + index, columns]
            arrived = np.maximum(arrived, guard)
        arrived = arrived + copy_in[index]
        computed = np.maximum(arrived, computed) + compute[index]
        out = np.maximum(computed, out) + copy_out[index]
        left[ahead + index] = out
    return out


def _single(copy_in: Floats, compute: Floats, copy_out: Floats) -> Floats:
    """One copy engine: I1 I2 O1 I3 O2 ..."""
    engine = computed = np.zeros(copy_in.shape[1])
    for index in range(copy_in.shape[0]):
        before = computed
        engine = engine + copy_in[index]
        computed = np.maximum(engine, computed) + compute[index]
        if index:
            engine = np.maximum(engine, before) + copy_out[index - 1]
    last: Floats = np.maximum(engine, computed) + copy_out[-1]
    return last


def _fluid(
    copy_in: Floats, compute: Floats, copy_out: Floats, slots: Sizes, duplex: tuple[float, float]
) -> Floats:
    """Two copy engines that slow each other down; every step ends an operation in every plan."""
    chunks, plans = copy_in.shape
    columns = np.arange(plans)
    work = np.stack([np.vstack((one, np.zeros(plans))) for one in (copy_in, compute, copy_out)])
    done = np.zeros((3, plans), dtype=np.int64)
    left = np.full((3, plans), np.inf)
    now = np.zeros(plans)
    while (done[2] < chunks).any():
        limits = np.stack((done[2] + slots, done[0], done[1]))
        starts = np.isinf(left) & (done < np.minimum(limits, chunks))
        for engine in range(3):
            fresh = work[engine, done[engine], columns]
            left[engine] = np.where(starts[engine], fresh, left[engine])
        both = np.isfinite(left[0]) & np.isfinite(left[2])
        paces = np.stack(
            (np.where(both, duplex[0], 1.0), np.ones(plans), np.where(both, duplex[1], 1.0))
        )
        needed = left / paces
        step = needed.min(axis=0)
        step = np.where(np.isfinite(step), step, 0.0)
        ended = needed <= step * (1 + 1e-12)
        left = np.where(ended, np.inf, left - step * paces)
        done += ended
        now += step
    return now
