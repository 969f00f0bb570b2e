"""Plans of one device: how far above the lower bound, and how long they take to make.

Devices are drawn at random: fixed costs of 5 to 30 us, 5 to 316 us a unit and phase, memory for 4
units to all of 64 to 4,096, one or two copy engines. No plan of equal chunks may be faster.
"""

from __future__ import annotations

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
from hetsched.plans import Overlap, best_plan, compare_plans, quick_plan, timeline
from hetsched.plans.device_plan import slot_sizes
from hetsched.plans.makespans import makespans, padded
from hetsched.plans.paper.multi_installment import paper_steps
from hetsched.plans.phase_costs import costs_of
from hetsched.plans.search.recipes import evenly, spread_out

DEVICES, QUICK = 1000, 60
UNITS, LEAST_ROOM, ROOMY = (64, 4096), 4, 8
GAPS, DECADES = (5e-6, 30e-6), (-5.3, -3.5)
"""Seconds; powers of ten of seconds a unit."""
SMALL_UNITS = (-6.0, -4.0)
"""For comparison: units so small that fixed costs decide."""
MEDIAN, NINETIETH, WORST = 0.005, 0.02, 0.10
MOST_EQUAL, MOST_SLOTS = 64, 4
ROUNDING = 1e-9
WORST_SHOWN = 10
LIMITS = {64: (10, 50), 256: (10, 50), 1024: (50, 50), 4096: (50, 50), 100_000: (100, 500)}
"""Units: milliseconds for a plan that is quickly found, and for the best one."""
LINK_BOUND = 16.5
TIMED = 15
"""Devices of each size for which planning is timed."""


@dataclass(frozen=True)
class Case:
    """A share for one device. `room`: units in its memory."""

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
        """ "5.1 + 20.1 x, ...": copy in, compute, copy out of x units, microseconds."""
        costs = (tuple(float(phase.time(x)) * 1e6 for x in (1.0, 2.0)) for phase in self.phases)
        return ", ".join(f"{2 * one - two:.1f} + {two - one:.1f} x" for one, two in costs)


def draw(seed: int, decades: tuple[float, float], share: int | None = None) -> Case:
    """A device and, unless given, a share, everything log-uniform but the fixed costs."""
    rng = random.Random(seed)
    drawn = round(_log_uniform(rng, *UNITS))
    share = drawn if share is None else share
    room = min(round(_log_uniform(rng, LEAST_ROOM, 2 * share)), share)
    phases = [Affine(rng.uniform(*GAPS), 10 ** rng.uniform(*decades)) for _ in range(3)]
    overlap = rng.choice([Overlap.SINGLE, Overlap.FULL])
    return Case(seed, share, room, (phases[0], phases[1], phases[2]), overlap)


def measure(quick: bool) -> Result:
    columns = ("seed", "units", "memory", "engines", "in, compute, out, us", "chunks", "gap, %")
    result = Result("plans", "Plans of one device: the ten furthest from the bound", columns)
    devices = range(QUICK if quick else DEVICES)
    for what, decades in (("", DECADES), ("units of 1 to 100 us: ", SMALL_UNITS)):
        found = [judged(draw(seed, decades)) for seed in devices]
        gaps = [round(one["gap"], 6) for one in found]
        result.data.append({"decades": decades, "worst": worst(found), "gaps": gaps})
        result.bars += [
            Bar(what + bar.what, bar.value, bar.limit, bar.at_least) for bar in bars(found)
        ]
        if not what:
            result.rows += [row(one) for one in worst(found)]
    _behind_a_slow_link(result)
    for share in list(LIMITS)[: 3 if quick else None]:
        took = timed(share)
        result.data.append(took)
        for name, limit in zip(("quick_plan", "best_plan"), LIMITS[share], strict=True):
            what = f"`{name}` of {share} units, median, ms"
            result.bars.append(Bar(what, took[name]["cold_ms"], limit, False))
    return result


