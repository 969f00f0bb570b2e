"""Single cores or a team: which is planned, when a team is tried, when the choice stays."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.device import DeviceInfo
from hetsched.models import DeviceModel, PiecewiseLinear
from hetsched.planner.device_sets.teams import (
    START_SECONDS,
    plan_fixed_shares,
    plan_with_device_sets,
)
from hetsched.planner.rebalancing.rebalancer import Rebalancer
from hetsched.planner.records import Candidate, JobPlan
from hetsched.planner.variants import MIN_TRUSTED_RUNS
from hetsched.plans import MemoryDemand

DEMAND = MemoryDemand(input_bytes=64, work_bytes=0, output_bytes=64)


def device(info: DeviceInfo, seconds: dict[str, float | None], size: int, runs: int) -> Candidate:
    """A device that took so many seconds a unit, for `size` units, each time it was run."""
    models = {}
    for variant, pace in seconds.items():
        curve = None if pace is None else PiecewiseLinear([(size, size * pace)] * runs)
        models[variant] = None if curve is None else DeviceModel(curve, curve)
    run_counts = {variant: runs if model else 0 for variant, model in models.items()}
    return Candidate(info, DEMAND, models, run_counts)


def cores(count: int, size: int = 1, **seconds: float | None) -> list[Candidate]:
    infos = [DeviceInfo(name=f"cpu{i}", kind="cpu", identity="x") for i in range(count)]
    return [device(info, seconds, size, 9) for info in infos]


def team(count: int, size: int = 1, runs: int = 9, **seconds: float | None) -> Candidate:
    members = tuple(f"cpu{i}" for i in range(count))
    info = DeviceInfo(name="team0", kind="cpu", identity=f"x x{count} threads", members=members)
    return device(info, seconds, size, runs)


def who(plan: JobPlan) -> dict[str, int]:
    return {assignment.device: assignment.plan.share for assignment in plan.assignments}


def reason(plan: JobPlan, name: str) -> str:
    (matching,) = [text for text in plan.reasons if text.startswith(f"{name}: ")]
    return matching


def test_a_single_unit_is_computed_by_a_team_that_is_six_times_as_fast() -> None:
    plan = plan_with_device_sets(1, [*cores(8, fft=0.060), team(8, fft=0.010)])

    assert who(plan) == {"team0": 1}
    assert plan.predicted_seconds == pytest.approx(0.010)
    assert reason(plan, "cpu3") == "cpu3: no share, team0 finishes sooner (10 ms against 60 ms)"


def test_many_small_units_are_computed_by_single_cores() -> None:
    plan = plan_with_device_sets(800, [*cores(8, 100, fft=0.002), team(8, 800, fft=0.002 / 6)])

    assert who(plan) == {f"cpu{i}": 100 for i in range(8)}
    assert "enough small units" in reason(plan, "team0")


def test_units_that_would_leave_cores_waiting_are_computed_by_the_team() -> None:
    nine = [*cores(8, fft=0.010), team(8, fft=0.010 / 6)]

    assert who(plan_with_device_sets(9, nine)) == {"team0": 9}
    assert who(plan_with_device_sets(8, nine)) == {f"cpu{i}": 1 for i in range(8)}


def test_a_team_is_considered_for_many_large_units() -> None:
    fast = plan_with_device_sets(101, [*cores(4, fft=0.1), team(4, 101, fft=0.02)])
    slow = plan_with_device_sets(101, [*cores(4, fft=0.1), team(4, 101, fft=0.03)])

    assert who(fast) == {"team0": 101}
    assert reason(slow, "team0").endswith("sooner separately (2.6 s against 3.03 s)")


def test_other_devices_work_beside_a_team() -> None:
    other = device(DeviceInfo(name="emu0", kind="emulated", identity="e"), {"fft": 0.01}, 1, 9)

    plan = plan_with_device_sets(4, [*cores(4, fft=0.04), team(4, fft=0.01), other])

    assert who(plan) == {"team0": 2, "emu0": 2}


def test_a_team_is_not_tried_before_its_cores_are_measured() -> None:
    plan = plan_with_device_sets(1, [*cores(2, fft=None), team(2, fft=None)])

    assert who(plan) == {"cpu0": 1}
    assert reason(plan, "team0") == "team0: no share, its cores must be measured first"


@pytest.mark.parametrize(
    ("load", "seconds", "is_tried"),
    [(1, 0.001, True), (1, 0.0004, False), (800, 0.010, False), (800, 0.030, True)],
)
def test_a_team_is_tried_only_where_it_could_pay(
    load: int, seconds: float, is_tried: bool
) -> None:
    plan = plan_with_device_sets(load, [*cores(2, fft=seconds), team(2, fft=None)])

    assert ("team0" in who(plan)) == is_tried
    assert plan.is_exploring == is_tried


@pytest.mark.parametrize(("load", "runs", "is_tried"), [(1, 2, True), (1, 3, False), (5, 9, True)])
def test_a_team_is_tried_a_few_times_at_similar_loads(
    load: int, runs: int, is_tried: bool
) -> None:
    plan = plan_with_device_sets(
        load, [*cores(2, fft=0.050), team(2, 1, runs, fft=0.035)], ["cpu0", "cpu1"]
    )

    assert plan.is_exploring == is_tried


@pytest.mark.parametrize(("seconds", "is_tried"), [(0.030, True), (0.035, False)])
def test_a_team_that_was_slow_at_other_loads_is_not_tried(seconds: float, is_tried: bool) -> None:
    plan = plan_with_device_sets(8, [*cores(2, fft=0.050), team(2, fft=seconds)], ["cpu0", "cpu1"])

    assert plan.is_exploring == is_tried


def test_a_team_tries_the_variants_that_are_fast_on_its_cores_the_fastest_first() -> None:
    single = cores(2, slow=0.2, right=0.050, fast=0.048, odd=0.070)
    unmeasured = team(2, slow=None, right=None, fast=None, odd=None)

    first = plan_with_device_sets(1, [*single, unmeasured])
    measured_once = team(2, runs=MIN_TRUSTED_RUNS, slow=None, right=None, fast=0.030, odd=None)
    second = plan_with_device_sets(1, [*single, measured_once])
    measured_twice = team(2, runs=MIN_TRUSTED_RUNS, slow=None, right=0.025, fast=0.030, odd=None)
    third = plan_with_device_sets(1, [*single, measured_twice])

    assert [p.assignments[0].variant for p in (first, second, third)] == ["fast", "right", "right"]
    assert [p.is_exploring for p in (first, second, third)] == [True, True, False]


def test_a_team_that_is_slow_tries_no_other_variant() -> None:
    slow = team(2, runs=MIN_TRUSTED_RUNS, right=None, fast=0.060)

    assert who(plan_with_device_sets(1, [*cores(2, right=0.050, fast=0.048), slow])) == {"cpu0": 1}


def test_a_team_is_started_once_as_many_further_jobs_would_repay_it() -> None:
    asleep = replace(team(2, fft=0.04), needs_start=True)
    unknown = replace(team(2, fft=None), needs_start=True)
    single, repaying_jobs = cores(2, fft=0.09), round(START_SECONDS / 2 / (0.09 - 0.04)) + 1
    plan = plan_with_device_sets

    assert who(plan(1, [*single, asleep], runs=repaying_jobs // 2)) == {"cpu0": 1}
    assert who(plan(1, [*single, asleep], runs=repaying_jobs)) == {"team0": 1}
    assert who(plan(1, [*single, unknown], runs=repaying_jobs // 2)) == {"cpu0": 1}
    assert who(plan(1, [*single, unknown], runs=2 * repaying_jobs)) == {"team0": 1}


def test_jobs_before_the_rebalancer_count_as_jobs_that_repay_a_start() -> None:
    candidates = [*cores(2, fft=0.09), replace(team(2, fft=0.04), needs_start=True)]
    names = [candidate.info.name for candidate in candidates]

    assert who(Rebalancer(1, names).replan(candidates)) == {"cpu0": 1}
    assert who(Rebalancer(1, names).replan(candidates, past_jobs=100)) == {"team0": 1}


def test_a_team_that_saves_more_than_its_start_is_started_at_once() -> None:
    asleep = replace(team(2, fft=1.0), needs_start=True)

    assert who(plan_with_device_sets(1, [*cores(2, fft=2.0), asleep])) == {"team0": 1}


def test_noise_does_not_make_the_choice_alternate() -> None:
    draw = random.Random(3)
    choices: dict[str, list[tuple[float, float]]] = {
        "cpu": [(1, 0.05)] * 3,
        "team": [(1, 0.05)] * 3,
    }
    now: set[str] = set()
    ways = []
    for _ in range(300):
        curves = {name: PiecewiseLinear(times) for name, times in choices.items()}
        models = {name: {"fft": DeviceModel(curve, curve)} for name, curve in curves.items()}
        single = [replace(candidate, models=models["cpu"]) for candidate in cores(2, fft=0.05)]
        plan = plan_with_device_sets(
            1, [*single, replace(team(2, fft=0.05), models=models["team"])], now
        )
        now = set(who(plan))
        ways.append("team" if "team0" in now else "cpu")
        choices[ways[-1]].append((1, 0.05 * draw.gauss(1, 0.02)))

    assert sum(before != after for before, after in pairwise(ways)) <= 1


def test_the_choice_changes_for_a_gain_above_noise() -> None:
    for seconds, present, way in [
        (0.048, "cpu0", "cpu0"),
        (0.048, "team0", "team0"),
        (0.052, "team0", "team0"),
        (0.040, "cpu0", "team0"),
        (0.060, "team0", "cpu0"),
    ]:
        plan = plan_with_device_sets(1, [*cores(2, fft=0.050), team(2, fft=seconds)], [present])
        assert who(plan) == {way: 1}, (seconds, present)


def test_a_plan_has_the_curves_of_both_options() -> None:
    plan = plan_with_device_sets(1, [*cores(2, fft=0.05), team(2, fft=0.01)])

    assert set(plan.curves) == {"cpu0", "cpu1", "team0"}


@pytest.mark.parametrize("fixed_shares", [{"cpu0": 1, "cpu1": 2}, {"team0": 3}])
def test_fixed_shares_stay(fixed_shares: dict[str, int]) -> None:
    plan = plan_fixed_shares(3, [*cores(2, fft=0.05), team(2, fft=0.01)], fixed_shares)

    assert who(plan) == fixed_shares


def test_a_team_without_its_cores_is_a_device_like_others() -> None:
    assert who(plan_with_device_sets(5, [team(2, fft=None)])) == {"team0": 5}


paces = st.one_of(st.none(), st.floats(1e-4, 0.2))


@given(st.integers(1, 60), st.lists(paces, min_size=2, max_size=5), paces, st.booleans())
def test_a_team_and_its_cores_never_work_together(
    load: int, seconds: list[float | None], team_seconds: float | None, asleep: bool
) -> None:
    single = [cores(i + 1, fft=pace)[i] for i, pace in enumerate(seconds)]
    plan = plan_with_device_sets(
        load, [*single, replace(team(len(single), fft=team_seconds), needs_start=asleep)]
    )

    assert sum(who(plan).values()) == load
    assert "team0" not in who(plan) or who(plan) == {"team0": load}
