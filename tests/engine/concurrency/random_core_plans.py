"""Random plans for cores: own chunks of random sizes, two kernels, tails within a process."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence

from hetsched.device import Chunk, TailPart
from hetsched.planner.records import Assignment, JobPlan
from hetsched.plans.device_plan import DevicePlan

VARIANTS = ("numpy", "numpy", "numpy", "numpy", "broken")
RIVALS = ("numpy", "talkative")
"""One of these takes the place of a variant that fails."""


class RandomPlans:
    """Plans for any of the cores of `processes`."""

    def __init__(self, luck: random.Random, processes: Mapping[str, Sequence[str]]) -> None:
        self._random = luck
        self._processes = processes

    def plan(self, load: int, names: Sequence[str]) -> JobPlan:
        """Return a plan for some of the cores `names`."""
        count = self._random.randint(1, min(len(names), load))
        cores = self._random.sample(list(names), count)
        cuts = sorted(self._random.sample(range(1, load), count - 1))
        shares = [b - a for a, b in itertools.pairwise([0, *cuts, load])]
        pooled = self._pooled(dict(zip(cores, shares, strict=True)))
        tails = self._tails(load, pooled)
        ids, first = itertools.count(), 0
        assignments = []
        for core, share in zip(cores, shares, strict=True):
            chunks = []
            for units in self._cut(share - pooled[core]):
                kernel = self._random.randint(0, 1)
                chunks.append(Chunk(next(ids), first, units, kernel=kernel))
                first += units
            assignments.append(self._assignment(core, chunks, tails.get(core), pooled[core]))
        return JobPlan(tuple(assignments), 1.0)

    def _assignment(
        self, core: str, chunks: Sequence[Chunk], tail: TailPart | None, pooled: int
    ) -> Assignment:
        own = [chunk.count for chunk in chunks]
        return Assignment(
            device=core,
            variant=self._random.choice(VARIANTS),
            plan=DevicePlan(((sum(own) + pooled,),)),
            chunks=tuple(chunks),
            max_chunk=max(*own, tail.largest_take if tail else 1, 1),
            slots=1,
            slot_memory=0,
            window=self._random.randint(1, 3),
            predicted_seconds=1.0,
            tail=tail,
            pooled=pooled,
            rivals=(self._random.choice(RIVALS),),
        )

    def _pooled(self, shares: Mapping[str, int]) -> dict[str, int]:
        pooled = dict.fromkeys(shares, 0)
        for cores in self._processes.values():
            members = [core for core in cores if core in shares]
            if len(members) > 1 and self._random.random() < 0.8:
                pooled.update((core, self._random.randrange(shares[core])) for core in members)
        return pooled

    def _tails(self, end: int, pooled: Mapping[str, int]) -> dict[str, TailPart]:
        tails: dict[str, TailPart] = {}
        for cores in self._processes.values():
            members = [core for core in cores if core in pooled]
            units = sum(pooled[core] for core in members)
            end -= units
            for core in members if units else ():
                least = self._random.randint(1, 3)
                most = least + self._random.randint(0, 5)
                tails[core] = TailPart(end, units, 1 / len(members), least, most)
        return tails

    def _cut(self, units: int) -> list[int]:
        sizes = []
        while units:
            sizes.append(self._random.randint(1, units))
            units -= sizes[-1]
        return sizes