def _behind_a_slow_link(result: Result) -> None:
    """205 units that take longer to copy than to compute, beside factoring and the paper's steps.

    Milliseconds: a plane of complex128 behind 55 GB/s each way.
    """
    share, overlap, link = 205, Overlap.FULL, Affine(0.010, 0.076)
    model = DeviceModel(Affine(0.0, 1.0), Affine(0.020, 0.011), link, link)
    for room in (112, 16):
        memory = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=0, limit=room)
        found = compare_plans(share, model, memory, overlap=overlap)
        steps = paper_steps(share, model, memory, overlap=overlap)
        others = {
            "factoring": found.others["factoring"],
            "paper_steps": timeline(steps, model, overlap).makespan,
        }
        result.data.append({"share": share, "room": room, "best": found.seconds, **others})
        beside = ", ".join(f"{name} {seconds:.2f}" for name, seconds in others.items())
        what = f"bound by copies, 205 units, room for {room} (beside: {beside})"
        result.bars.append(Bar(what, round(found.seconds, 3), LINK_BOUND, False))


def judged(case: Case) -> dict[str, Any]:
    """What `best_plan` makes of `case`, against the bound and against equal chunks."""
    found = compare_plans(case.share, case.model, case.memory, overlap=case.overlap)
    equal = min(equal_chunks(case), default=math.inf)
    return {
        "seed": case.seed,
        "share": case.share,
        "room": case.room,
        "engines": case.overlap.value,
        "phases": case.text(),
        "gap": found.gap,
        "seconds": found.seconds,
        "bound": found.bound,
        "slots": found.plan.slots,
        "chunks": found.plan.chunks[:64],
        "count": len(found.plan.chunks),
        "equal_seconds": equal,
        "beaten": equal < found.seconds * (1 - ROUNDING),
    }


def equal_chunks(case: Case) -> Iterator[float]:
    """Seconds of all rings of 1 to 64 chunks, as equal as they can be, the larger ones first or
    spread_out out, whose slots fit together."""
    costs = costs_of(case.model, case.room)
    for slots in range(1, MOST_SLOTS + 1):
        plans = [
            sizes
            for chunks in range(1, min(MOST_EQUAL, case.share) + 1)
            for sizes in (evenly(case.share, chunks), spread_out(case.share, chunks))
            if sum(slot_sizes(sizes, slots)) <= case.room
        ]
        if plans:
            yield float(makespans(padded(plans), slots, costs, case.overlap).min())


def bars(found: Sequence[dict[str, Any]]) -> list[Bar]:
    gaps = sorted(one["gap"] for one in found)
    roomy = [one["gap"] for one in found if one["room"] >= ROOMY]
    at = f"gap to the bound, {len(found)} devices"
    return [
        Bar(f"{at}, median", statistics.median(gaps), MEDIAN, False),
        Bar(f"{at}, 90th percentile", gaps[int(0.9 * len(gaps))], NINETIETH, False),
        Bar(f"{at}, worst from {ROOMY} units of memory on", max(roomy), WORST, False),
        Bar("beaten by equal chunks", sum(one["beaten"] for one in found), 0, False),
    ]


def worst(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda one: -float(one["gap"]))[:WORST_SHOWN]


def row(one: dict[str, Any]) -> tuple[str, ...]:
    few = " ".join(map(str, one["chunks"][:8]))
    more = f" ... ({one['count']})" if one["count"] > 8 else ""
    return (
        str(one["seed"]),
        str(one["share"]),
        str(one["room"]),
        str(one["engines"]),
        one["phases"],
        few + more,
        f"{one['gap'] * 100:.2f}",
    )


def timed(share: int) -> dict[str, Any]:
    """How long it takes to plan `share` units: the first time (cold), and again (warm)."""
    cases = [draw(seed, DECADES, share) for seed in range(TIMED)]
    return {
        "share": share,
        "quick_plan": _times(
            [partial(quick_plan, share, c.model, c.memory, c.overlap) for c in cases]
        ),
        "best_plan": _times(
            [partial(best_plan, share, c.model, c.memory, overlap=c.overlap) for c in cases]
        ),
    }


def _times(makers: Sequence[Callable[[], Any]]) -> dict[str, float]:
    cold, warm = ([once(make) * 1e3 for make in makers] for _ in range(2))
    return {
        "cold_ms": statistics.median(cold),
        "cold_worst_ms": max(cold),
        "warm_ms": statistics.median(warm),
        "warm_worst_ms": max(warm),
    }


def once(make: Callable[[], Any]) -> float:
    start = time.perf_counter()
    make()
    return time.perf_counter() - start


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))
