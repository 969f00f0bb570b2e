"""Which variants race on equal cores, and which one each device runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Constant, DeviceModel, PiecewiseLinear
from hetsched.models.cold_ratios import ColdRatios
from hetsched.models.evidence.races import Race, RaceRecord
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import Candidate
from hetsched.planner.totals import PlanCache
from hetsched.planner.variants import VariantChoice, choose_variants, pooled_models

DEMAND = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1)


def device(
    name: str, seconds: Mapping[str, float | None], runs: Mapping[str, int], kind: str = "cpu"
) -> Candidate:
    """`seconds`: variant -> seconds per unit."""
    models = {
        variant: None
        if variant_seconds is None
        else DeviceModel(Constant(1 / variant_seconds), Constant(1.0))
        for variant, variant_seconds in seconds.items()
    }
    return Candidate(DeviceInfo(name=name, kind=kind, identity="x"), DEMAND, models, runs)


def cores(count: int, seconds: Mapping[str, float | None], *counts: int) -> list[Candidate]:
    runs = dict(zip(seconds, counts, strict=True))
    return [device(f"cpu{index}", seconds, runs) for index in range(count)]


def names(choices: list[VariantChoice]) -> list[str]:
    return [choice.variant for choice in choices]


def test_the_measured_best_runs_whatever_the_order_of_preference() -> None:
    assert names(choose_variants(cores(3, {"fftw": 2.0, "mkl": 1.0}, 3, 3), 10)) == ["mkl"] * 3


def test_of_equally_fast_variants_the_one_with_the_most_runs_stays() -> None:
    assert names(choose_variants(cores(2, {"fftw": 1.02, "mkl": 1.0}, 9, 4), 10)) == ["fftw"] * 2
    assert names(choose_variants(cores(2, {"fftw": 1.0, "mkl": 1.02}, 9, 4), 10)) == ["fftw"] * 2
    assert names(choose_variants(cores(2, {"fftw": 1.05, "mkl": 1.0}, 9, 4), 10)) == ["mkl"] * 2


def test_a_core_uses_the_measurements_of_its_equal() -> None:
    runs = {"fftw": 3, "mkl": 3}
    first = device("cpu0", {"fftw": 1.0, "mkl": None}, runs)
    second = device("cpu1", {"fftw": None, "mkl": 2.0}, runs)
    choices = choose_variants([first, second], 10)
    assert names(choices) == ["fftw", "fftw"]
    assert choices[1].model is first.models["fftw"]


def test_the_model_of_an_equal_is_scaled_by_the_slowness_of_the_core() -> None:
    runs = {"fftw": 8, "mkl": 1}
    first = known_at("cpu0", {"fftw": 1.0, "mkl": 0.5}, runs)
    second = known_at("cpu1", {"fftw": 2.0}, {"fftw": 8, "mkl": 0})
    choice = choose_variants([first, second], 10)[1]
    assert choice.variant == "mkl"
    assert choice.model is not None
    assert choice.model.total.time(10.0) == 10.0


def known_at(name: str, seconds: Mapping[str, float], runs: Mapping[str, int]) -> Candidate:
    """Models that were measured at 10 units, three times."""
    models = {
        variant: DeviceModel(PiecewiseLinear([(10, 10 * seconds[variant])] * 3), Constant(1.0))
        if variant in seconds
        else None
        for variant in ("fftw", "mkl")
    }
    info = DeviceInfo(name=name, kind="cpu", identity="x")
    return Candidate(info, DEMAND, models, runs)


def test_other_kinds_take_the_first_variant() -> None:
    seconds = {"fftw": 2.0, "mkl": 1.0}
    emulated = [device(f"emu{i}", seconds, {}, "emulated") for i in range(2)]
    assert names(choose_variants(emulated, 10)) == ["fftw", "fftw"]


def measured(pace: float, sizes: Sequence[int]) -> DeviceModel:
    total = PiecewiseLinear((size, pace * size) for size in sizes)
    return DeviceModel(total, total)


def two_variants(
    runs: int, fftw_sizes: Sequence[int], mkl_sizes: Sequence[int]
) -> list[Candidate]:
    models = {"fftw": measured(1.0, fftw_sizes), "mkl": measured(1.2, mkl_sizes)}
    info = DeviceInfo(name="cpu0", kind="cpu", identity="x")
    return [Candidate(info, DEMAND, models, {"fftw": runs, "mkl": len(mkl_sizes)})]


def test_a_share_far_from_the_mean_is_judged_by_its_own_loads() -> None:
    fast = Candidate(
        DeviceInfo(name="cpu0", kind="cpu", identity="y"),
        DEMAND,
        {"fftw": measured(0.05, [1900] * 5)},
        {"fftw": 9},
    )
    (slow,) = two_variants(99, [100] * 9, [100, 100])
    assert names(choose_variants([fast, slow], 1000)) == ["fftw", "fftw"]


def raced(count: int, seconds: Mapping[str, float], units: float = 10.0) -> list[Candidate]:
    """Cores whose variants have raced three times with these seconds per unit."""
    race = Race(1, units, {name: (pace,) * 8 for name, pace in seconds.items()})
    runs = dict.fromkeys(seconds, 3)
    return [
        replace(candidate, races=RaceRecord((race,) * 3))
        for candidate in (device(f"cpu{i}", seconds, runs) for i in range(count))
    ]


def test_on_a_new_machine_all_variants_race_on_all_cores() -> None:
    choices = choose_variants(cores(3, {"fftw": None, "mkl": None, "scipy": None}, 0, 0, 0), 10)

    assert names(choices) == ["fftw"] * 3
    assert {choice.rivals for choice in choices} == {("mkl", "scipy")}
    assert not choices[0].is_exploring


def test_cores_with_few_units_race_fewer_variants_at_once() -> None:
    fresh = cores(2, {"fftw": None, "mkl": None, "scipy": None}, 0, 0, 0)

    assert choose_variants(fresh, 2)[0].rivals == ("mkl",)


def test_a_decided_race_leaves_the_fastest_variant() -> None:
    choices = choose_variants(raced(2, {"fftw": 2.0, "mkl": 1.0}), 10)

    assert [(choice.variant, choice.rivals) for choice in choices] == [("mkl", ())] * 2


def test_races_at_a_much_smaller_load_do_not_count() -> None:
    tiny = raced(2, {"fftw": 1.2, "mkl": 1.0}, units=10)

    assert choose_variants(tiny, 1000)[0].rivals == ("fftw",)
    assert choose_variants(tiny, 30)[0].rivals == ()


def test_a_variant_that_three_runs_have_shown_to_be_slow_does_not_race() -> None:
    models = {"fftw": measured(1.0, [900, 1000, 1100]), "mkl": measured(3.0, [900, 1000, 1100])}
    info = DeviceInfo(name="cpu0", kind="cpu", identity="x")
    candidate = Candidate(info, DEMAND, models, {"fftw": 3, "mkl": 3})

    assert choose_variants([candidate], 1000)[0].rivals == ()
    assert choose_variants([candidate], 10)[0].rivals == ("mkl",)


def test_single_units_are_computed_by_one_variant_on_all_cores_in_each_run() -> None:
    true_seconds = {"fftw": 1.2, "mkl": 1.0, "scipy": 1.5}
    runs = dict.fromkeys(true_seconds, 0)
    chosen = []
    for _ in range(12):
        models = {
            name: measured(pace, [1] * runs[name]) if runs[name] else None
            for name, pace in true_seconds.items()
        }
        pair = [
            Candidate(DeviceInfo(name=f"cpu{i}", kind="cpu", identity="x"), DEMAND, models, runs)
            for i in range(2)
        ]
        (name, other) = names(choose_variants(pair, 1))
        assert name == other
        runs[name] += 1
        chosen.append(name)

    assert chosen[:3] == ["fftw", "mkl", "scipy"]
    assert chosen[9:] == ["mkl"] * 3


def test_a_decided_variant_of_single_units_is_tried_again_after_8_and_32_runs() -> None:
    models = {"fftw": measured(1.0, [1, 1, 1]), "mkl": measured(1.05, [1, 1, 1])}

    def is_tried(runs: int, tries: int) -> bool:
        counts = {"fftw": runs, "mkl": tries}
        member = replace(device("cpu0", {}, counts), models=models)
        return choose_variants([member], 1)[0].is_exploring

    assert [is_tried(runs, 3) for runs in (7, 8, 31)] == [False, True, True]
    assert [is_tried(runs, 4) for runs in (8, 31, 32, 100)] == [False, False, True, True]
    assert not is_tried(100, 5)


def test_the_reasons_name_a_race_only_of_cores_that_take_part() -> None:
    runs = {"fftw": 3, "mkl": 3}
    fast = known_at("cpu0", {"fftw": 1.0, "mkl": 1.0}, runs)
    slow = known_at("cpu1", {"fftw": 10.0, "mkl": 10.0}, runs)

    plan = plan_job(44, [fast, slow])

    racing = {assignment.device for assignment in plan.assignments if assignment.rivals}
    named = {reason.split(":")[0] for reason in plan.reasons if "races against" in reason}
    assert named == racing == {"cpu0"}


def test_pooling_equal_cores_keeps_the_times_of_fresh_processes() -> None:
    cold = ColdRatios(((10, 1.5),))
    learnt = [DeviceModel(curve, curve, cold=cold) for curve in (rows(1.0), rows(1.1))]

    pooled = pooled_models(learnt)

    for before, after in zip(learnt, pooled, strict=True):
        assert after is not None
        assert after.time(10) != before.time(10)
        seconds = after.time(10) * after.cold.ratio(10)
        assert seconds == pytest.approx(1.5 * before.time(10))


def test_equal_cores_are_pooled_once_for_all_plans_of_a_run() -> None:
    learnt = [DeviceModel(curve, curve) for curve in (rows(1.0), rows(1.1))]
    candidates = [
        replace(device(f"cpu{index}", {"rows": 1.0}, {}), models={"rows": model})
        for index, model in enumerate(learnt)
    ]
    cache = PlanCache()
    first, second = (choose_variants(candidates, 10, cache) for _ in range(2))
    assert [choice.model for choice in first] == [choice.model for choice in second]
    assert all(a.model is b.model for a, b in zip(first, second, strict=True))


def rows(seconds: float) -> PiecewiseLinear:
    return PiecewiseLinear([(10, 10 * seconds)] * 3)
