"""Which variant each device runs: bounded exploration, then the measured best."""

from collections.abc import Mapping, Sequence

from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Constant, DeviceModel, PiecewiseLinear
from hetsched.planner.records import Candidate
from hetsched.planner.variants import VariantChoice, choose_variants

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


def test_a_new_machine_distributes_its_variants_over_equal_cores() -> None:
    fresh = cores(5, {"fftw": None, "mkl": None, "scipy": None}, 0, 0, 0)
    assert names(choose_variants(fresh, 10)) == ["fftw", "mkl", "scipy", "fftw", "mkl"]


def test_a_single_core_without_models_tries_the_variant_with_the_fewest_runs() -> None:
    assert names(choose_variants(cores(1, {"fftw": None, "mkl": None}, 1, 0), 10)) == ["mkl"]


def test_equal_cores_try_all_unmeasured_variants_at_once() -> None:
    group = cores(4, {"fftw": 1.0, "mkl": None, "ducc": None, "scipy": None}, 1, 0, 0, 0)
    choices = choose_variants(group, 10)
    assert sorted(names(choices)) == ["ducc", "fftw", "mkl", "scipy"]
    assert sorted(c.is_exploring for c in choices) == [False, True, True, True]


def test_a_single_core_explores_every_other_run() -> None:
    seconds = {"fftw": 1.0, "scipy": None}
    assert names(choose_variants(cores(1, seconds, 1, 0), 10)) == ["fftw"]
    assert names(choose_variants(cores(1, seconds, 2, 0), 10)) == ["scipy"]


def test_the_measured_best_runs_whatever_the_order_of_preference() -> None:
    assert names(choose_variants(cores(3, {"fftw": 2.0, "mkl": 1.0}, 3, 3), 10)) == ["mkl"] * 3


def test_of_equally_fast_variants_the_one_with_the_most_runs_stays() -> None:
    assert names(choose_variants(cores(2, {"fftw": 1.02, "mkl": 1.0}, 9, 4), 10)) == ["fftw"] * 2
    assert names(choose_variants(cores(2, {"fftw": 1.0, "mkl": 1.02}, 9, 4), 10)) == ["fftw"] * 2
    assert names(choose_variants(cores(2, {"fftw": 1.05, "mkl": 1.0}, 9, 4), 10)) == ["mkl"] * 2


def test_a_close_variant_gets_another_try_much_later_and_a_slow_one_does_not() -> None:
    seconds = {"fftw": 1.0, "mkl": 1.2, "scipy": 3.0}
    assert names(choose_variants(cores(2, seconds, 7, 1, 1), 10)) == ["fftw", "fftw"]
    assert sorted(names(choose_variants(cores(2, seconds, 8, 1, 1), 10))) == ["fftw", "mkl"]
    assert names(choose_variants(cores(2, seconds, 80, 3, 1), 10)) == ["fftw", "fftw"]


def test_a_core_that_has_not_run_a_variant_retries_it_first() -> None:
    runs = {"fftw": 8, "mkl": 1}
    first = device("cpu0", {"fftw": 1.0, "mkl": 1.2}, runs)
    second = device("cpu1", {"fftw": 1.0, "mkl": None}, {"fftw": 8, "mkl": 0})
    assert names(choose_variants([first, second], 10)) == ["fftw", "mkl"]


def test_a_core_uses_the_measurements_of_its_equal() -> None:
    runs = {"fftw": 3, "mkl": 3}
    first = device("cpu0", {"fftw": 1.0, "mkl": None}, runs)
    second = device("cpu1", {"fftw": None, "mkl": 2.0}, runs)
    choices = choose_variants([first, second], 10)
    assert names(choices) == ["fftw", "fftw"]
    assert choices[1].model is first.models["fftw"]


def test_cores_that_have_measured_the_best_variant_explore_first() -> None:
    runs = {"fftw": 1, "mkl": 1, "ducc": 0}
    first = device("cpu0", {"fftw": 1.0, "mkl": None, "ducc": None}, runs)
    second = device("cpu1", {"fftw": None, "mkl": 2.0, "ducc": None}, runs)
    assert names(choose_variants([first, second], 10)) == ["ducc", "fftw"]


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


