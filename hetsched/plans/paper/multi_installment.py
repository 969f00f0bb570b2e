"""Multi-installment processing with multi-distributions: the plan of Ilic & Sousa, section 3.

Steps 1 to 3 (what overlaps within one sub-distribution) are in `bases`; here they are repeated for
what remains (step 4), the rest goes chunk by chunk (step 5), and the fastest wins (step 6).
Sub-distributions don't depend on each other, so that the best plan for what remains is computed
once. With two copy engines the conditions are those of the paper's figure 1(b). Where a pipeline
is bound by its copies they can't be met; if factoring by two is faster, that is the plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.plans.device_plan import DevicePlan, Overlap
from hetsched.plans.memory_fit import largest_sub_distribution
from hetsched.plans.paper.factoring import factoring
from hetsched.plans.paper.sub_distributions import Bases, Part
from hetsched.plans.phase_costs import Costs, costs_of
from hetsched.plans.timeline import timeline
from hetsched.plans.validation import request

TRUST = 2.0
"""Times the largest measured chunk that a chunk may have: beyond, a partial model only guesses."""
CHOICES = 12
"""Sub-distributions of different sums, the fastest, that a plan may go on with."""
FAR = 4
"""Times the room from which on the fastest sub-distribution is repeated without asking further."""
ROOMS = 24
"""Different remaining loads for which sub-distributions are looked for; others make do with what
was found for a smaller one."""

Chunks = tuple[int, ...]
Option = tuple[Chunks, int, float]
"""A sub-distribution: chunks, their sum, seconds."""


@dataclass(frozen=True)
class Installments:
    """A plan, its seconds by the timeline, and why it isn't that of the steps (None: it is)."""

    plan: DevicePlan
    seconds: float
    fallback: str | None = None


def multi_installment(
    share: int, model: DeviceModel, memory: MemoryDemand, *, overlap: Overlap
) -> DevicePlan:
    """The paper's plan for one device, or factoring by two where that is faster.

    Parameters
    ----------
    share : int, units
    model : DeviceModel
        Of compute, copy in and copy out.
    memory : MemoryDemand
    overlap : Overlap

    Returns
    -------
    DevicePlan
        Sub-distributions that fit, one after the other.

    Raises
    ------
    DataError
        Not even one unit fits.
    UsageError
        The share is negative or no whole number; a parameter isn't of its kind; the model says a
        time that is negative or no number.
    """
    return installments(share, model, memory, overlap=overlap).plan


def installments(
    share: int, model: DeviceModel, memory: MemoryDemand, *, overlap: Overlap
) -> Installments:
    """`multi_installment`, its cost, and whether it fell back.

    Parameters, errors: as for `multi_installment`.
    """
    share = request(share, model, memory, overlap)
    if share == 0:
        return Installments(DevicePlan(()), 0.0)
    plan = paper_steps(share, model, memory, overlap=overlap)
    seconds = timeline(plan, model, overlap).makespan
    halved = factoring(share, memory)
    halved_seconds = timeline(halved, model, overlap).makespan
    if halved_seconds >= seconds:
        return Installments(plan, seconds)
    why = f"factoring by two takes {halved_seconds:.6g} s, the steps' plan {seconds:.6g} s"
    return Installments(halved, halved_seconds, why)


def paper_steps(
    share: int, model: DeviceModel, memory: MemoryDemand, *, overlap: Overlap
) -> DevicePlan:
    """Steps 1 to 6 alone, for comparison. Parameters, errors: as for `multi_installment`."""
    costs = costs_of(model, memory.most(share))
    room = largest_sub_distribution(share, memory)
    if overlap is Overlap.NONE:
        return DevicePlan(_one_by_one(share, costs.largest, memory))
    trusted = min(costs.largest, _trusted(model))
    few = costs.up_to(trusted)
    return DevicePlan(_Remaining(costs, memory, Bases(few, overlap, room), room).plan(share))


def _trusted(model: DeviceModel) -> int:
    """Units of the largest chunk that measured sizes speak for; no limit where none are known."""
    points = getattr(model.compute, "points", None)
    if points is None or not len(points):
        return 1 << 62
    return max(1, round(TRUST * float(max(point[0] for point in points))))


def _one_by_one(share: int, largest: int, memory: MemoryDemand) -> tuple[Chunks, ...]:
    whole, rest = divmod(share, largest)
    singles = [largest] * whole
    while rest:  # more than once only where bytes don't grow with size
        singles.append(memory.most(rest))
        rest -= singles[-1]
    return tuple((size,) for size in singles)


class _Remaining:
    """Steps 4 to 6: the best plan for each remaining load that is met, remembered."""

    def __init__(self, costs: Costs, memory: MemoryDemand, bases: Bases, room: int) -> None:
        self._costs = costs
        self._memory = memory
        self._bases = bases
        self._room = room
        self._choices: dict[int, list[Part]] = {}

    def plan(self, share: int) -> tuple[Chunks, ...]:
        repeated: tuple[Chunks, ...] = ()
        fastest = max(self._for(self._room), key=lambda part: part.speed, default=None)
        far = share - FAR * self._room
        if fastest is not None and far > 0:
            times = -(-far // fastest.units)
            repeated = (fastest.chunks,) * times
            share -= times * fastest.units
        return repeated + self._best(share)

    def _best(self, share: int) -> tuple[Chunks, ...]:
        """The plan of least time; smaller remaining loads first, so that nothing recurses."""
        found: dict[int, tuple[float, Chunks]] = {0: (0.0, ())}
        met = self._reachable(share)
        for remaining in sorted(met):
            best: tuple[float, Chunks] = (float("inf"), ())
            for chunks, units, seconds in met[remaining]:
                total = seconds + found[remaining - units][0]
                if total < best[0]:
                    best = (total, chunks)
            found[remaining] = best
        parts = []
        while share:
            parts.append(found[share][1])
            share -= sum(parts[-1])
        return tuple(parts)

    def _reachable(self, share: int) -> dict[int, list[Option]]:
        """Remaining loads that may be met, and what may come first of each."""
        met: dict[int, list[Option]] = {share: []}
        waiting = [share]
        while waiting:
            remaining = waiting.pop()
            met[remaining] = self._options(remaining)
            for _, units, _ in met[remaining]:
                rest = remaining - units
                if rest and rest not in met:
                    met[rest] = []
                    waiting.append(rest)
        return met

    def _options(self, remaining: int) -> list[Option]:
        """What may come first of `remaining` units."""
        options = [(part.chunks, part.units, part.seconds) for part in self._for(remaining)]
        single = self._costs.largest
        if remaining < single:
            single = self._memory.most(remaining)
        seconds = sum(float(phase[single]) for phase in self._costs.phases)
        return [*options, ((single,), single, seconds)]

    def _for(self, remaining: int) -> list[Part]:
        """The fastest sub-distributions of at most so many units, one for each sum."""
        room = min(remaining, self._room)
        if room not in self._choices and len(self._choices) >= ROOMS:
            room = max((known for known in self._choices if known <= room), default=0)
        if room and room not in self._choices:
            least: dict[int, Part] = {}
            for part in self._bases.within(room):
                known = least.get(part.units)
                better = known is None or part.seconds < known.seconds
                if better and self._memory.fits(part.chunks):
                    least[part.units] = part
            fastest = sorted(least.values(), key=lambda part: -part.speed)[:CHOICES]
            if room in least and least[room] not in fastest:
                fastest.append(least[room])
            self._choices[room] = fastest
        return self._choices.get(room, [])
