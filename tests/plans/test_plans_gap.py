"""Random devices: near the lower bound, and never slower than equal chunks. Few of the bench's."""

from __future__ import annotations

import pytest

from benchmarks.plans import DECADES, SMALL_UNITS, bars, draw, judged
from hetsched.plans import DevicePlan, Mode, best_plan, quick_plan, timeline
from hetsched.plans.search.recipes import leftover_patterns


@pytest.mark.parametrize("decades", [DECADES, SMALL_UNITS], ids=["planes", "rows"])
def test_random_devices_are_near_the_bound_and_not_beaten_by_equal_chunks(
    decades: tuple[float, float],
) -> None:
    judgements = [judged(draw(seed, decades)) for seed in range(40)]
    assert [bar.text() for bar in bars(judgements) if not bar.holds] == []


def test_what_is_quickly_found_is_never_better_and_seldom_much_worse() -> None:
    excess = []
    for seed in range(40):
        case = draw(seed, DECADES)
        best = best_plan(case.share, case.model, case.memory, overlap=case.overlap)
        quick = quick_plan(case.share, case.model, case.memory, case.overlap)
        seconds = [timeline(plan, case.model, case.overlap).makespan for plan in (best, quick)]
        excess.append(seconds[1] / seconds[0] - 1)
    assert min(excess) >= -1e-9
    assert sorted(excess)[36] < 0.005


def test_few_chunks_more_than_fill_memory_take_turns_with_small_ones() -> None:
    """Seven chunks for 72 units in room for 20, where equal ones are eight."""
    assert list(leftover_patterns(72, (10, 10))) == [(12, 8)]
    case = draw(616, SMALL_UNITS)
    assert (case.share, case.room) == (72, 20)
    plan = best_plan(case.share, case.model, case.memory, overlap=case.overlap)
    assert len(plan.chunks) == 7
    equal = DevicePlan(((10,) * 7 + (2,),), Mode.RING, 2)
    seconds = timeline(plan, case.model, case.overlap).makespan
    assert seconds < timeline(equal, case.model, case.overlap).makespan * 0.97
