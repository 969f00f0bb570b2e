"""NEC's balancer on many devices: group by group, or between neighbours (US 9,038,088).

Disjoint groups are balanced inside first, then among each other, each as one device. Groups that
overlap are neighbourhoods: in each, the two devices that wait least and most trade, and load
spreads from one to the next.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hetsched.errors import UsageError
from hetsched.models import Constant
from hetsched.partition.balancing.imbalance import Node, Trade, trades
from hetsched.partition.constant import constant

Groups = tuple[tuple[int, ...], ...]
"""Indices of devices."""


def grouped(groups: Sequence[Any] | None, devices: int) -> Groups:
    """`groups` as tuples of indices; one group of all if there are none.

    Parameters
    ----------
    groups : sequence of sequences of int, or sequence of labels, or None
        Members of each group; or each device's group.

    Raises
    ------
    UsageError
        A device is in no group or isn't there; a group is empty; not one label a device.
    """
    if groups is None:
        return (tuple(range(devices)),)
    if isinstance(groups, str) or not hasattr(groups, "__len__"):
        raise UsageError(f"groups: {groups!r}, it must be a sequence of groups, or of labels")
    if any(isinstance(group, Iterable) and not isinstance(group, str) for group in groups):
        found = [_members(group, devices) for group in groups]
    elif len(groups) == devices:
        labels = dict.fromkeys(groups)
        found = [tuple(i for i, one in enumerate(groups) if one == label) for label in labels]
    else:
        raise UsageError(f"groups: {len(groups)} labels for {devices} devices; give one each")
    missing = set(range(devices)).difference(*found)
    if missing:
        raise UsageError(f"groups: device {min(missing)} is in none; each must be in one")
    return tuple(found)


def _members(group: Any, devices: int) -> tuple[int, ...]:
    try:
        members = tuple(dict.fromkeys(operator.index(i) for i in group))
    except TypeError:
        raise UsageError(f"groups: {group!r} must be a sequence of device indices") from None
    if not members:
        raise UsageError("groups: a group is empty; it must have a member")
    for i in members:
        if not 0 <= i < devices:
            raise UsageError(f"groups: there is no device {i}; indices are 0 to {devices - 1}")
    return members


def overlapping(groups: Groups) -> bool:
    """Whether these are neighbourhoods."""
    return sum(map(len, groups)) > len(set().union(*groups))


def joined(groups: Groups, device: int) -> Groups:
    """With a newcomer: a group of its own, or a neighbourhood with the device before it."""
    return (*groups, (device - 1, device) if overlapping(groups) and device else (device,))


def repartition(
    nodes: Mapping[int, Node], total: float, tolerance: float, pairs: int, groups: Groups
) -> list[Trade]:
    """The trades of one iteration, between devices.

    Parameters
    ----------
    nodes : mapping of device to Node
        Those that take part.
    total : float, seconds
        Of the last iteration.
    tolerance : float
        A group with this imbalance factor at most is balanced.
    pairs : int
        Trades in a group, and between groups.
    """
    present = [tuple(i for i in group if i in nodes) for group in groups]
    present = [group for group in present if group]
    if len(present) == 1:
        return _inside(nodes, total, pairs, present[0])
    if overlapping(groups):
        return _between_neighbours(nodes, total, present)
    return _by_levels(nodes, total, tolerance, pairs, present)


def _factor(nodes: Sequence[Node], total: float) -> float:
    waits = [node.wait for node in nodes]
    return (max(waits) - min(waits)) / total


def _inside(
    nodes: Mapping[int, Node], total: float, pairs: int, group: Sequence[int]
) -> list[Trade]:
    found = trades([nodes[i] for i in group], total, pairs)
    return [Trade(group[t.giver], group[t.taker], t.units, t.gain) for t in found]


def _between_neighbours(
    nodes: Mapping[int, Node], total: float, groups: Sequence[Sequence[int]]
) -> list[Trade]:
    """One trade a neighbourhood, the least balanced first; nobody takes part in two."""
    found: list[Trade] = []
    taken: set[int] = set()
    order = sorted(groups, key=lambda group: -_factor([nodes[i] for i in group], total))
    for group in order:
        free = [i for i in group if i not in taken]
        for trade in _inside(nodes, total, 1, free) if len(free) > 1 else []:
            found.append(trade)
            taken |= {trade.giver, trade.taker}
    return found


def _by_levels(
    nodes: Mapping[int, Node],
    total: float,
    tolerance: float,
    pairs: int,
    groups: Sequence[Sequence[int]],
) -> list[Trade]:
    inner = [_factor([nodes[i] for i in group], total) for group in groups]
    found = [
        trade
        for group, factor in zip(groups, inner, strict=True)
        if factor > tolerance
        for trade in _inside(nodes, total, pairs, group)
    ]
    if found:
        return found
    whole = [_as_one([nodes[i] for i in group]) for group in groups]
    worst = max(range(len(groups)), key=inner.__getitem__)
    # Small differences inside and between groups may add up to more than is tolerated.
    if _factor(whole, total) >= inner[worst]:
        found = _between_groups(nodes, whole, total, pairs, groups)
    return found or _inside(nodes, total, pairs, groups[worst])


def _as_one(members: Sequence[Node]) -> Node:
    """A group as one device: it is done when its last member is, and they share what comes."""
    last = min(members, key=lambda node: node.wait)
    part = _rate(last) / sum(_rate(node) for node in members)
    return Node(
        wait=last.wait,
        times=last.times,
        slopes=tuple(slope * part for slope in last.slopes),
        spare=sum(node.spare for node in members),
        room=sum(node.room for node in members),
    )


def _rate(node: Node) -> float:
    """Units that a second more holds; bounded for a device whose time doesn't depend on units."""
    return 1 / max(sum(node.slopes), 1e-12 * sum(node.times), 1e-300)


def _between_groups(
    nodes: Mapping[int, Node],
    whole: Sequence[Node],
    total: float,
    pairs: int,
    groups: Sequence[Sequence[int]],
) -> list[Trade]:
    """Trades of groups, told as trades of their members: given and taken by their rates."""
    found: list[Trade] = []
    for trade in trades(whole, total, pairs):
        givers, takers = groups[trade.giver], groups[trade.taker]
        give = _parts(trade.units, [nodes[i] for i in givers], [nodes[i].spare for i in givers])
        take = _parts(trade.units, [nodes[i] for i in takers], [nodes[i].room for i in takers])
        found += _matched(
            [[i, part] for i, part in zip(givers, give, strict=True)],
            [[i, part] for i, part in zip(takers, take, strict=True)],
            trade.gain,
        )
    return found


def _parts(units: int, nodes: Sequence[Node], limits: Sequence[int]) -> Sequence[int]:
    return constant([Constant(_rate(node)) for node in nodes], units, limits).shares


def _matched(give: list[list[int]], take: list[list[int]], gain: float) -> list[Trade]:
    """Trades by which everybody gives and takes these [device, units]."""
    found: list[Trade] = []
    while give and take:
        units = min(give[0][1], take[0][1])
        if units:
            found.append(Trade(give[0][0], take[0][0], units, gain))
        give[0][1] -= units
        take[0][1] -= units
        if not give[0][1]:
            give.pop(0)
        if take and not take[0][1]:
            take.pop(0)
    return found
