from __future__ import annotations

import math
import random

import pytest

from hetsched.job import DeviceReport
from hetsched.models.confidence import confidence_interval, knot_of
from hetsched.models.measuring import MeasurementCase, MeasurementSchedule


def device(name: str, units: int, seconds: float, copies: float = 0.0) -> DeviceReport:
    return DeviceReport(
        device=name,
        kind="cpu",
        variant="v",
        share=units,
        seconds=seconds + 2 * copies,
        chunks=(units,),
        copy_in_seconds=copies,
        compute_seconds=seconds,
        copy_out_seconds=copies,
    )


def run(measuring: MeasurementSchedule, noise: float = 0.0) -> list[MeasurementCase]:
    """Measure until there is enough, a second a unit; the cases in their order."""
    draw, ran = random.Random(7), []
    while (case := measuring.ask()) is not None:
        ran.append(case)
        reports = [
            device(name, case.units, case.units * math.exp(draw.gauss(0, noise)))
            for name in case.variants
        ]
        case.add(reports)
    return ran


def test_every_variant_is_measured_and_all_devices_go_on_meanwhile() -> None:
    ran = run(MeasurementSchedule([4], {"cpu0": ["a", "b"], "emu0": ["a"]}, until=0.025))

    assert {tuple(case.variants.items()) for case in ran} == {
        (("cpu0", "a"), ("emu0", "a")),
        (("cpu0", "b"), ("emu0", "a")),
    }
    assert all(case.units == 4 for case in ran)


def test_a_team_is_measured_apart_from_its_cores() -> None:
    variants = {"cpu0": ["a", "b"], "cpu1": ["a", "b"], "team0": ["b"]}

    ran = run(MeasurementSchedule([4], variants, until=0.025, separate=["team0"]))

    assert {tuple(case.variants.items()) for case in ran} == {
        (("cpu0", "a"), ("cpu1", "a")),
        (("cpu0", "b"), ("cpu1", "b")),
        (("team0", "b"),),
    }


@pytest.mark.parametrize(("noise", "least"), [(0.0, 3), (0.02, 3), (0.2, 4)])
def test_more_noise_takes_more_repeats_within_the_most(noise: float, least: int) -> None:
    measuring = MeasurementSchedule([4], {"cpu0": ["v"]}, until=0.025, max_repeats=12)

    repeats = len(run(measuring, noise))

    (case,) = measuring.cases
    assert least <= repeats
    assert case.half_width("cpu0") <= 0.025 or repeats == 12


def test_what_cannot_be_run_is_dropped() -> None:
    measuring = MeasurementSchedule([4, 8], {"cpu0": ["a", "b"]}, until=0.025)
    while (case := measuring.ask()) is not None:
        if case.variants["cpu0"] == "a":
            measuring.cases.remove(case)
        else:
            case.add([device("cpu0", case.units, 1.0)])

    assert {variant for _, variant, _ in measuring.measured()} == {"b"}
    assert [case.repeats for case in measuring.cases] == [3, 3]


def test_a_single_time_has_an_unbounded_interval() -> None:
    assert confidence_interval([3.0]) == (0.0, math.inf)
    assert knot_of(1, [3.0]).half_width == math.inf


@pytest.mark.parametrize(("count", "rank"), [(6, 0), (8, 0), (9, 1), (12, 2), (20, 5), (30, 9)])
def test_the_ranks_are_those_of_the_published_tables(count: int, rank: int) -> None:
    assert confidence_interval([float(i) for i in range(1, count + 1)]) == (rank + 1, count - rank)


def test_few_times_get_student_s_interval_of_their_logarithms() -> None:
    low, high = confidence_interval([1.0, math.e, math.e**2])
    wide = 4.303 / math.sqrt(3)
    assert (math.log(low), math.log(high)) == pytest.approx((1 - wide, 1 + wide))
