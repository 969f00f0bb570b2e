"""What chunks cost, by their size: seconds of their phases, and how many fit in device memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetsched.errors import HetschedError, UsageError
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.partition.distribution import evaluate
from hetsched.plans.device_plan import DevicePlan, Overlap

Floats = NDArray[np.float64]
MAX_GRANULES = 1 << 12
"""Sizes up to the largest chunk that tables hold. With more, planning takes longer, and no plan is
measurably faster."""
MAX_SLOTS = 4
"""Slots of a ring in searches: a chunk in each phase, and one waiting."""
EQUAL_CHUNKS = np.array([1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64])
"""Numbers of chunks of the rings tried first: more gain nothing, unless memory forces more."""
MAX_SEARCHED_CHUNKS = int(EQUAL_CHUNKS[-1])
"""Chunks beyond which a plan is searched at a shorter share, and sub-distributions aren't."""


# ---- seconds


class PhaseCosts(NamedTuple):
    """Seconds of the phases of chunks of some sizes; 0 for a phase that doesn't exist.

    In tables the index is the size in granules. Copies of two engines that slow each other down
    are as long as while both are busy: searches needn't follow them, `recurrence.price` does.
    """

    copy_in: Floats
    compute: Floats
    copy_out: Floats

    @property
    def largest(self) -> int:
        return len(self.compute) - 1

    @property
    def serial(self) -> Floats:
        return self.copy_in + self.compute + self.copy_out

    def up_to(self, largest: int) -> PhaseCosts:
        return PhaseCosts(*(phase[: largest + 1] for phase in self))

    def busiest(self, overlap: Overlap) -> Floats:
        if overlap is Overlap.NONE:
            return self.serial
        if overlap is Overlap.SINGLE:
            return np.maximum(self.copy_in + self.copy_out, self.compute)
        return np.maximum(np.maximum(self.copy_in, self.copy_out), self.compute)


def costs_of(model: DeviceModel, largest: int, overlap: Overlap, granule: int = 1) -> PhaseCosts:
    """Tabulate the costs of chunks of up to `largest` granules of `granule` units. O(largest)."""
    costs = link_costs(model, granule * np.arange(1.0, largest + 1), overlap)
    return PhaseCosts(*(np.concatenate(([0.0], seconds)) for seconds in costs))


def link_costs(model: DeviceModel, units: Floats, overlap: Overlap) -> PhaseCosts:
    """Return the costs of chunks of `units` in the steady state, where copies slow each other.

    The shorter copy always has company, the longer one only while the shorter takes.
    """
    costs = phase_seconds(model, units)
    if overlap is not Overlap.FULL or min(model.duplex) == 1:
        return costs
    copy_in, compute, copy_out = costs
    pace_in, pace_out = model.duplex
    slow_in, slow_out = copy_in / pace_in, copy_out / pace_out
    is_longer = slow_in >= slow_out
    return PhaseCosts(
        np.where(is_longer, copy_in + (1 - pace_in) * slow_out, slow_in),
        compute,
        np.where(is_longer, slow_out, copy_out + (1 - pace_out) * slow_in),
    )


def phase_seconds(model: DeviceModel, units: Floats) -> PhaseCosts:
    return PhaseCosts(
        *(
            np.zeros(units.shape) if curve is None else seconds_of(curve, units)
            for curve in (model.h2d, model.compute, model.d2h)
        )
    )


def seconds_of(curve: Any, units: Floats) -> Floats:
    """Evaluate `curve.time` at each of `units`; scalar-only curves work, but slower.

    Raises UsageError if the curve fails, or returns a negative time or NaN.
    """
    try:
        seconds = np.asarray(curve.time(units), dtype=float) + np.zeros(units.shape)
    except HetschedError:
        raise
    except Exception:  # a third-party curve may fail on arrays in any way
        scalars = [evaluate("model", curve, "time", x) for x in units.ravel().tolist()]
        seconds = np.array(scalars).reshape(units.shape)
    valid = seconds >= 0  # False for NaN
    if not valid.all():
        index = int(np.argmin(valid))
        raise UsageError(
            f"model: {seconds.flat[index]} seconds for {units.flat[index]:g} units; times must be"
            " 0 or more"
        )
    return seconds


