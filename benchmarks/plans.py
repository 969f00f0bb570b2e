"""Plans of one device: their distance to the lower bound, and the processor time to make them.

Devices are drawn at random: fixed costs of 5 to 30 us, 5 to 316 us a unit and phase, memory for 4
units to all of 64 to 4,096, one or two copy engines. No plan of equal chunks may be faster.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.results import Bar, Result
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel
from hetsched.plans import Overlap, best_plan, factoring, lower_bound, price
from hetsched.plans.costs import costs_of
from hetsched.plans.device_plan import slot_sizes
from hetsched.plans.paper import paper_steps
from hetsched.plans.recipes import evenly
from hetsched.plans.recurrence import prices

DEVICES, QUICK = 1000, 60
UNITS, MIN_ROOM, LARGE_ROOM = (64, 4096), 4, 8
GAPS, DECADES = (5e-6, 30e-6), (-5.3, -3.5)
"""Seconds; powers of ten of seconds per unit."""
SMALL_UNITS = (-6.0, -4.0)
"""For comparison: units so small that fixed costs dominate."""
MAX_GAPS = {DECADES: (0.003, 0.012), SMALL_UNITS: (0.007, 0.02)}
"""Mean and 90th percentile of the gaps to the bound."""
MAX_WORST = 0.10
MAX_EQUAL_CHUNKS, MAX_SLOTS = 64, 4
ROUNDING = 1e-9
WORST_SHOWN = 10
CHUNKS_SHOWN = 8
LIMITS = {64: 10, 256: 10, 1024: 50, 4096: 50, 100_000: 100}
"""Units: milliseconds for a plan."""
LINK_BOUND = 16.5
TIMED = 15
"""Number of devices of each size for which planning is timed."""


@dataclass(frozen=True)
class Case:
    """A share for one device. `room`: units that its memory holds."""

    seed: int
    share: int
    room: int
    phases: tuple[Affine, Affine, Affine]
    overlap: Overlap

    @property
    def model(self) -> DeviceModel:
        copy_in, compute, copy_out = self.phases
        return DeviceModel(Affine(0.0, 1.0), compute, copy_in, copy_out)

    @property
    def memory(self) -> MemoryDemand:
        return MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=0, limit=self.room)

    def text(self) -> str:
        """Format as "5.1 + 20.1 x, ...": copy in, compute, copy out of x units, microseconds."""
        microseconds = ((phase.gap * 1e6, phase.slope * 1e6) for phase in self.phases)
        return ", ".join(f"{gap:.1f} + {slope:.1f} x" for gap, slope in microseconds)


def draw(seed: int, decades: tuple[float, float], share: int | None = None) -> Case:
    """Draw a device, and a share unless one is passed; log-uniform, except fixed costs."""
    rng = random.Random(seed)
    drawn = round(_log_uniform(rng, *UNITS))
    share = drawn if share is None else share
    room = min(round(_log_uniform(rng, MIN_ROOM, 2 * share)), share)
    phases = [Affine(rng.uniform(*GAPS), 10 ** rng.uniform(*decades)) for _ in range(3)]
    overlap = rng.choice([Overlap.SINGLE, Overlap.FULL])
    return Case(seed, share, room, (phases[0], phases[1], phases[2]), overlap)


def measure(quick: bool) -> Result:
    columns = ("seed", "units", "memory", "engines", "in, compute, out, us", "chunks", "gap, %")
    result = Result("plans", "Plans of one device: the ten furthest from the bound", columns)
    devices = range(QUICK if quick else DEVICES)
    for prefix, decades in (("", DECADES), ("units of 1 to 100 us: ", SMALL_UNITS)):
        judgements = [judged(draw(seed, decades)) for seed in devices]
        gaps = [round(judgement["gap"], 6) for judgement in judgements]
        result.data.append({"decades": decades, "worst": worst(judgements), "gaps": gaps})
        result.bars += [
            Bar(prefix + bar.what, bar.value, bar.limit, bar.at_least)
            for bar in bars(judgements, *MAX_GAPS[decades])
        ]
        if not prefix:
            result.rows += [row(judgement) for judgement in worst(judgements)]
    _behind_a_slow_link(result)
    for share in list(LIMITS)[: 3 if quick else None]:
        times = timed(share)
        result.data.append(times)
        title = f"`best_plan` of {share} units, median, ms"
        result.bars.append(Bar(title, times["best_plan"]["cold_ms"], LIMITS[share], False))
    return result


def _behind_a_slow_link(result: Result) -> None:
    """Compare plans of 205 units that take longer to copy than to compute.

    Milliseconds: a plane of complex128 behind 55 GB/s each way.
    """
    share, overlap, link = 205, Overlap.FULL, Affine(0.010, 0.076)
    model = DeviceModel(Affine(0.0, 1.0), Affine(0.020, 0.011), link, link)
    for room in (112, 16):
        memory = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=0, limit=room)
        best = price(best_plan(share, model, memory, overlap=overlap), model, overlap)
        steps = paper_steps(share, model, memory, overlap=overlap)
        rivals = {
            "factoring": price(factoring(share, memory), model, overlap),
            "paper_steps": price(steps, model, overlap),
        }
        result.data.append({"share": share, "room": room, "best": best, **rivals})
        compared = ", ".join(f"{name} {seconds:.2f}" for name, seconds in rivals.items())
        title = f"bound by copies, 205 units, room for {room} (others: {compared})"
        result.bars.append(Bar(title, round(best, 3), LINK_BOUND, False))


def judged(case: Case) -> dict[str, Any]:
    """Compare the best plan of `case` with the bound and with equal chunks."""
    plan = best_plan(case.share, case.model, case.memory, overlap=case.overlap)
    seconds = price(plan, case.model, case.overlap)
    bound = lower_bound(case.share, case.model, case.memory, case.overlap)
    equal = min(equal_chunks(case), default=math.inf)
    return {
        "seed": case.seed,
        "share": case.share,
        "room": case.room,
        "engines": case.overlap.value,
        "phases": case.text(),
        "gap": seconds / bound - 1,
        "seconds": seconds,
        "bound": bound,
        "slots": plan.slots,
        "chunks": plan.chunks[:64],
        "count": len(plan.chunks),
        "equal_seconds": equal,
        "beaten": equal < seconds * (1 - ROUNDING),
    }


def equal_chunks(case: Case) -> Iterator[float]:
    """Yield, by slots, the least seconds of all rings of 1 to 64 equal chunks that fit.

    Chunks differ by one unit at most, the larger ones first or spread out.
    """
    costs = costs_of(case.model, case.room, case.overlap)
    for slots in range(1, MAX_SLOTS + 1):
        plans = [
            sizes
            for chunks in range(1, min(MAX_EQUAL_CHUNKS, case.share) + 1)
            for sizes in (evenly(case.share, chunks), spread(case.share, chunks))
            if sum(slot_sizes(sizes, slots)) <= case.room
        ]
        if plans:
            yield float(prices(plans, slots, costs, case.overlap).min())


def spread(share: int, chunks: int) -> tuple[int, ...]:
    """Cut as `evenly`, but with the larger chunks as far from each other as possible."""
    ends = [share * end // chunks for end in range(chunks + 1)]
    return tuple(after - before for before, after in itertools.pairwise(ends))


def bars(judgements: Sequence[dict[str, Any]], mean: float, ninetieth: float) -> list[Bar]:
    gaps = sorted(judgement["gap"] for judgement in judgements)
    with_room = [judgement["gap"] for judgement in judgements if judgement["room"] >= LARGE_ROOM]
    beaten = sum(judgement["beaten"] for judgement in judgements)
    title = f"gap to the bound, {len(judgements)} devices"
    return [
        Bar(f"{title}, mean", statistics.fmean(gaps), mean, False),
        Bar(f"{title}, 90th percentile", gaps[int(0.9 * len(gaps))], ninetieth, False),
        Bar(
            f"{title}, worst from {LARGE_ROOM} units of memory on",
            max(with_room),
            MAX_WORST,
            False,
        ),
        Bar("beaten by equal chunks", beaten, 0, False),
    ]


def worst(judgements: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(judgements, key=lambda judgement: -float(judgement["gap"]))[:WORST_SHOWN]


def row(judgement: dict[str, Any]) -> tuple[str, ...]:
    chunks = " ".join(map(str, judgement["chunks"][:CHUNKS_SHOWN]))
    count = judgement["count"]
    return (
        str(judgement["seed"]),
        str(judgement["share"]),
        str(judgement["room"]),
        str(judgement["engines"]),
        judgement["phases"],
        f"{chunks} ... ({count})" if count > CHUNKS_SHOWN else chunks,
        f"{judgement['gap'] * 100:.2f}",
    )


def timed(share: int) -> dict[str, Any]:
    """Milliseconds of the processor to plan `share` units: the first time (cold), again (warm)."""
    cases = [draw(seed, DECADES, share) for seed in range(TIMED)]
    return {
        "share": share,
        "best_plan": _times(
            [partial(best_plan, share, c.model, c.memory, overlap=c.overlap) for c in cases]
        ),
    }


def _times(makers: Sequence[Callable[[], Any]]) -> dict[str, float]:
    cold, warm = ([seconds_of(make) * 1e3 for make in makers] for _ in range(2))
    return {
        "cold_ms": statistics.median(cold),
        "cold_worst_ms": max(cold),
        "warm_ms": statistics.median(warm),
        "warm_worst_ms": max(warm),
    }


def seconds_of(make: Callable[[], Any]) -> float:
    start = time.process_time()
    make()
    return time.process_time() - start


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))
