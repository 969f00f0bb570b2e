"""Which measurement goes into which curve, and the published number of points."""

import msgspec
import pytest

from hetsched.device import ChunkTimes
from hetsched.errors import UsageError
from hetsched.models import Constant, DeviceModel, PiecewiseLinear
from hetsched.models.samples import Sample, run_samples

Lists = list[list[int]]


def on_link(start: float) -> ChunkTimes:
    """One second in, two of compute after a wait of one, three out."""
    return ChunkTimes(
        copy_in=(start, start + 1), compute=(start + 2, start + 4), copy_out=(start + 4, start + 7)
    )


def on_core(start: float, seconds: float) -> ChunkTimes:
    return ChunkTimes(compute=(start, start + seconds))


def test_a_core_gives_compute_per_chunk_and_total_once() -> None:
    chunks = [(4, on_core(0, 2)), (6, on_core(2, 3))]

    assert run_samples(chunks, ((4, 6),), 10, 5.0) == [
        Sample("compute", 4, 2),
        Sample("compute", 6, 3),
        Sample("total", 10, 5.0),
    ]


def test_a_device_with_a_link_gives_all_four_curves() -> None:
    samples = run_samples([(4, on_link(0)), (6, on_link(10))], ((4, 6),), 10, 17.0)

    assert [s for s in samples if s.curve != "total"] == [
        Sample("compute", 4, 2),
        Sample("compute", 6, 2),
        Sample("h2d", 4, 1),
        Sample("h2d", 6, 1),
        Sample("d2h", 4, 3),
        Sample("d2h", 6, 3),
    ]


def test_the_total_of_a_chunk_is_the_sum_of_its_phases_without_waits() -> None:
    samples = run_samples([(4, on_link(0)), (6, on_link(10))], ((4, 6),), 10, 17.0)

    assert [s for s in samples if s.curve == "total"] == [
        Sample("total", 4, 6),
        Sample("total", 6, 6),
        Sample("total", 10, 17.0),
    ]


def test_several_sub_distributions_count_by_their_wall_time() -> None:
    chunks = [(4, on_link(0)), (2, on_link(5)), (3, on_link(20))]

    samples = run_samples(chunks, ((4, 2), (3,)), 9, 27.0)

    assert Sample("total", 6, 12) in samples
    assert Sample("total", 3, 7) in samples


def test_a_sub_distribution_that_ran_otherwise_has_no_total() -> None:
    chunks = [(4, on_link(0)), (3, on_link(20))]

    samples = run_samples(chunks, ((4, 2), (3,)), 7, 27.0)

    assert [s.units for s in samples if s.curve == "total"] == [4, 3, 7]


def test_a_single_chunk_is_one_observation_of_its_total() -> None:
    samples = run_samples([(4, on_link(0))], ((4,),), 4, 7.0)

    assert [s for s in samples if s.curve == "total"] == [Sample("total", 4, 7.0)]


def test_a_core_that_reads_files_has_no_link_if_the_caller_says_so() -> None:
    samples = run_samples([(4, on_link(0)), (4, on_link(9))], ((4, 4),), 8, 16.0, link=False)

    assert [s.curve for s in samples] == ["compute", "compute", "total"]


def test_phases_too_short_to_measure_are_left_out() -> None:
    times = ChunkTimes(copy_in=(1.0, 1.0), compute=(1.0, 2.0), copy_out=(2.0, 2.5))

    samples = run_samples([(4, times)], ((4,),), 4, 1.5)

    assert [s.curve for s in samples] == ["compute", "d2h", "total"]


def test_a_device_without_a_share_gives_no_samples() -> None:
    assert run_samples([], (), 0, 0.0) == []


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


def test_a_device_model_evaluates_its_total() -> None:
    model = DeviceModel(Constant(2.0), Constant(5.0))

    assert model.time(4) == 2.0
    assert model.speed(4) == 2.0
    assert not model.link
    assert DeviceModel(Constant(2.0), Constant(5.0), Constant(1.0)).link


@pytest.mark.parametrize("duplex", [(0.0, 1.0), (1.0, 1.1), (1.0,)])
def test_duplex_shares_out_of_range_are_refused(duplex: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="duplex"):
        DeviceModel(Constant(1.0), Constant(1.0), duplex=duplex)  # type: ignore[arg-type]


def test_a_core_that_took_chunks_of_a_tail_reports_its_planned_share() -> None:
    taken = msgspec.structs.replace(on_core(2, 1.0), taken=True)

    samples = run_samples([(4, on_core(0, 2)), (2, taken)], (), 6, 3.0, planned=20)

    assert samples[-1] == Sample("total", 20, 10.0)


def test_the_cold_first_chunk_of_a_core_counts_for_its_share_only() -> None:
    cold = msgspec.structs.replace(on_core(0, 9), cold=True)

    samples = run_samples([(4, cold), (4, on_core(9, 2))], ((4, 4),), 8, 11.0)

    assert samples == [Sample("compute", 4, 2), Sample("total", 8, 11.0)]


def test_the_cold_first_chunk_of_a_device_with_a_link_gives_no_phases() -> None:
    cold = msgspec.structs.replace(on_link(0), cold=True)

    samples = run_samples([(4, cold), (6, on_link(10))], ((4, 6),), 10, 17.0)

    assert {s.units for s in samples if s.curve != "total"} == {6}
    assert Sample("total", 10, 17.0) in samples


def test_a_single_cold_chunk_still_gives_its_copies() -> None:
    cold = msgspec.structs.replace(on_link(0), cold=True)

    assert {s.curve for s in run_samples([(4, cold)], ((4,),), 4, 7.0)} == {
        "compute",
        "h2d",
        "d2h",
        "total",
    }


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
