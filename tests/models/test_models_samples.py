from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.device import ChunkTimes
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.models.history import History
from hetsched.models.samples import Sample, run_samples
from hetsched.plans import DevicePlan, Mode, Overlap, timeline
from hetsched.simulate.machine import chunk_timings

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


# ---- both directions of a link


def test_copies_that_were_never_alone_count_as_they_were() -> None:
    chunks = [
        (4, ChunkTimes(copy_in=(k, k + 1.0), compute=(k + 1.0, 9.0), copy_out=(k, k + 1.0)))
        for k in (0.0, 1.0)
    ]
    copies = [s for s in run_samples(chunks, (), 8, 9.0) if s.curve not in ("compute", "total")]
    assert [(s.curve, s.seconds) for s in copies] == [("h2d", 1.0)] * 2 + [("d2h", 1.0)] * 2


@pytest.mark.parametrize("duplex", [(1.0, 1.0), (0.6, 0.75)])
def test_the_shares_of_a_device_are_learnt_from_one_run(duplex: tuple[float, float]) -> None:
    link = Affine(1e-5, 1e-3)
    truth = DeviceModel(Affine(0.0, 1e-3), Affine(1e-5, 2e-4), link, link, duplex=duplex)
    plan = DevicePlan(((8,) * 16,), Mode.RING, 3)
    times = timeline(plan, truth, Overlap.FULL)
    done = chunk_timings(times)
    history = History()

    history.add(run_samples(done, plan.sub_distributions, 128, times.makespan))

    model = history.model()
    assert model is not None and model.h2d is not None and model.d2h is not None
    assert model.duplex == pytest.approx(duplex, rel=1e-6)
    assert float(model.h2d.time(8)) == pytest.approx(link.time(8))
    assert float(model.d2h.time(8)) == pytest.approx(link.time(8))


def share_of(alone: Sequence[int], *beside: tuple[int, float]) -> float:
    """The share of h2d, by copies alone that took a second a unit, and by these beside d2h."""
    history = History()
    history.add([Sample("total", 1, 1.0), *(Sample("h2d", units, units) for units in alone)])
    for units, seconds in beside:
        history.add([Sample("h2d_beside", units, seconds)])
    model = history.model()
    assert model is not None
    return model.duplex[0]


@pytest.mark.parametrize(("alone", "share"), [(1, 1.0), (2, 1.0), (25, 0.93)])
def test_a_share_near_one_needs_many_copies_that_ran_alone(alone: int, share: float) -> None:
    beside = [(16, 16 / 0.93)] * 5
    assert share_of(range(16, 16 + alone), *beside, (20, 20 / 0.7)) == pytest.approx(share)


@given(st.integers(0, 10_000))
def test_noise_suggests_no_share_below_one(seed: int) -> None:
    errors = np.random.default_rng(seed).normal(0.0, 0.02, 5)
    assert share_of([16], *((16, 16 * error) for error in np.exp(errors).tolist())) == 1.0
