"""Which host holds which block: shared out, shipped along flows, and refined.

Sources: Dethier, Marchot, de Marneffe 2008 (phases 2 to 4); Kernighan and Lin 1970.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from hetsched.cluster.flows import Flow
from hetsched.cluster.grid import Grid, Ints
from hetsched.cluster.tree import Tree
from hetsched.errors import UsageError

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
