from collections.abc import Mapping

from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Constant, DeviceModel, PiecewiseLinear
from hetsched.planner.records import Candidate
from hetsched.planner.variants import Choice, choose_variants

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


def names(choices: list[Choice]) -> list[str]:
    return [variant for variant, _ in choices]


def test_the_measured_best_runs_whatever_the_order_of_preference() -> None:
    assert names(choose_variants(cores(3, {"fftw": 2.0, "mkl": 1.0}, 3, 3), 10)) == ["mkl"] * 3


def test_of_equally_fast_variants_the_one_with_the_most_runs_stays() -> None:
    assert names(choose_variants(cores(2, {"fftw": 1.015, "mkl": 1.0}, 9, 4), 10)) == ["fftw"] * 2
    assert names(choose_variants(cores(2, {"fftw": 1.0, "mkl": 1.02}, 9, 4), 10)) == ["fftw"] * 2
    assert names(choose_variants(cores(2, {"fftw": 1.05, "mkl": 1.0}, 9, 4), 10)) == ["mkl"] * 2


def test_the_model_of_an_equal_is_scaled_by_the_slowness_of_the_core() -> None:
    runs = {"fftw": 8, "mkl": 1}
    first = known_at("cpu0", {"fftw": 1.0, "mkl": 0.5}, runs)
    second = known_at("cpu1", {"fftw": 2.0}, {"fftw": 8, "mkl": 0})
    variant, model = choose_variants([first, second], 10)[1]
    assert variant == "mkl"
    assert model is not None
    assert model.total.time(10.0) == 10.0


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
