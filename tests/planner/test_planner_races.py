from __future__ import annotations

from benchmarks.learning.variants import equal_cores
from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, PiecewiseLinear
from hetsched.models.races import Race, RaceRecord
from hetsched.planner.job_planner import plan_job
from hetsched.planner.planner import Planner
from hetsched.planner.races import race_of, variant_samples
from hetsched.planner.records import Candidate, JobPlan

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
    machine = equal_cores(2, 48, VARIANTS, lambda variant, others: 1.0 + VARIANTS.index(variant))
    timings = machine.play(plan)

    samples = variant_samples(plan.assignments[0], timings["cpu0"])
    race = race_of(5, plan.assignments, timings)

    totals = {
        v: [(s.units, s.seconds) for s in found if s.curve == "total"]
        for v, found in samples.items()
    }
    assert totals == {"a": [(24, 24.0)], "b": [(24, 48.0)], "c": [(24, 72.0)]}
    assert race is not None
    assert (race.number, race.units) == (5, 24)
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
