"""Trades by imbalance factor: NEC, US 9,038,088, with a rule that can't stall.

Each repartition moves units from the device with the shortest wait to the one with the longest
(the patent swaps the two in places), or from the n shortest to the n longest. Equal compute times
would need D_cmpt units, equal transfer times D_xfer, and the patent moves the smaller number. That
stalls if transfers are already equal, regardless of the speeds. So a phase whose times hardly
differ is ignored, and no move is larger than the one that equalises the sums.

Disjoint groups are balanced internally first, then with each other, each as one device. Groups
that overlap are neighbourhoods: in each, the devices with the shortest and the longest wait trade,
and load spreads from one neighbourhood to the next.
"""

from __future__ import annotations

import operator
import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from hetsched.errors import UsageError
from hetsched.job import IterationSeconds
from hetsched.models import Constant
from hetsched.models.curves import Floats, Numbers
from hetsched.models.functions import NO_POINTS
from hetsched.models.validation import require_non_negative, require_observation
from hetsched.models.windows import MAX_SIZES
from hetsched.partition.distribution import Limits, Shares
from hetsched.partition.equal_times import constant

MIN_PHASE_DIFFERENCE = 0.02
"""Part of an iteration; phases whose times differ by less are ignored."""
COMMON_WAIT = 0.25
"""Part of an iteration: if all devices wait longer, moving data won't help. The patent asks for
this test but gives no threshold."""
CHANGED = 1.2
"""Ratio to the prediction that, twice in a row on the same side, means another speed: far above
noise, and a line fitted to a curve may be wrong by as much."""

Line = tuple[float, float]
"""Gap and slope, seconds and seconds/unit."""
Groups = tuple[tuple[int, ...], ...]
"""Indices of devices."""


def iteration_seconds(readings: Iterable[IterationSeconds]) -> float:
    return max(reading.busy + reading.wait for reading in readings)


# ---- the history table and its predictions


