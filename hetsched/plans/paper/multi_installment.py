"""Multi-installment processing with multi-distributions: the plan of Ilic & Sousa, section 3.

Steps 1 to 3 (overlap within one sub-distribution) are in `sub_distributions`; here they are
repeated for the remaining load (step 4), the rest runs chunk by chunk (step 5), and the fastest
plan is chosen (step 6). Sub-distributions are independent, so the best plan for a remaining load
is computed once. With two copy engines the conditions are those of the paper's figure 1(b). A
pipeline bound by its copies can't meet them; factoring by two is used if it is faster.
"""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.plans.device_plan import DevicePlan, Overlap
from hetsched.plans.memory_fit import largest_sub_distribution
from hetsched.plans.paper.factoring import factoring
from hetsched.plans.paper.sub_distributions import (
    Chunks,
    SubDistribution,
    SubDistributionSearch,
)
from hetsched.plans.phase_costs import PhaseCosts, costs_of
from hetsched.plans.timeline import timeline
from hetsched.plans.validation import validate_request

MAX_EXTRAPOLATION = 2.0
"""Ratio of a chunk to the largest measured one above which a partial model only extrapolates."""
MAX_OPTIONS = 12
"""Fastest sub-distributions, with different sums, with which a plan may continue."""
MAX_ROOMS_PLANNED = 4
"""Ratio of share to memory above which the fastest sub-distribution is simply repeated."""
MAX_SEARCHED_ROOMS = 24
"""Remaining loads for which sub-distributions are searched; others use those of a smaller one."""
UNLIMITED = 1 << 62

Option = tuple[Chunks, int, float]
"""A sub-distribution: chunks, their sum, seconds."""


@dataclass(frozen=True)
class Installments:
    """A plan, its makespan, and why it deviates from the paper's steps (None: it doesn't)."""

    plan: DevicePlan
    seconds: float
    fallback: str | None = None


def multi_installment(
    share: int, model: DeviceModel, memory: MemoryDemand, *, overlap: Overlap
) -> DevicePlan:
    """Return the paper's plan for one device, or factoring by two where that is faster.

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
        Consecutive sub-distributions that fit.

    Raises
    ------
    DataError
        Not even one unit fits.
    UsageError
        The share is negative or not an integer; a parameter has the wrong type; the model returns
        a negative time or NaN.
    """
    return installments(share, model, memory, overlap=overlap).plan


def installments(
    share: int, model: DeviceModel, memory: MemoryDemand, *, overlap: Overlap
) -> Installments:
    """Return `multi_installment` with its makespan and the reason of any fallback.

    Parameters and errors: as for `multi_installment`.
    """
    share = validate_request(share, model, memory, overlap)
    if share == 0:
        return Installments(DevicePlan(()), 0.0)
    plan = paper_steps(share, model, memory, overlap=overlap)
    seconds = timeline(plan, model, overlap).makespan
    factored = factoring(share, memory)
    factored_seconds = timeline(factored, model, overlap).makespan
    if factored_seconds >= seconds:
        return Installments(plan, seconds)
    fallback = f"factoring by two takes {factored_seconds:.6g} s, the steps' plan {seconds:.6g} s"
    return Installments(factored, factored_seconds, fallback)


def paper_steps(
    share: int, model: DeviceModel, memory: MemoryDemand, *, overlap: Overlap
) -> DevicePlan:
    """Follow steps 1 to 6 alone. Parameters and errors: as for `multi_installment`."""
    costs = costs_of(model, memory.max_chunk(share))
    room = largest_sub_distribution(share, memory)
    if overlap is Overlap.NONE:
        return DevicePlan(_one_by_one(share, costs.largest, memory))
    search = SubDistributionSearch(costs.up_to(_largest_trusted(model)), overlap, room)
    return DevicePlan(_RemainingLoads(costs, memory, search, room).plan(share))


def _largest_trusted(model: DeviceModel) -> int:
    """Return the largest chunk supported by the model's evidence; unlimited without points."""
    points = getattr(model.compute, "points", None)
    if points is None or not len(points):
        return UNLIMITED
    return max(1, round(MAX_EXTRAPOLATION * float(max(point[0] for point in points))))


