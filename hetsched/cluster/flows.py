"""How many blocks go from which host to which, so that each gets its quota."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from hetsched.cluster.grid import Ints, Powers
from hetsched.cluster.tree import Tree
from hetsched.errors import UsageError


class Flow(NamedTuple):
    sender: int
    receiver: int
    blocks: int


def tree_flows(tree: Tree, held: Ints, quota: Ints) -> list[Flow]:
    """Flows along the edges of the tree, so ordered that each host has received before it sends.

    On a tree they are unique, so no others along it move fewer blocks; at most one for each host
    but the root (Dethier 2008, phase 3).
    """
    surplus = tree.gathered(held) - tree.gathered(quota)
    up = [
        Flow(host, tree.parents[host], int(surplus[host]))
        for host in reversed(tree.preorder[1:])
        if surplus[host] > 0
    ]
    down = [
        Flow(tree.parents[host], host, -int(surplus[host]))
        for host in tree.preorder[1:]
        if surplus[host] < 0
    ]
    return up + down


def cheapest_flows(pairs: Ints, held: Ints, quota: Ints) -> list[Flow]:
    """Flows between `pairs` of hosts, one a row, that move the fewest blocks; ordered alike.

    Give the pairs whose blocks touch, and each block moves to a part beside its own. Raise
    UsageError if the pairs don't connect a host with too many to one with too few.
    """
    hosts = len(held)
    if not len(pairs):
        raise UsageError("no blocks of two hosts touch")
    from scipy import sparse  # hosts and clients, most of which never get here, start sooner
    from scipy.optimize import linprog

    both = np.concatenate([pairs, pairs[:, ::-1]])
    edges = np.arange(len(both))
    balance = sparse.csr_array(
        (
            np.repeat([1.0, -1.0], len(both)),
            (np.concatenate([both[:, 0], both[:, 1]]), np.concatenate([edges, edges])),
        ),
        shape=(hosts, len(both)),
    )
    found = linprog(np.ones(len(both)), A_eq=balance, b_eq=held - quota, method="highs")
    if found.x is None:
        raise UsageError("no flow of blocks between these hosts gives each its quota")
    blocks = np.rint(found.x).astype(np.int64)  # a network's vertices are whole numbers
    flows = [Flow(int(s), int(r), int(n)) for (s, r), n in zip(both, blocks, strict=True) if n]
    return _ordered(flows, hosts)


def _ordered(flows: Iterable[Flow], hosts: int) -> list[Flow]:
    """Order flows so that each host has received before it sends; flows in a circle cancel."""
    sends: list[dict[int, int]] = [{} for _ in range(hosts)]
    awaited = [0] * hosts
    for sender, receiver, blocks in flows:
        sends[sender][receiver] = blocks
        awaited[receiver] += 1
    order: list[Flow] = []
    ready = [host for host in range(hosts) if not awaited[host]]
    waiting = set(range(hosts)).difference(ready)
    while waiting or ready:
        while ready:
            host = ready.pop()
            for receiver, blocks in sends[host].items():
                order.append(Flow(host, receiver, blocks))
                awaited[receiver] -= 1
                if not awaited[receiver]:
                    waiting.remove(receiver)
                    ready.append(receiver)
        if waiting:
            for _, receiver in _cancel_circle(sends, waiting):
                awaited[receiver] -= 1
                if not awaited[receiver]:
                    waiting.remove(receiver)
                    ready.append(receiver)
    return order


def _cancel_circle(sends: list[dict[int, int]], waiting: set[int]) -> list[tuple[int, int]]:
    """Subtract the smallest flow of a circle among `waiting` from each; return those that end."""
    senders = {r: host for host in waiting for r in sends[host] if r in waiting}
    host, path = next(iter(senders)), dict[int, None]()
    while host not in path:
        path[host] = None
        host = senders[host]
    walk = list(path)
    circle = walk[walk.index(host) :]  # each one's sender follows it
    pairs = [(senders[r], r) for r in circle]
    least = min(sends[s][r] for s, r in pairs)
    for s, r in pairs:
        sends[s][r] -= least
    ended = [(s, r) for s, r in pairs if not sends[s][r]]
    for s, r in ended:
        del sends[s][r]
    return ended


RADIUS = 0.99
"""How much a round of plain diffusion leaves of the longest wave; more for larger graphs."""
SETTLING = 6
"""Rounds at the end in which whole blocks move between two hosts each."""


def diffuse(pairs: Ints, held: Ints, powers: Powers, rounds: int = 30) -> list[Flow]:
    """Flows by which hosts even out their times, `rounds` messages to each neighbour.

    No host knows more than its neighbours' numbers of blocks and powers. At first each pair moves
    a fraction of its difference, and carries on what it moved in the round before (second-order
    diffusion, Chebyshev's weights), so that a difference travels a host a round instead of its
    square root. In the last rounds each host that would gain proposes its neighbour the blocks
    that even the two out; each takes part in one move a round.
    """
    hosts, power = len(held), np.asarray(powers, np.float64)
    a, b = pairs.T
    degree = np.bincount(pairs.ravel(), minlength=hosts)
    reach = np.minimum(power[a] / (degree[a] + 1), power[b] / (degree[b] + 1))
    settling = min(SETTLING, rounds)
    carried, moved, weight = np.zeros(len(pairs)), np.zeros(len(pairs)), 1.0
    blocks = held.astype(np.float64)
    for turn in range(rounds - settling):
        time = blocks / power
        if turn:
            weight = 1 / (1 - RADIUS**2 * weight / (2 if turn == 1 else 4))
        carried = (weight - 1) * carried + weight * reach * (time[a] - time[b])
        blocks += np.bincount(b, carried, hosts) - np.bincount(a, carried, hosts)
        moved += carried
    whole = np.rint(moved).astype(np.int64)
    own = held.copy()
    np.add.at(own, b, whole)
    np.subtract.at(own, a, whole)
    edge = {(int(s), int(r)): i for i, (s, r) in enumerate(pairs)}
    near: list[list[int]] = [[] for _ in range(hosts)]
    for s, r in edge:
        near[s].append(r)
        near[r].append(s)
    for _ in range(settling):
        offers: dict[int, int] = {}
        for host in range(hosts):
            if near[host] and own[host] > 0:
                to = min(near[host], key=lambda other: (own[other] + 1) / power[other])
                best = offers.get(to)
                if (own[to] + 1) / power[to] < own[host] / power[host] and (
                    best is None or own[best] / power[best] < own[host] / power[host]
                ):
                    offers[to] = host
        busy: set[int] = set()
        for to, host in offers.items():
            if busy.isdisjoint((to, host)):
                busy |= {to, host}
                even = (own[host] * power[to] - own[to] * power[host]) / (power[host] + power[to])
                count = min(int(even + 0.5), int(own[host]))
                own[host] -= count
                own[to] += count
                if (host, to) in edge:
                    whole[edge[host, to]] += count
                else:
                    whole[edge[to, host]] -= count
    flows = [
        Flow(int(s), int(r), int(n)) if n > 0 else Flow(int(r), int(s), -int(n))
        for (s, r), n in zip(pairs, whole, strict=True)
        if n
    ]
    return _ordered(flows, hosts)
