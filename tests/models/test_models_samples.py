from typing import Any

import msgspec
import pytest

from hetsched.device import ChunkTimes
from hetsched.models import PiecewiseLinear
from hetsched.models.samples import Sample, run_samples

Lists = list[list[int]]


def on_link(start: float) -> ChunkTimes:
    """One second in, two of compute after a wait of one, three out."""
    return ChunkTimes(
        copy_in=(start, start + 1), compute=(start + 2, start + 4), copy_out=(start + 4, start + 7)
    )


def on_core(start: float, seconds: float) -> ChunkTimes:
    return ChunkTimes(compute=(start, start + seconds))


def cold(times: ChunkTimes) -> ChunkTimes:
    return msgspec.structs.replace(times, cold=True)


CORE = [(4, on_core(0, 2)), (6, on_core(2, 3))]
LINK = [(4, on_link(0)), (6, on_link(10))]
PARTS = [(4, on_link(0)), (2, on_link(5)), (3, on_link(20))]
PHASES = [("compute", 4, 2), ("compute", 6, 2), ("h2d", 4, 1), ("h2d", 6, 1), ("d2h", 4, 3),
          ("d2h", 6, 3)]  # fmt: skip
INSTANT_IN = ChunkTimes(copy_in=(1.0, 1.0), compute=(1.0, 2.0), copy_out=(2.0, 2.5))


@pytest.mark.parametrize(
    ("chunks", "plan", "wall", "expected"),
    [
        (CORE, [[4, 6]], 5, [("compute", 4, 2), ("compute", 6, 3), ("total", 10, 5)]),
        (LINK, [[4, 6]], 17, [*PHASES, ("total", 4, 6), ("total", 6, 6), ("total", 10, 17)]),
        (PARTS, [[4, 2], [3]], 27, [("total", 6, 12), ("total", 3, 7), ("total", 9, 27)]),
        (LINK[:1], [[4]], 7, [("compute", 4, 2), ("h2d", 4, 1), ("d2h", 4, 3), ("total", 4, 7)]),
        ([(4, INSTANT_IN)], [[4]], 1.5, [("compute", 4, 1), ("d2h", 4, 0.5), ("total", 4, 1.5)]),
        ([(4, cold(on_core(0, 9))), (4, on_core(9, 2))], [[4, 4]], 11,
         [("compute", 4, 2), ("total", 8, 11)]),
        ([(4, cold(on_link(0))), LINK[1]], [[4, 6]], 17,
         [PHASES[1], PHASES[3], ("total", 10, 17)]),
        ([(4, cold(on_link(0)))], [[4]], 7, [*PHASES[:1], *PHASES[2:3], ("total", 4, 7)]),
        ([], [], 0, []),
    ],
    ids=["core", "link", "installments", "one chunk", "too short", "cold core", "cold link",
         "all cold", "no share"],
)  # fmt: skip
def test_each_time_goes_into_its_curve(
    chunks: list[tuple[int, ChunkTimes]], plan: Lists, wall: float, expected: list[Any]
) -> None:
    share = sum(units for units, _ in chunks)

    found = run_samples(chunks, plan, share, wall)

    assert {Sample(*each) for each in expected} <= {*found}
    warm = {units for units, times in chunks if not times.cold} or {share}
    assert {s.units for s in found if s.curve != "total"} <= warm


def test_installments_that_ran_otherwise_have_no_total_and_files_are_no_link() -> None:
    otherwise = run_samples([(4, on_link(0)), (3, on_link(20))], [[4, 2], [3]], 7, 27.0)
    files = run_samples([(4, on_link(0)), (4, on_link(9))], [[4, 4]], 8, 16.0, link=False)

    assert [s.units for s in otherwise if s.curve == "total"] == [4, 3, 7]
    assert [s.curve for s in files] == ["compute", "compute", "total"]


def test_the_published_distributions_give_the_published_points() -> None:
    runs: list[Lists] = [
        [[32, 16, 8, 4, 2, 1, 1]],
        [[8, 14, 18, 20, 9, 1], [8, 14, 18, 20, 21, 21, 9]],
        [[14, 26, 36, 16, 7, 3], [14, 26, 36, 16, 5]],
        [[14, 26, 36, 16, 7, 3], [14, 26, 36, 16, 7, 3, 1]],
    ]
    total, points = PiecewiseLinear(), []

    for plan in runs:
        sizes = [units for part in plan for units in part]
        chunks = [(units, on_link(10.0 * i)) for i, units in enumerate(sizes)]
        for sample in run_samples(chunks, plan, sum(sizes), 10.0 * len(sizes)):
            if sample.curve == "total":
                total.observe(sample.units, sample.seconds)
        points.append(len(total.points))

    assert points == [7, 15, 23, 25]
    assert total.repeats == 29


def test_a_core_that_took_chunks_of_a_tail_reports_its_planned_share() -> None:
    taken = msgspec.structs.replace(on_core(2, 1.0), taken=True)

    samples = run_samples([(4, on_core(0, 2)), (2, taken)], (), 6, 3.0, planned=20)

    assert samples[-1] == Sample("total", 20, 10.0)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 0.0, 1e-300, 1e300])
def test_what_is_no_time_is_no_observation(seconds: float) -> None:
    chunks = [(4, on_core(0.0, seconds))]

    assert run_samples(chunks, ((4,),), 4, seconds) == []


def test_chunks_computed_after_a_co_runner_had_finished_do_not_show_their_size() -> None:
    chunks = [(4, on_link(0)), (1, on_link(10))]

    observed = run_samples(chunks, ((4, 1),), 5, 17.0, until=10.0)
    assert {s.units for s in observed if s.curve != "total"} == {4}
    assert Sample("total", 5, 17.0) in observed
    assert run_samples(chunks, ((4, 1),), 5, 17.0, until=0.0) == run_samples(
        chunks, ((4, 1),), 5, 17.0
    )
