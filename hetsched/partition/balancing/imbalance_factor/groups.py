"""NEC's balancer on many devices: group by group, or between neighbours (US 9,038,088).

Disjoint groups are balanced internally first, then with each other, each as one device. Groups
that overlap are neighbourhoods: in each, the devices with the shortest and the longest wait trade,
and load spreads from one neighbourhood to the next.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hetsched.errors import UsageError
from hetsched.models import Constant
from hetsched.partition.balancing.imbalance_factor.trades import Node, Trade, choose_trades
from hetsched.partition.constant import constant

Groups = tuple[tuple[int, ...], ...]
"""Indices of devices."""


def parse_groups(groups: Sequence[Any] | None, devices: int) -> Groups:
    """Convert `groups` to tuples of indices; None gives one group of all devices.

    Parameters
    ----------
    groups : sequence of sequences of int, or sequence of labels, or None
        Members of each group; or each device's group.

    Raises
    ------
    UsageError
        A device is in no group or doesn't exist; a group is empty; labels aren't one per device.
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


def are_neighbourhoods(groups: Groups) -> bool:
    """Return whether the groups overlap."""
    return sum(map(len, groups)) > len(set().union(*groups))


def add_to_groups(groups: Groups, device: int) -> Groups:
    """Add a device as a separate group, or as a neighbourhood with the preceding device."""
    if are_neighbourhoods(groups) and device:
        return (*groups, (device - 1, device))
    return (*groups, (device,))


def repartition(
    nodes: Mapping[int, Node], total: float, tolerance: float, pairs: int, groups: Groups
) -> list[Trade]:
    """Choose the trades between devices after one iteration.

    Parameters
    ----------
    nodes : mapping of device to Node
        The devices with a share.
    total : float, seconds
        Of the last iteration.
    tolerance : float
        A group with at most this imbalance factor is balanced.
    pairs : int
        Trades in a group, and between groups.
    """
    present = [tuple(i for i in group if i in nodes) for group in groups]
    present = [group for group in present if group]
    if len(present) == 1:
        return _inside(nodes, total, pairs, present[0])
    if are_neighbourhoods(groups):
        return _between_neighbours(nodes, total, present)
    return _by_levels(nodes, total, tolerance, pairs, present)


def _factor(nodes: Sequence[Node], total: float) -> float:
    waits = [node.wait for node in nodes]
    return (max(waits) - min(waits)) / total


def _inside(
    nodes: Mapping[int, Node], total: float, pairs: int, group: Sequence[int]
) -> list[Trade]:
    return [
        Trade(group[trade.giver], group[trade.taker], trade.units, trade.gain)
        for trade in choose_trades([nodes[i] for i in group], total, pairs)
    ]


def _between_neighbours(
    nodes: Mapping[int, Node], total: float, groups: Sequence[Sequence[int]]
) -> list[Trade]:
    """Choose one trade per neighbourhood, least balanced first; no device trades twice."""
    trades: list[Trade] = []
    trading: set[int] = set()
    order = sorted(groups, key=lambda group: -_factor([nodes[i] for i in group], total))
    for group in order:
        free = [i for i in group if i not in trading]
        for trade in _inside(nodes, total, 1, free) if len(free) > 1 else []:
            trades.append(trade)
            trading |= {trade.giver, trade.taker}
    return trades


def _by_levels(
    nodes: Mapping[int, Node],
    total: float,
    tolerance: float,
    pairs: int,
    groups: Sequence[Sequence[int]],
) -> list[Trade]:
    factors = [_factor([nodes[i] for i in group], total) for group in groups]
    trades = [
        trade
        for group, factor in zip(groups, factors, strict=True)
        if factor > tolerance
        for trade in _inside(nodes, total, pairs, group)
    ]
    if trades:
        return trades
    group_nodes = [_combined([nodes[i] for i in group]) for group in groups]
    worst = max(range(len(groups)), key=factors.__getitem__)
    # Small differences within and between groups may add up to more than the tolerance.
    if _factor(group_nodes, total) >= factors[worst]:
        trades = _between_groups(nodes, group_nodes, total, pairs, groups)
    return trades or _inside(nodes, total, pairs, groups[worst])


def _combined(members: Sequence[Node]) -> Node:
    """Return a group as one device, which ends with its last member and shares what it takes."""
    last = min(members, key=lambda node: node.wait)
    part = _rate(last) / sum(_rate(node) for node in members)
    return Node(
        wait=last.wait,
        times=last.times,
        slopes=tuple(slope * part for slope in last.slopes),
        spare=sum(node.spare for node in members),
        room=sum(node.room for node in members),
        tie_break=last.tie_break,
    )


def _rate(node: Node) -> float:
    """Return units per additional second; bounded if the time doesn't depend on units."""
    return 1 / max(sum(node.slopes), 1e-12 * sum(node.times), 1e-300)


def _between_groups(
    nodes: Mapping[int, Node],
    group_nodes: Sequence[Node],
    total: float,
    pairs: int,
    groups: Sequence[Sequence[int]],
) -> list[Trade]:
    """Divide trades between groups among their members, in proportion to their rates."""
    trades: list[Trade] = []
    for trade in choose_trades(group_nodes, total, pairs):
        givers, takers = groups[trade.giver], groups[trade.taker]
        give = _parts(trade.units, [nodes[i] for i in givers], [nodes[i].spare for i in givers])
        take = _parts(trade.units, [nodes[i] for i in takers], [nodes[i].room for i in takers])
        trades += _matched(
            [[i, part] for i, part in zip(givers, give, strict=True)],
            [[i, part] for i, part in zip(takers, take, strict=True)],
            trade.gain,
        )
    return trades


def _parts(units: int, nodes: Sequence[Node], limits: Sequence[int]) -> Sequence[int]:
    return constant([Constant(_rate(node)) for node in nodes], units, limits).shares


def _matched(give: list[list[int]], take: list[list[int]], gain: float) -> list[Trade]:
    """Pair up givers and takers, each a list of [device, units]."""
    trades: list[Trade] = []
    while give and take:
        units = min(give[0][1], take[0][1])
        if units:
            trades.append(Trade(give[0][0], take[0][0], units, gain))
        give[0][1] -= units
        take[0][1] -= units
        if not give[0][1]:
            give.pop(0)
        if take and not take[0][1]:
            take.pop(0)
    return trades
