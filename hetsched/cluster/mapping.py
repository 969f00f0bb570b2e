"""The blocks of a grid, and which host holds which: shared out, moved along flows, and refined.

Sources: Dethier, Marchot, de Marneffe 2008 (phases 1 to 4); Kernighan and Lin 1970.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.errors import UsageError

Ints: TypeAlias = npt.NDArray[np.int64]
Powers: TypeAlias = Sequence[float] | npt.NDArray[np.float64]
"""Of each host, in any unit: how much faster it computes a block than others."""


class Grid:
    """Blocks at the points of a grid of `shape`, numbered in C order.

    With `corners`, blocks that touch at a corner are neighbours, too (8 in two dimensions, 26 in
    three); with `periodic`, opposite edges are neighbours. `neighbours[i]` has the neighbours of
    block i, `len(grid)` where there is none.
    """

    def __init__(
        self, shape: Sequence[int], *, corners: bool = False, periodic: bool = False
    ) -> None:
        self.shape = tuple(shape)
        if not self.shape or min(self.shape) < 3:
            raise UsageError(f"a grid of {'x'.join(map(str, shape))}: each axis needs 3 blocks")
        self.coordinates: Ints = np.indices(self.shape).reshape(len(self.shape), -1).T
        steps = [
            step
            for step in itertools.product((-1, 0, 1), repeat=len(self.shape))
            if sum(map(abs, step)) == 1 or (corners and any(step))
        ]
        self.neighbours: Ints = np.empty((len(self), len(steps)), np.int64)
        for k, step in enumerate(steps):
            there = self.coordinates + step
            inside = ((there >= 0) & (there < self.shape)).all(axis=1)
            index = np.ravel_multi_index(tuple(there.T), self.shape, mode="wrap")
            self.neighbours[:, k] = index if periodic else np.where(inside, index, len(self))

    def __len__(self) -> int:
        return math.prod(self.shape)

    @property
    def edges(self) -> int:
        return int((self.neighbours < len(self)).sum()) // 2


# ---- a spanning tree of hosts, and the quotas that it hands down


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


# ---- how many blocks go from which host to which


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
    flows = [
        Flow(host, tree.parents[host], int(surplus[host]))
        if surplus[host] > 0
        else Flow(tree.parents[host], host, -int(surplus[host]))
        for host in tree.preorder[1:]
        if surplus[host]
    ]
    return _ordered(flows)


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
    return _ordered(flows)


def _ordered(flows: Iterable[Flow]) -> list[Flow]:
    """Order flows so that each host has received before it sends; flows in a circle cancel."""
    blocks = {(sender, receiver): count for sender, receiver, count in flows}
    while True:
        senders = TopologicalSorter[int]()
        for sender, receiver in blocks:
            senders.add(receiver, sender)
        try:
            turn = {host: number for number, host in enumerate(senders.static_order())}
        except CycleError as error:
            circle = list(itertools.pairwise(error.args[1]))
            least = min(blocks[pair] for pair in circle)
            for pair in circle:
                blocks[pair] -= least
            blocks = {pair: count for pair, count in blocks.items() if count}
        else:
            pairs = sorted(blocks, key=lambda pair: turn[pair[0]])
            return [Flow(*pair, blocks[pair]) for pair in pairs]


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
    return _ordered(flows)


# ---- which blocks

PASSES = 3
"""Of refinement over a pair of parts; hardly any pair gains in a third."""
NONE = -(1 << 24)
"""Gain of a block that can't be chosen."""
PATIENCE = 4
"""Swaps without a new best after which a pair stops."""