def _one_by_one(share: int, largest: int, memory: MemoryDemand) -> tuple[Chunks, ...]:
    times, rest = divmod(share, largest)
    singles = [largest] * times
    while rest:  # more than once only where bytes don't grow with size
        singles.append(memory.max_chunk(rest))
        rest -= singles[-1]
    return tuple((size,) for size in singles)


class _RemainingLoads:
    """Steps 4 to 6: the best plan for each remaining load that can occur."""

    def __init__(
        self, costs: PhaseCosts, memory: MemoryDemand, search: SubDistributionSearch, room: int
    ) -> None:
        self._costs = costs
        self._memory = memory
        self._search = search
        self._room = room
        self._fastest: dict[int, list[SubDistribution]] = {}

    def plan(self, share: int) -> tuple[Chunks, ...]:
        repeated: tuple[Chunks, ...] = ()
        fastest = max(self._fastest_within(self._room), key=lambda sub: sub.speed, default=None)
        excess = share - MAX_ROOMS_PLANNED * self._room
        if fastest is not None and excess > 0:
            times = -(-excess // fastest.units)
            repeated = (fastest.chunks,) * times
            share -= times * fastest.units
        return repeated + self._best(share)

    def _best(self, share: int) -> tuple[Chunks, ...]:
        """Return the fastest plan. Smaller remaining loads come first, to avoid recursion."""
        best_of: dict[int, tuple[float, Chunks]] = {0: (0.0, ())}
        options_of = self._reachable(share)
        for remaining in sorted(options_of):
            best_of[remaining] = min(
                (
                    (seconds + best_of[remaining - units][0], chunks)
                    for chunks, units, seconds in options_of[remaining]
                ),
                key=lambda option: option[0],
            )
        sub_distributions = []
        while share:
            sub_distributions.append(best_of[share][1])
            share -= sum(sub_distributions[-1])
        return tuple(sub_distributions)

    def _reachable(self, share: int) -> dict[int, list[Option]]:
        """Return the remaining loads that can occur, with the options for each."""
        options_of: dict[int, list[Option]] = {share: []}
        waiting = [share]
        while waiting:
            remaining = waiting.pop()
            options_of[remaining] = self._options(remaining)
            for _, units, _ in options_of[remaining]:
                rest = remaining - units
                if rest and rest not in options_of:
                    options_of[rest] = []
                    waiting.append(rest)
        return options_of

    def _options(self, remaining: int) -> list[Option]:
        """Return the options for the first sub-distribution of `remaining` units."""
        options = [(s.chunks, s.units, s.seconds) for s in self._fastest_within(remaining)]
        single = self._costs.largest
        if remaining < single:
            single = self._memory.max_chunk(remaining)
        seconds = sum(float(phase[single]) for phase in self._costs.phases)
        return [*options, ((single,), single, seconds)]

    def _fastest_within(self, remaining: int) -> list[SubDistribution]:
        """Return the fastest sub-distributions of at most `remaining` units, one per sum."""
        room = min(remaining, self._room)
        if room not in self._fastest and len(self._fastest) >= MAX_SEARCHED_ROOMS:
            room = max((searched for searched in self._fastest if searched <= room), default=0)
        if room and room not in self._fastest:
            self._fastest[room] = self._searched(room)
        return self._fastest.get(room, [])

    def _searched(self, room: int) -> list[SubDistribution]:
        fastest_of: dict[int, SubDistribution] = {}
        for candidate in self._search.within(room):
            rival = fastest_of.get(candidate.units)
            is_faster = rival is None or candidate.seconds < rival.seconds
            if is_faster and self._memory.fits(candidate.chunks):
                fastest_of[candidate.units] = candidate
        fastest = sorted(fastest_of.values(), key=lambda sub: -sub.speed)[:MAX_OPTIONS]
        if room in fastest_of and fastest_of[room] not in fastest:
            fastest.append(fastest_of[room])
        return fastest