class NodeModel:
    """Seconds of a device's compute and transfer phases, each gap + slope x for x > 0 units.

    Fitted to the history, (units, compute seconds, transfer seconds), by non-negative least
    squares; through the origin while there is only one size.
    """

    def __init__(self, history: Iterable[tuple[float, float, float]] = ()) -> None:
        self._rows: deque[tuple[float, float, float]] = deque(maxlen=MAX_SIZES)
        self._deviation = 0  # 1, -1: the last row was much slower, faster than predicted
        self._fit: tuple[Line, Line] | None = None
        for row in history:
            self.observe(*row)

    def observe(self, units: float, compute: float, transfer: float = 0.0) -> None:
        """Add a row. Raises UsageError unless units and the total time are positive."""
        require_observation(units, compute + transfer)
        require_non_negative("observation: compute", compute, " s")
        require_non_negative("observation: transfer", transfer, " s")
        ratio = (compute + transfer) / self.time(units) if self._rows else 1.0
        before, self._deviation = self._deviation, int(ratio > CHANGED) - int(ratio < 1 / CHANGED)
        if self._deviation and self._deviation == before:
            self._rows = deque([self._rows[-1]], MAX_SIZES)
            self._deviation = 0
        self._rows.append((float(units), float(compute), float(transfer)))
        self._fit = None

    @property
    def points(self) -> Floats:
        """(n, 2) float64, units and median seconds of both phases, by units."""
        if not self._rows:
            return NO_POINTS.copy()
        sizes = sorted({row[0] for row in self._rows})
        totals = [[c + t for x, c, t in self._rows if x == size] for size in sizes]
        return np.column_stack((sizes, [np.median(each) for each in totals]))

    def phase_costs(self, units: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the seconds of the compute and the transfer phase, and the slope of each."""
        (a, b), (c, d) = self._lines()
        return (a + b * units, c + d * units), (b, d)

    def time(self, x: float | Numbers, /) -> float | Floats:
        """Return the seconds of both phases for `x` units (number or array); 0 for x = 0."""
        (a, b), (c, d) = self._lines()
        seconds = a + c + (b + d) * x
        return np.where(x > 0, seconds, 0.0) if isinstance(x, np.ndarray) else seconds * (x > 0)

    def speed(self, x: float | Numbers, /) -> float | Floats:
        """Return units per second at `x` > 0 units (number or array)."""
        return x / self.time(x)

    def _lines(self) -> tuple[Line, Line]:
        if self._fit is None:
            if not self._rows:
                raise UsageError("NodeModel: no history yet; call observe(units, seconds) first")
            units, compute, transfer = zip(*self._rows, strict=True)
            self._fit = _line(units, compute), _line(units, transfer)
        return self._fit


def _line(x: Sequence[float], t: Sequence[float]) -> Line:
    centre, middle = fmean(x), fmean(t)
    if min(x) == max(x):
        return 0.0, middle / x[0]
    square = sum((a - centre) ** 2 for a in x)
    slope = sum((a - centre) * b for a, b in zip(x, t, strict=True)) / square
    gap = middle - slope * centre
    if slope < 0:
        return middle, 0.0
    if gap < 0:
        return 0.0, sum(a * b for a, b in zip(x, t, strict=True)) / sum(a * a for a in x)
    return gap, slope


# ---- trades


@dataclass(frozen=True)
class Node:
    """A device, or a group of them, that trades units.

    `times`: of each phase, by the model, and its `slopes`. `spare`, `room`: units that it can give
    and take. `tie_break`: orders nodes with equal waits, as the patent chooses at random.
    """

    wait: float
    times: tuple[float, ...]
    slopes: tuple[float, ...]
    spare: int
    room: int
    tie_break: float = 0.0

    @property
    def rate(self) -> float:
        """Units per additional second; bounded if the time doesn't depend on units."""
        return 1 / max(sum(self.slopes), 1e-12 * sum(self.times), 1e-300)


@dataclass(frozen=True)
class Trade:
    """`units` move from `giver` to `taker` (indices); the later of both ends `gain` s sooner."""

    giver: int
    taker: int
    units: int
    gain: float


def choose_trades(nodes: Mapping[int, Node], total: float, pairs: int = 1) -> list[Trade]:
    """Choose up to `pairs` trades, none of which makes the iteration of `total` seconds longer.

    The k-th shortest wait is paired with the k-th longest.
    """
    by_wait = sorted(nodes, key=lambda i: (nodes[i].wait, nodes[i].tie_break, -i))
    givers = [i for i in by_wait if nodes[i].spare > 0]
    takers = [i for i in reversed(by_wait) if nodes[i].room > 0]
    trades: list[Trade] = []
    busy: set[int] = set()
    for giver, taker in zip(givers, takers, strict=False):
        if giver in busy or taker in busy or giver == taker or len(trades) == pairs:
            break
        busy |= {giver, taker}
        if nodes[giver].wait < nodes[taker].wait:
            units, gain = _units_to_move(nodes[giver], nodes[taker], total)
            trades += [Trade(giver, taker, units, gain)] if gain > 0 else []
    return trades


def _units_to_move(slow: Node, fast: Node, total: float) -> tuple[int, float]:
    """Return how many units to move, and by how many seconds the later one ends sooner."""
    late, early = sum(slow.times), sum(fast.times)
    fall, rise = sum(slow.slopes), sum(fast.slopes)
    units = _units_to_equal(late - early, fall + rise)
    for phase in range(len(slow.times)):
        difference = slow.times[phase] - fast.times[phase]
        enough = _units_to_equal(difference, slow.slopes[phase] + fast.slopes[phase])
        if abs(difference) > MIN_PHASE_DIFFERENCE * total and enough >= 1:
            units = min(units, enough)
    whole = int(min(units + 0.5, slow.spare, fast.room))
    if rise > 0:
        # After rounding up, the taker must not end later than the giver did.
        whole = min(whole, int((late - early) / rise))
    if whole < 1 or late <= early:
        return 0, 0.0
    return whole, late - max(late - whole * fall, early + whole * rise)


def _units_to_equal(difference: float, slope: float) -> float:
    return max(difference, 0.0) / slope if slope > 0 else 0.0


# ---- groups


def parse_groups(groups: Sequence[Any] | None, devices: int) -> Groups:
    """Convert groups of indices, or each device's label, to tuples of indices; None: one group.

    Raises UsageError.
    """
    if groups is None:
        return (tuple(range(devices)),)
    if isinstance(groups, str) or not hasattr(groups, "__len__"):
        raise UsageError(f"groups: {groups!r} must be a sequence of groups, or of labels")
    if any(isinstance(group, Iterable) and not isinstance(group, str) for group in groups):
        parsed = [_members(group, devices) for group in groups]
    elif len(groups) == devices:
        parsed = [
            tuple(i for i, group in enumerate(groups) if group == label)
            for label in dict.fromkeys(groups)
        ]
    else:
        raise UsageError(
            f"groups: {len(groups)} labels for {devices} devices; give one per device"
        )
    missing = set(range(devices)).difference(*parsed)
    if missing:
        raise UsageError(f"groups: device {min(missing)} is in none; each must be in one")
    return tuple(parsed)


def _members(group: Any, devices: int) -> tuple[int, ...]:
    try:
        members = tuple(dict.fromkeys(operator.index(i) for i in group))
    except TypeError:
        raise UsageError(f"groups: {group!r} must be a sequence of device indices") from None
    if not members:
        raise UsageError("groups: a group is empty; give it a member")
    for i in members:
        if not 0 <= i < devices:
            raise UsageError(f"groups: there is no device {i}; indices are 0 to {devices - 1}")
    return members


class Trading:
    """The repartitions of one Balancer."""

    def __init__(
        self, devices: int, tolerance: float, pairs: int, groups: Sequence[Any] | None
    ) -> None:
        self._tolerance = tolerance
        self._pairs = pairs
        self._has_groups = groups is not None
        self._groups = parse_groups(groups, devices)
        self._random = random.Random(0)

    def add_device(self, device: int) -> None:
        """Add a device as a separate group, or as a neighbourhood with the preceding device."""
        if not self._has_groups:
            self._groups = parse_groups(None, device + 1)
        elif self._are_neighbourhoods and device:
            self._groups = (*self._groups, (device - 1, device))
        else:
            self._groups = (*self._groups, (device,))

    @property
    def _are_neighbourhoods(self) -> bool:
        return sum(map(len, self._groups)) > len(set().union(*self._groups))

    def imbalance(
        self, shares: Shares, readings: Sequence[IterationSeconds], limits: Limits
    ) -> tuple[float, bool]:
        """Return the imbalance factor IF, and whether all wait so long that no trade helps.

        IF = (W_max - W_min) / T, with T the time of the whole iteration. A full device's wait
        counts as the shortest, as it can't take more.
        """
        used = [i for i, share in enumerate(shares) if share]
        total = iteration_seconds(readings[i] for i in used)
        shortest = total - max(readings[i].busy for i in used)
        counted = [
            shortest
            if (limit := limits[i]) is not None and shares[i] >= limit
            else total - readings[i].busy
            for i in used
        ]
        factor = (max(counted) - min(counted)) / total
        return factor, shortest > COMMON_WAIT * total

    def trade(
        self,
        shares: Shares,
        readings: Sequence[IterationSeconds],
        models: Sequence[Any],
        limits: Limits,
    ) -> tuple[Shares, float] | None:
        """Return other shares and their gain, seconds; None if only a partition can help."""
        used = [i for i, share in enumerate(shares) if share]
        total = iteration_seconds(readings[i] for i in used)
        load = sum(shares)
        nodes = {
            i: self._node(models[i], shares[i], total - readings[i].busy, limits[i], load)
            for i in used
        }
        new_shares, gain = list(shares), 0.0
        for trade in self._trades(nodes, total):
            new_shares[trade.giver] -= trade.units
            new_shares[trade.taker] += trade.units
            gain = max(gain, trade.gain)
        last = min(nodes, key=lambda i: nodes[i].wait)
        if tuple(new_shares) == shares and shares[last] == 1 and not self._has_groups:
            return None  # it has nothing to give as long as each device keeps a unit
        return tuple(new_shares), gain

    def _node(self, model: Any, share: int, wait: float, limit: int | None, load: int) -> Node:
        """Return a device as a Node, which keeps a unit: trades are decided by its times."""
        spare, room = share - 1, (load if limit is None else limit) - share
        if hasattr(model, "phase_costs"):
            times, slopes = model.phase_costs(share)
        else:
            seconds = float(model.time(share))
            times, slopes = (seconds,), (seconds / share,)
        return Node(wait, times, slopes, spare, room, self._random.random())

    def _trades(self, nodes: Mapping[int, Node], total: float) -> list[Trade]:
        groups = [[i for i in group if i in nodes] for group in self._groups]
        groups = [group for group in groups if group]
        if len(groups) == 1:
            return choose_trades(nodes, total, self._pairs)
        if self._are_neighbourhoods:
            return _between_neighbours(nodes, total, groups)
        return self._by_levels(nodes, total, groups)

    def _by_levels(
        self, nodes: Mapping[int, Node], total: float, groups: Sequence[Sequence[int]]
    ) -> list[Trade]:
        members = [{i: nodes[i] for i in group} for group in groups]
        factors = [_factor_of(each.values(), total) for each in members]
        trades = [
            trade
            for each, factor in zip(members, factors, strict=True)
            if factor > self._tolerance
            for trade in choose_trades(each, total, self._pairs)
        ]
        if trades:
            return trades
        combined = {k: _combined([*each.values()]) for k, each in enumerate(members)}
        worst = max(combined, key=factors.__getitem__)
        # Small differences within and between groups may add up to more than the tolerance.
        if _factor_of(combined.values(), total) >= factors[worst]:
            for trade in choose_trades(combined, total, self._pairs):
                trades += _divided(trade, members[trade.giver], members[trade.taker])
        return trades or choose_trades(members[worst], total, self._pairs)


def _factor_of(nodes: Iterable[Node], total: float) -> float:
    waits = [node.wait for node in nodes]
    return (max(waits) - min(waits)) / total


def _between_neighbours(
    nodes: Mapping[int, Node], total: float, groups: Sequence[Sequence[int]]
) -> list[Trade]:
    """Choose one trade per neighbourhood, least balanced first; no device trades twice."""
    trades: list[Trade] = []
    trading: set[int] = set()
    for group in sorted(groups, key=lambda group: -_factor_of([nodes[i] for i in group], total)):
        free = {i: nodes[i] for i in group if i not in trading}
        for trade in choose_trades(free, total):
            trades.append(trade)
            trading |= {trade.giver, trade.taker}
    return trades


def _combined(members: Sequence[Node]) -> Node:
    """Return a group as one device, which ends with its last member and shares what it takes."""
    last = min(members, key=lambda node: node.wait)
    part = last.rate / sum(node.rate for node in members)
    return Node(
        wait=last.wait,
        times=last.times,
        slopes=tuple(slope * part for slope in last.slopes),
        spare=sum(node.spare for node in members),
        room=sum(node.room for node in members),
        tie_break=last.tie_break,
    )


def _divided(trade: Trade, givers: Mapping[int, Node], takers: Mapping[int, Node]) -> list[Trade]:
    """Divide a trade between groups among their members, in proportion to their rates."""
    give = _parts(trade.units, givers, [node.spare for node in givers.values()])
    take = _parts(trade.units, takers, [node.room for node in takers.values()])
    trades: list[Trade] = []
    while give and take:
        (giver, offered), (taker, wanted) = give[0], take[0]
        units = min(offered, wanted)
        trades.append(Trade(giver, taker, units, trade.gain))
        give = [(giver, offered - units)] * (offered > units) + give[1:]
        take = [(taker, wanted - units)] * (wanted > units) + take[1:]
    return trades


def _parts(units: int, nodes: Mapping[int, Node], limits: Sequence[int]) -> list[tuple[int, int]]:
    """Return the members that get a part of `units`, and how many."""
    shares = constant([Constant(node.rate) for node in nodes.values()], units, limits).shares
    return [(i, share) for i, share in zip(nodes, shares, strict=True) if share]