class Mapping:
    """`owner[i]` is the host of block i of `grid`."""

    def __init__(self, grid: Grid, owner: Ints, hosts: int) -> None:
        if owner.shape != (len(grid),) or owner.min() < 0 or owner.max() >= hosts:
            raise UsageError(f"owners must be {len(grid)} numbers of hosts, 0 to {hosts - 1}")
        self.grid, self.hosts = grid, hosts
        # One more for the neighbour that blocks at the edge lack.
        self._owner = np.append(owner.astype(np.int64), -1)

    @classmethod
    def shared_out(cls, grid: Grid, tree: Tree, quota: Ints) -> Mapping:
        """Give each subtree of hosts a compact piece of the grid, and each host its quota.

        A host cuts what it got along its longest side, keeps its own part, and hands each child
        its subtree's: one message per host but the root.
        """
        subtree = tree.gathered(quota)
        owner = np.empty(len(grid), np.int64)
        pieces: list[tuple[list[int], Ints]] = [([-1 - tree.preorder[0]], np.arange(len(grid)))]
        while pieces:
            hosts, blocks = pieces.pop()
            if len(hosts) == 1:
                (host,) = hosts
                if host >= 0:
                    owner[blocks] = host
                    continue
                host = -1 - host  # with its subtree
                hosts = [host, *(-1 - child for child in tree.children[host])]
                if len(hosts) == 1:
                    owner[blocks] = host
                    continue
            sizes = {h: int(quota[h] if h >= 0 else subtree[-1 - h]) for h in hosts}
            halves: tuple[list[int], list[int]] = ([], [])
            counts = [0, 0]
            for h in sorted(hosts, key=sizes.__getitem__, reverse=True):
                side = int((counts[1], len(halves[1])) < (counts[0], len(halves[0])))
                halves[side].append(h)
                counts[side] += sizes[h]
            pieces += zip(halves, cls._halves(grid, blocks, counts[0]), strict=True)
        return cls(grid, owner, len(quota))

    @staticmethod
    def _halves(grid: Grid, blocks: Ints, count: int) -> tuple[Ints, Ints]:
        """Cut `blocks` across their longest side, `count` on one side, the last row in order."""
        if not 0 < count < len(blocks):
            return blocks[:count], blocks[count:]
        places = grid.coordinates[blocks]
        axis = int(np.ptp(places, axis=0).argmax())
        order = np.argpartition(places[:, axis] * len(grid) + blocks, count)
        return blocks[order[:count]], blocks[order[count:]]

    @property
    def owner(self) -> Ints:
        return self._owner[:-1]

    @property
    def held(self) -> Ints:
        return np.bincount(self.owner, minlength=self.hosts)

    @property
    def cut(self) -> int:
        """Number of pairs of neighbouring blocks on two hosts."""
        there = self._owner[self.grid.neighbours]
        return int(((there != self.owner[:, None]) & (there >= 0)).sum()) // 2

    @property
    def pairs(self) -> Ints:
        """Pairs of hosts with neighbouring blocks, the lower number first, one a row."""
        there = self._owner[self.grid.neighbours]
        here = np.broadcast_to(self.owner[:, None], there.shape)
        code = here[here < there] * self.hosts + there[here < there]
        return np.stack(np.divmod(np.unique(code), self.hosts), axis=1)

    def ship(self, flows: Iterable[Flow]) -> None:
        """Hand blocks over, flow by flow: those beside the receiver's, then those beside these.

        Raises UsageError if a host is to send more than it has by then.
        """
        blocks = np.split(np.argsort(self.owner, kind="stable"), np.cumsum(self.held)[:-1])
        for sender, receiver, count in flows:
            own = blocks[sender]
            if count > len(own):
                raise UsageError(f"host {sender} has {len(own)} blocks and can't send {count}")
            gone = self._hand_over(own, sender, receiver, count)
            self._owner[gone] = receiver
            blocks[sender] = own[self._owner[own] == sender]
            blocks[receiver] = np.append(blocks[receiver], gone)

    def _hand_over(self, own: Ints, sender: int, receiver: int, count: int) -> list[int]:
        """Choose, one by one, the block that parts the fewest neighbours or unites the most."""
        near = self.grid.neighbours[own]
        there = self._owner[near]
        touching = (there == receiver).sum(axis=1)
        gains = touching - (there == sender).sum(axis=1)
        gain = dict(zip(own.tolist(), gains.tolist(), strict=True))
        rows = dict(zip(gain, near.tolist(), strict=True))
        best = [(-gain[block], block) for block in own[touching > 0].tolist()]
        heapify(best)
        chosen: list[int] = []
        while len(chosen) < count:
            if not best:  # none touches the receiver's: a new island, from a corner
                block = max(gain, key=gain.__getitem__)
                best.append((-gain[block], block))
            negative, block = heappop(best)
            if gain.get(block) != -negative:
                continue  # chosen by now, or gains more
            del gain[block]
            chosen.append(block)
            for other in rows[block]:
                if other in gain:
                    gain[other] += 2
                    heappush(best, (-gain[other], other))
        return chosen

    def refine(self, home: Ints | None = None) -> None:
        """Exchange blocks so that fewer neighbours are parted: each pair of hosts once.

        Pairs without a common host work at the same time. No host's number of blocks changes, and
        the cut never grows. A block that leaves its `home` (owners before a rebalance) must save
        at least half an edge more than one that doesn't.
        """
        home = self._owner if home is None else np.append(home, -1)
        parted = self._owner[self.grid.neighbours] != self.owner[:, None]
        border = np.flatnonzero(parted.any(axis=1))
        for matching in _matchings(self.pairs, self.hosts):
            gaining = matching
            for _ in range(PASSES):
                gaining = gaining[self._exchange(gaining, border, home)]

    def _exchange(self, pairs: Ints, border: Ints, home: Ints) -> npt.NDArray[np.bool_]:
        """Swap blocks at the border of each pair of hosts; return which pairs gained.

        A swap is the best block of the one side, then the best of the other; each moves once.
        Of a pair's swaps the first ones stay, up to the largest gain in all.
        """
        neighbours = self.grid.neighbours
        pair_of = np.full(self.hosts, -1)
        partner = np.full(self.hosts, -2)
        pair_of[pairs.T] = np.arange(len(pairs))
        partner[pairs] = pairs[:, ::-1]
        border = border[pair_of[self.owner[border]] >= 0]
        there = self._owner[neighbours[border]]
        touching = (there == partner[self.owner[border]][:, None]).sum(axis=1)
        border, there, touching = border[touching > 0], there[touching > 0], touching[touching > 0]
        owner = self.owner[border]
        # In half edges, for any block that is moved.
        gain = 2 * (touching - (there == owner[:, None]).sum(axis=1)) - (home[border] == owner)
        # A group for each side of each pair, sorted, each with a last one that is never chosen.
        group = 2 * pair_of[owner] + (owner == pairs[pair_of[owner], 1])
        groups = np.arange(2 * len(pairs))
        group = np.append(group, groups)
        order = np.argsort(group, kind="stable")
        group, size = group[order], len(order)
        border = np.append(border, np.full_like(groups, len(self.grid)))[order]
        # The gain, and which comes first of those that gain as much.
        score = np.append(gain, np.full_like(groups, NONE))[order] * size - np.arange(size)
        starts = np.searchsorted(group, groups)
        place = np.full(len(self.grid) + 1, -1)
        place[border] = np.arange(size)
        place[-1] = -1
        total = np.zeros(len(pairs), np.int64)
        best, best_turn = total.copy(), total.copy()
        swaps: list[tuple[Ints, list[Ints]]] = []
        active = np.arange(len(pairs))
        while len(active):
            moved: list[Ints] = []
            for side in (0, 1):
                top = np.maximum.reduceat(score, starts)[2 * active + side]
                left = top > NONE
                active, top, moved = active[left], top[left], [blocks[left] for blocks in moved]
                chosen = -top % size
                total[active] += (top + chosen) // size
                score[chosen] = NONE * size
                near = place[neighbours[border[chosen]]]
                side_of = np.where(near < 0, -1, group[near] - 2 * active[:, None])
                change = np.where(side_of == side, 4, -4) * size
                inside = (side_of == 0) | (side_of == 1)
                score[near[inside]] += change[inside]
                moved.append(border[chosen])
            swaps.append((active, moved))
            better = active[total[active] > best[active]]
            best[better], best_turn[better] = total[better], len(swaps)
            active = active[len(swaps) - best_turn[active] < PATIENCE]
        for turn, (rows, (first, second)) in enumerate(swaps, 1):
            stay = turn <= best_turn[rows]
            self._owner[first[stay]] = pairs[rows[stay], 1]
            self._owner[second[stay]] = pairs[rows[stay], 0]
        return best > 0


def _matchings(pairs: Ints, hosts: int) -> list[Ints]:
    """Sort pairs into rounds in which no host is in two (a greedy colouring of the edges)."""
    used = [0] * hosts
    rounds: list[list[int]] = []
    for row, (a, b) in enumerate(pairs.tolist()):
        taken = used[a] | used[b]
        colour = (~taken & (taken + 1)).bit_length() - 1
        used[a] |= 1 << colour
        used[b] |= 1 << colour
        if colour == len(rounds):
            rounds.append([])
        rounds[colour].append(row)
    return [pairs[rows] for rows in rounds]
