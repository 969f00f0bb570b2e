"""A spanning tree of hosts, and the quotas that it hands down (Dethier 2008, phases 1 and 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hetsched.cluster.grid import Ints, Powers
from hetsched.errors import UsageError


@dataclass(frozen=True)
class Tree:
    """`parents[n]` is the parent of host n, -1 that of the root."""

    parents: tuple[int, ...]

    @cached_property
    def children(self) -> list[list[int]]:
        children: list[list[int]] = [[] for _ in self.parents]
        for host, parent in enumerate(self.parents):
            if parent >= 0:
                children[parent].append(host)
        return children

    @cached_property
    def preorder(self) -> list[int]:
        """Hosts, parents first and every subtree contiguous."""
        order, waiting = [], [self.parents.index(-1)]
        while waiting:
            host = waiting.pop()
            order.append(host)
            waiting += reversed(self.children[host])
        if len(order) != len(self.parents):
            raise UsageError("the hosts' neighbourhoods aren't connected")
        return order

    def gathered(self, values: Ints) -> Ints:
        """Sum `values` of each host's subtree: one message up per host but the root."""
        sums = np.array(values)
        for host in reversed(self.preorder[1:]):
            sums[self.parents[host]] += sums[host]
        return sums

    @property
    def depth(self) -> int:
        depths = [0] * len(self.parents)
        for host in self.preorder[1:]:
            depths[host] = depths[self.parents[host]] + 1
        return max(depths)


def spanning_tree(neighbours: Sequence[Sequence[int]]) -> tuple[Tree, int]:
    """Let each host announce the lowest host it knows of to its neighbours, until none changes.

    Return the tree (root: the lowest number; parent: the neighbour nearest the root, the lowest
    of several) and the number of messages (Perlman 1985). Raise UsageError unless the
    neighbourhoods are connected.
    """
    known = [(host, 0) for host in range(len(neighbours))]
    changed: Sequence[int] = range(len(neighbours))
    messages = 0
    while changed:
        heard: dict[int, tuple[int, int]] = {}
        for host in changed:
            root, distance = known[host]
            messages += len(neighbours[host])
            for other in neighbours[host]:
                heard[other] = min(heard.get(other, known[other]), (root, distance + 1))
        changed = [host for host, best in heard.items() if best < known[host]]
        for host in changed:
            known[host] = heard[host]
    parents = [
        min((known[n][1], n) for n in neighbours[host])[1] if host else -1
        for host in range(len(neighbours))
    ]
    tree = Tree(tuple(parents))
    _ = tree.preorder  # raises if not connected
    return tree, messages


def rack_tree(racks: Sequence[int], arity: int = 8) -> Tree:
    """A tree whose subtrees are racks, given their numbers of hosts: few blocks leave a rack.

    The first host of each rack is the parent of its others, and `arity` racks are below another.
    """
    heads = np.concatenate([[0], np.cumsum(racks)[:-1]]).tolist()
    parents: list[int] = []
    for rack, (head, hosts) in enumerate(zip(heads, racks, strict=True)):
        parents += [heads[(rack - 1) // arity] if rack else -1, *[head] * (hosts - 1)]
    return Tree(tuple(parents))


def quotas(tree: Tree, total: int, powers: Powers) -> Ints:
    """Split `total` blocks by `powers`, so that every subtree's quota is within 1 of its due.

    The running sum in preorder is rounded: each host needs its own prefix alone.
    """
    order = np.array(tree.preorder)
    running = np.cumsum(np.asarray(powers, np.float64)[order])
    if not (np.isfinite(running[-1]) and running[-1] > 0 and min(powers) >= 0):
        raise UsageError("powers must be finite, none below 0, and one above")
    ends = np.floor(running * (total / running[-1]) + 0.5).astype(np.int64)
    ends[-1] = total
    shares: Ints = np.empty_like(ends)
    shares[order] = np.diff(ends, prepend=0)
    return shares