def test_two_cores_measure_four_variants_in_two_runs() -> None:
    true_seconds = {"fftw": 1.0, "mkl": 2.0, "ducc": 3.0, "scipy": 4.0}
    measured_seconds: list[dict[str, float | None]] = [dict.fromkeys(true_seconds) for _ in "01"]
    runs = [dict.fromkeys(true_seconds, 0) for _ in "01"]
    for _ in range(2):
        pair = [device(f"cpu{i}", measured_seconds[i], runs[i]) for i in range(2)]
        for index, name in enumerate(names(choose_variants(pair, 10))):
            measured_seconds[index][name] = true_seconds[name]
            runs[index][name] += 1
    assert all(measured_seconds[0][name] or measured_seconds[1][name] for name in true_seconds)
    pair = [device(f"cpu{i}", measured_seconds[i], runs[i]) for i in range(2)]
    assert names(choose_variants(pair, 10)) == ["fftw", "fftw"]


def measured(pace: float, sizes: Sequence[int]) -> DeviceModel:
    total = PiecewiseLinear((size, pace * size) for size in sizes)
    return DeviceModel(total, total)


def two_variants(
    runs: int, fftw_sizes: Sequence[int], mkl_sizes: Sequence[int]
) -> list[Candidate]:
    models = {"fftw": measured(1.0, fftw_sizes), "mkl": measured(1.2, mkl_sizes)}
    info = DeviceInfo(name="cpu0", kind="cpu", identity="x")
    return [Candidate(info, DEMAND, models, {"fftw": runs, "mkl": len(mkl_sizes)})]


def test_a_variant_judged_by_tiny_runs_is_tried_again_at_a_much_larger_load() -> None:
    tiny = two_variants(9, [10] * 5 + [1000], [10, 10, 10])
    assert names(choose_variants(tiny, 1000)) == ["mkl"]
    assert names(choose_variants(tiny, 11)) == ["fftw"]


def test_a_larger_load_is_run_by_the_best_variant_first_and_by_others_occasionally() -> None:
    assert names(choose_variants(two_variants(9, [10] * 5, [10, 10, 10]), 1000)) == ["fftw"]
    once = [10, 10, 10, 900]
    assert names(choose_variants(two_variants(9, [10] * 5 + [1000], once), 1000)) == ["fftw"]
    assert names(choose_variants(two_variants(32, [10] * 5 + [1000], once), 1000)) == ["mkl"]


def test_three_runs_at_a_load_suffice() -> None:
    trusted = two_variants(99, [1000] * 5, [900, 1000, 1100])
    assert names(choose_variants(trusted, 1000)) == ["fftw"]


def test_two_runs_suffice_only_if_they_agree() -> None:
    assert names(choose_variants(two_variants(99, [1000] * 5, [900, 1000]), 1000)) == ["fftw"]
    odd = DeviceModel(PiecewiseLinear([(900, 1500.0), (1000, 1200.0)]), Constant(1.0))
    info, best = DeviceInfo(name="cpu0", kind="cpu", identity="x"), measured(1.0, [1000] * 5)
    candidate = Candidate(info, DEMAND, {"fftw": best, "mkl": odd}, {"fftw": 99, "mkl": 2})
    assert names(choose_variants([candidate], 1000)) == ["mkl"]


def test_a_share_far_from_the_mean_is_judged_by_its_own_loads() -> None:
    fast = Candidate(
        DeviceInfo(name="cpu0", kind="cpu", identity="y"),
        DEMAND,
        {"fftw": measured(0.05, [1900] * 5)},
        {"fftw": 9},
    )
    (slow,) = two_variants(99, [100] * 9, [100, 100])
    assert names(choose_variants([fast, slow], 1000)) == ["fftw", "fftw"]


def test_a_variant_whose_time_is_only_presumed_is_tried_once() -> None:
    total = PiecewiseLinear(near=1.5, observations=[(1000, 1200.0)] * 5)
    windows = total._windows
    windows.apply_change(2.0)
    models = {
        "fftw": measured(2.0, [1000] * 5),
        "mkl": DeviceModel(PiecewiseLinear.of(windows), Constant(1.0)),
    }
    info = DeviceInfo(name="cpu0", kind="cpu", identity="x")
    runs = {"fftw": 99, "mkl": 5}
    assert names(choose_variants([Candidate(info, DEMAND, models, runs)], 1000)) == ["mkl"]
    windows.add(1000, 2400.0)
    models["mkl"] = DeviceModel(PiecewiseLinear.of(windows), Constant(1.0))
    assert names(choose_variants([Candidate(info, DEMAND, models, runs)], 1000)) == ["fftw"]