def estimated_seconds(
    units: Floats, model: DeviceModel, memory: MemoryDemand, overlap: Overlap
) -> Floats:
    """Estimate the time of the best plan of each of some shares: rings of equal chunks.

    t = i + w + o + (L - 1) max(busiest engine, (i + w + o) / slots): after the first chunk each
    one adds the busiest resource's time. (Potts & Baker 1989: equal sublots are a good heuristic
    for a flow shop of three stages; the closed form is ours.)

    Raises DataError if not even one unit fits.
    """
    counts = [n for n in range(1, MAX_SLOTS + 1) if n == 1 or memory.fits([1] * n)]
    largest = np.array([[memory.max_chunk(int(units.max()), n)] for n in counts], dtype=float)
    slots = np.array(counts, dtype=float)[:, None]
    share = units[:, None, None]
    chunks = np.minimum(np.maximum(EQUAL_CHUNKS, np.ceil(share / largest)), share)
    costs = link_costs(model, share / chunks, overlap)
    pace = np.maximum(costs.busiest(overlap), costs.serial / slots)
    seconds = costs.serial + (chunks - 1) * pace
    fastest: Floats = seconds.min(axis=(1, 2))
    return fastest


# ---- memory


@dataclass(frozen=True)
class GranularShare:
    """A share of `units` in granules, so that tables by size don't grow with the load.

    `share`, the `largest` chunk that fits and `memory` are in granules of `granule` units, a tiny
    part of the largest chunk; 1: nothing is rounded. The last one may be incomplete.
    """

    units: int
    granule: int
    share: int
    memory: MemoryDemand
    largest: int

    def in_units(self, plan: DevicePlan) -> DevicePlan:
        if self.granule == 1:
            return plan
        excess = self.share * self.granule - self.units
        largest = max(plan.chunks)
        sub_distributions = []
        for chunks in plan.sub_distributions:
            sizes = [size * self.granule for size in chunks]
            if excess and largest in chunks:
                sizes[chunks.index(largest)] -= excess
                excess = 0
            sub_distributions.append(tuple(sizes))
        return DevicePlan(tuple(sub_distributions), plan.mode, plan.slots)


def granular(share: int, memory: MemoryDemand, max_granules: int = MAX_GRANULES) -> GranularShare:
    """Return a share, 1 or more, in at most `max_granules` for the largest chunk.

    Raises DataError if not even one unit fits.
    """
    largest = memory.max_chunk(share)
    granule = -(-largest // max_granules)
    if granule == 1:
        return GranularShare(share, 1, share, memory, largest)
    coarse_share, coarse_memory = -(-share // granule), memory.in_granules(granule)
    return GranularShare(
        share, granule, coarse_share, coarse_memory, coarse_memory.max_chunk(coarse_share)
    )


def sample_sizes(largest: int) -> Floats:
    """Return sizes from 1 to `largest` units: all that are small, and some of the others."""
    if largest <= MAX_GRANULES:
        return np.arange(1.0, largest + 1)
    count = int(MAX_GRANULES * np.log(largest / MAX_GRANULES) / 4) + 2
    large = np.geomspace(MAX_GRANULES, largest, count).round()
    return np.union1d(np.arange(1.0, MAX_GRANULES), large)


def largest_sub_distribution(share: int, memory: MemoryDemand) -> int:
    """Return an upper bound on the units that fit together, at most `share`.

    Exact if bytes grow in proportion; otherwise based on the minimum bytes per unit. Bytes of
    large sizes that aren't evaluated are at least those of the next smaller one.
    """
    largest = memory.max_chunk(share)
    if memory.limit is None or largest == share:
        return share
    is_table = any(map(callable, (memory.input_bytes, memory.work_bytes, memory.output_bytes)))
    sizes = sample_sizes(largest).astype(int).tolist() if is_table else [1, largest]
    up_to = [size - 1 for size in sizes[1:]] + [largest] if is_table else sizes
    shared = memory.work == "max"
    bytes_per_unit = min(
        (memory.data(size) + (0 if shared else memory.workspace(size))) / last
        for size, last in zip(sizes, up_to, strict=True)
    )
    free = memory.limit - memory.resident_bytes - (memory.workspace(1) if shared else 0)
    if not bytes_per_unit:
        return share
    return min(share, max(largest, int(free / bytes_per_unit + 1e-9)))


def patterns(share: int, memory: MemoryDemand) -> dict[int, tuple[int, ...]]:
    """Return slots -> the largest chunks, units, that fit together, as equal as possible.

    A ring that repeats a pattern fits, because any `slots` neighbours are the same chunks. One
    slot is always present, others if as many units fit.
    """
    largest = memory.max_chunk(share)
    pattern_of: dict[int, tuple[int, ...]] = {1: (largest,)}
    for slots in range(2, MAX_SLOTS + 1):
        if not memory.fits([1] * slots):
            break
        sizes = [memory.max_chunk(largest, slots)] * slots
        for index in range(slots - 1):
            larger = [*sizes[:index], sizes[index] + 1, *sizes[index + 1 :]]
            if sizes[index] < largest and memory.fits(larger):
                sizes = larger
        pattern_of[slots] = tuple(sizes)
    return pattern_of
