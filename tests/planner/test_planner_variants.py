from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from benchmarks.learning.variants import equal_cores
from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Constant, DeviceModel, PiecewiseLinear
from hetsched.models.races import Race, RaceRecord
from hetsched.planner.job_planner import plan_job
from hetsched.planner.learning import DeviceRun, Run, learn
from hetsched.planner.neighbours import co_runners_end, co_runners_of
from hetsched.planner.planner import Planner
from hetsched.planner.records import Candidate, JobPlan
from hetsched.planner.variants import Choice, choose_variants

VARIANTS = ("a", "b", "c")
DEMAND = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1)


def raced(races: int = 1, units: float = 10.0, **paces: float) -> RaceRecord:
    race = Race(0, units, {name: (pace,) * 6 for name, pace in paces.items()})
    return RaceRecord((race,) * races)


def race_plan(units: int = 48, cores: int = 2) -> JobPlan:
    models = dict.fromkeys(VARIANTS)
    candidates = [
        Candidate(DeviceInfo(name=f"cpu{i}", kind="cpu", identity="x"), DEMAND, models, {})
        for i in range(cores)
    ]
    return Planner(units).next(candidates)


def test_the_cores_of_a_plan_run_each_chunk_with_the_same_variant() -> None:
    plan = race_plan(49)
    first, second = plan.assignments

    assert first.variants == second.variants == VARIANTS
    assert [c.kernel for c in first.chunks] == [c.kernel for c in second.chunks]
    assert [c.kernel for c in first.chunks][:9] == [0, 1, 2, 2, 1, 0, 0, 1, 2]
    assert plan.trial
    assert sum(chunk.count for a in plan.assignments for chunk in a.chunks) == 49


def test_a_run_yields_samples_of_each_variant_and_a_race() -> None:
    plan = race_plan()
    machine = equal_cores(2, 48, {"a": 1.0, "b": 2.0, "c": 3.0})
    timings = machine.play(plan)
    runs = {
        a.device: DeviceRun(a, core(int(a.device[3:])), timings[a.device])
        for a in plan.assignments
    }

    lessons = learn(Run(plan, runs))

    totals = {
        variant: [(s.units, s.seconds) for s in found if s.curve == "total"]
        for (device, variant, _), found in lessons.samples.items()
        if device == "cpu0"
    }
    assert totals == {"a": [(24, 24.0)], "b": [(24, 48.0)], "c": [(24, 72.0)]}
    (race,) = lessons.races.values()
    assert race.units == 24
    found = RaceRecord((race,)).compare("c", "a")
    assert found is not None
    assert round(found.ratio, 6) == 3.0


def raced_cores(record: RaceRecord, **paces: float | None) -> list[Candidate]:
    curves = {n: PiecewiseLinear([(48, 48 * pace)]) for n, pace in paces.items() if pace}
    models = {n: DeviceModel(curves[n], curves[n]) if n in curves else None for n in paces}
    info = DeviceInfo(name="cpu0", kind="cpu", identity="x")
    return [Candidate(info, DEMAND, models, dict.fromkeys(paces, 3), races=record)]


def test_a_variant_that_may_still_gain_races_again_and_one_that_cannot_does_not() -> None:
    unsure = RaceRecord((Race(1, 48.0, {"a": (1.0, 1.1), "b": (1.01, 1.0), "c": (1.5, 1.6)}),))
    sure = raced(races=3, units=48.0, a=1.0, b=1.01, c=1.5)

    plans = [
        Planner(48).next(raced_cores(record, a=1.0, b=1.0, c=1.5), runs=5)
        for record in (unsure, sure)
    ]

    assert [plan.assignments[0].variants for plan in plans] == [("a", "b"), ("a",)]


def test_a_new_variant_races_against_the_best_only() -> None:
    record = raced(races=3, units=48.0, a=1.0, b=1.1)
    plan = Planner(48).next(raced_cores(record, a=1.0, b=1.1, c=None), runs=5)

    assert plan.assignments[0].variants == ("a", "c")


def test_the_plan_says_what_races_and_what_races_have_shown() -> None:
    models = dict.fromkeys(VARIANTS)
    info = DeviceInfo(name="cpu0", kind="cpu", identity="x")
    record = raced(races=3, a=1.0, b=1.4, c=1.01)

    first = Planner(20).next([Candidate(info, DEMAND, models, {})]).reasons
    later = plan_job(20, [Candidate(info, DEMAND, models, {}, races=record)]).reasons

    assert first[0].endswith("no measurements for a yet, which races against b, c")
    assert later[1] == (
        "cpu0: a is the fastest in 3 races: c takes 1.01 times as long, b takes 1.40 times as long"
    )


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


def core(number: int, node: int | None = None) -> DeviceInfo:
    return DeviceInfo(name=f"cpu{number}", kind="cpu", identity="c", numa_node=node)


GPU = DeviceInfo(name="gpu0", kind="cuda", identity="g", link=True)
CORES = [core(number) for number in range(8)]
TEAM = DeviceInfo(
    name="team0", kind="cpu", identity="t", members=tuple(info.name for info in CORES)
)
MACHINE = [GPU, *CORES, TEAM]


def planned(*infos: DeviceInfo) -> dict[str, str]:
    return dict(co_runners_of(infos, MACHINE))


@pytest.mark.parametrize(
    ("cores", "beside"), [(0, "none"), (1, "some"), (5, "some"), (6, "all"), (8, "all")]
)
def test_a_gpu_runs_beside_none_some_or_nearly_all_of_the_cores(cores: int, beside: str) -> None:
    assert planned(GPU, *CORES[:cores])["gpu0"] == beside


def test_a_core_without_the_gpu_runs_beside_some_of_its_neighbours() -> None:
    assert planned(*CORES)["cpu0"] == "some"
    assert planned(GPU, *CORES)["cpu0"] == "all"
    assert planned(CORES[3]) == {"cpu3": "none"}


def test_a_team_counts_as_its_cores_and_is_no_neighbour_of_itself() -> None:
    assert planned(GPU, TEAM) == {"gpu0": "all", "team0": "all"}
    assert planned(TEAM) == {"team0": "none"}


def test_cores_of_another_numa_node_are_no_neighbours() -> None:
    machine = [core(number, node=number // 2) for number in range(4)]

    beside = co_runners_of(machine[:3], machine)

    assert beside == {"cpu0": "all", "cpu1": "all", "cpu2": "none"}


def test_co_runners_are_beside_a_device_until_the_first_of_them_has_finished() -> None:
    ends = [(GPU, 1.0), (CORES[0], 3.0), (CORES[1], 2.0)]
    assert co_runners_end([GPU, *CORES[:2]], ends) == {"gpu0": 2.0, "cpu0": 1.0, "cpu1": 1.0}
    assert co_runners_end([GPU, CORES[0]], ends[:1]) == {"gpu0": math.inf, "cpu0": 1.0}
