"""Plans whose chunks grow or shrink evenly from first to last, so that critical paths tie.

Where neighbouring phases cost about the same, no chunk is in the middle: sizes that follow
p(x_next) = q(x), with p and q the phases whose turn changes from one chunk to the next, make all
paths through the pipeline equally long (Glass, Gupta & Potts 1994, for proportional costs). One
copy engine works to w(x) = o(x_before) + i(x_next): Ilic & Sousa, equation (4) with equality.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hetsched.plans.bounds.convex_minorant import Line
from hetsched.plans.device_plan import Overlap
from hetsched.plans.phase_costs import Costs, Floats
from hetsched.plans.search.ramps import Ramp

HALVINGS = 20
"""Steps of the bisection for the first chunk: to a thousandth of a unit in most shares."""
STEEPEST = 6.0
"""Growth from chunk to chunk at most, and its inverse at least."""


class Rule(NamedTuple):
    """The next chunk has `ratio` x + `more` units."""

    ratio: float
    more: float


Tried = tuple[Rule, int, Ramp, Ramp]
"""By which rule, about how many chunks, between which ramps."""


def rules(costs: Costs, size: int, overlap: Overlap) -> list[Rule]:
    """How chunks of about `size` units may grow. Costs are taken as straight near there."""
    c_in, compute, c_out = (_straight(phase, size) for phase in costs.phases)
    found = [_tie(c_in, compute), _tie(compute, c_out)]
    found.append(_tie(_both(c_in, compute), _both(compute, c_out)))
    if overlap is Overlap.SINGLE:
        found += _one_engine(c_in, compute, c_out)
    gentle = [one for one in found if one and 1 / STEEPEST <= one.ratio <= STEEPEST]
    return list(dict.fromkeys(gentle))


def grown(
    share: int,
    largest: int,
    several: Sequence[Rule],
    counts: Sequence[int],
    ends: Sequence[tuple[Ramp, Ramp]] = (((), ()),),
) -> list[tuple[int, ...]]:
    """Plans of about `counts` chunks by each rule; none is larger than `largest` units.

    `ends`: ramps up and down that no chunk near an end exceeds, each pair of them is tried.
    """
    pairs = [(rule, n) for rule in several for n in counts if share <= n * largest and n <= share]
    if not pairs:
        return []
    tried = [(*pair, *ramps) for ramps in ends for pair in pairs]
    caps = _caps(largest, tried)
    able = caps.sum(axis=1) >= share
    tried = [one for one, fits in zip(tried, able.tolist(), strict=True) if fits]
    if not tried:
        return []
    sizes = _sizes(share, caps[able], tried)
    until = np.rint(np.cumsum(sizes, axis=1)).astype(int)
    until[:, -1] = share
    whole = np.diff(np.minimum(until, share), axis=1, prepend=0)
    plans = (tuple(size for size in row if size) for row in whole.tolist())
    return [plan for plan in dict.fromkeys(plans) if max(plan) <= largest]


def _caps(largest: int, tried: list[Tried]) -> Floats:
    """The largest that each chunk may be; 0 where a row has no more chunks."""
    columns = max(one[1] for one in tried)
    ramps = {ramp for _, _, *both in tried for ramp in both}
    ends = {ramp: _capped(ramp, largest, columns) for ramp in ramps}
    rows = [
        [*map(min, ends[up][:count], ends[down][:count][::-1]), *(0,) * (columns - count)]
        for _, count, up, down in tried
    ]
    return np.array(rows, dtype=float)


def _capped(ramp: Ramp, largest: int, columns: int) -> list[int]:
    return [*(min(size, largest) for size in ramp), *(largest,) * columns][:columns]


def _sizes(share: int, caps: Floats, tried: list[Tried]) -> Floats:
    """Real sizes, one row each: the first chunk is such that they add up to `share`."""
    counts = np.array([one[1] for one in tried])[:, None]
    ratio = np.array([one[0].ratio for one in tried])[:, None]
    more = np.array([one[0].more for one in tried])[:, None]
    index = np.arange(caps.shape[1], dtype=float)[None, :]
    power = ratio**index
    level = np.abs(ratio - 1) < 1e-9
    steps = np.where(level, index, (power - 1) / np.where(level, 1.0, ratio - 1))
    low, high = np.full_like(ratio, -float(share)), np.full_like(ratio, float(share))
    high = np.maximum(high, caps.max() * (1 / np.minimum(ratio, 1)) ** (counts - 1))
    for _ in range(HALVINGS):
        first = (low + high) / 2
        total = _clipped(power, first, more * steps, caps).sum(axis=1, keepdims=True)
        low, high = np.where(total < share, first, low), np.where(total < share, high, first)
    return _clipped(power, high, more * steps, caps)


def _clipped(power: Floats, first: Floats, more: Floats, caps: Floats) -> Floats:
    sizes: Floats = np.clip(power * first + more, 0, caps)
    return sizes


def _straight(phase: Floats, size: int) -> Line:
    """The line through `phase` at `size` and half of it."""
    half = max(1, size // 2)
    if half == size:
        return Line(0.0, float(phase[size]) / size)
    slope = float(phase[size] - phase[half]) / (size - half)
    return Line(float(phase[size]) - slope * size, slope)


def _both(one: Line, other: Line) -> Line:
    return Line(one.gap + other.gap, one.slope + other.slope)


def _tie(next_one: Line, this: Line) -> Rule | None:
    """`next_one` of the next chunk takes as long as `this` of this one."""
    if next_one.slope <= 0 or this.slope <= 0:
        return None
    return Rule(this.slope / next_one.slope, (this.gap - next_one.gap) / next_one.slope)


def _one_engine(c_in: Line, compute: Line, c_out: Line) -> list[Rule]:
    """Both solutions of w(x) = o(x_before) + i(x_next)."""
    spread = compute.slope**2 - 4 * c_in.slope * c_out.slope
    if spread <= 0 or c_in.slope <= 0 or c_out.slope <= 0:
        return []
    rest = compute.slope - c_in.slope - c_out.slope
    found = []
    for root in (math.sqrt(spread), -math.sqrt(spread)):
        ratio = (compute.slope + root) / (2 * c_in.slope)
        level = (c_in.gap + c_out.gap - compute.gap) / rest if rest else 0.0
        found.append(Rule(ratio, level * (1 - ratio)))
    return found
