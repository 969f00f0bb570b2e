from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.device import DeviceInfo
from hetsched.explain import Explanation
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PhaseCurve, PiecewiseLinear
from hetsched.models.samples import CoRunners
from hetsched.planner.explanation import explain_job
from hetsched.planner.planner import Planner
from hetsched.planner.records import Candidate, JobPlan

DEMAND = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1)
Seconds = Mapping[str, float | None]


def measured(pace: float, units: int = 1, runs: int = 9) -> DeviceModel:
    curve = PiecewiseLinear([(units, units * pace)] * runs)
    return DeviceModel(curve, curve)


def core(number: int, seconds: Seconds, *, runs: int = 9, identity: str = "core") -> Candidate:
    """A core that takes so many seconds a unit by each variant; None: unmeasured."""
    models = {name: None if s is None else measured(s, runs=runs) for name, s in seconds.items()}
    counts = {name: runs if model else 0 for name, model in models.items()}
    info = DeviceInfo(name=f"cpu{number}", kind="cpu", identity=identity)
    return Candidate(info, DEMAND, models, counts)


def cores(count: int, **seconds: float | None) -> list[Candidate]:
    return [core(number, seconds) for number in range(count)]


def unlike(*paces: float) -> list[Candidate]:
    return [core(n, {"v": pace}, identity=f"core {n}") for n, pace in enumerate(paces)]


def shares(plan: JobPlan) -> dict[str, int]:
    return plan.shares


def run(planner: Planner, beliefs: list[Candidate], *paces: float) -> JobPlan:
    """Plan by `beliefs`, and run with these seconds per unit."""
    plan = planner.next(beliefs)
    planner.report(plan, {a.device: paces[int(a.device[3:])] for a in plan.assignments})
    return plan


def probed(plan: JobPlan) -> list[str]:
    return [a.device for a in plan.assignments if a.is_probe]


# ---- devices without a share


def test_a_device_that_has_become_slow_is_probed_less_and_less_often() -> None:
    planner, slow = Planner(8), unlike(1, 1, 6)
    run(planner, unlike(1, 1, 1), 1, 1, 1)

    plans = []
    for _ in range(60):
        plans.append(run(planner, slow, 1, 1, 6))
        if probed(plans[-1]):
            slow[2] = replace(slow[2], run_counts={"v": slow[2].run_counts["v"] + 1})

    probes = [number for number, plan in enumerate(plans) if probed(plan)]
    gaps = [later - earlier for earlier, later in pairwise(probes)]
    assert 3 <= len(probes) <= 20
    assert gaps[-1] > gaps[0]
    assert all(plan.shares == {"cpu0": 4, "cpu1": 4} for plan in plans if not plan.trial)
    assert plans[probes[0]].load == 8


def test_a_probe_that_is_never_measured_is_tried_three_times() -> None:
    planner, slow = Planner(8), unlike(1, 1, 6)
    run(planner, unlike(1, 1, 1), 1, 1, 1)

    assert sum(bool(probed(planner.next(slow))) for _ in range(60)) == 3


def test_a_device_that_never_was_faster_is_not_probed() -> None:
    planner = Planner(8)

    assert not any(probed(run(planner, unlike(1, 1, 60), 1, 1, 60)) for _ in range(100))


def test_idle_runs_of_earlier_processes_count() -> None:
    slow = replace(core(2, {"v": 6.0}, runs=5), idle_runs=1, slow_runs=400)
    long_ago = replace(slow, idle_runs=200)
    others = [core(n, {"v": 1.0}, runs=500) for n in range(2)]

    assert not probed(Planner(8).next([*others, slow]))
    assert probed(Planner(8).next([*others, long_ago])) == ["cpu2"]


# ---- sets of devices

LOAD = 400
GPU = DeviceInfo(name="gpu0", kind="cuda", identity="g", link=True, engines=2)
CORES = tuple(DeviceInfo(name=f"cpu{i}", kind="cpu", identity="c") for i in range(2))
UNIT = {"gpu0": 0.67e-3, "cpu0": 7.26e-3, "cpu1": 7.26e-3}
"""Seconds per unit beside all others."""
SHARES = {"gpu0": 338, "cpu0": 31, "cpu1": 31}


def beside(info: DeviceInfo, measurements: dict[CoRunners, tuple[float, int]]) -> Candidate:
    """A device with seconds per unit and runs, by its co-runners."""
    models = {
        key: {"fft": measured(pace, LOAD if key == "none" else SHARES[info.name], runs)}
        for key, (pace, runs) in measurements.items()
    }
    counts = {key: {"fft": runs} for key, (_, runs) in measurements.items()}
    total = sum(runs for _, runs in measurements.values())
    return Candidate(
        info, DEMAND, {"fft": None}, {"fft": total}, models_beside=models, runs_beside=counts
    )


def machine(gpu_alone: tuple[float, int] | None = None, runs: int = 9) -> list[Candidate]:
    """The GPU and the cores, measured beside all and some others, and perhaps the GPU alone."""
    candidates = [
        beside(info, dict.fromkeys(("all", "some"), (UNIT[info.name], runs)))
        for info in (GPU, *CORES)
    ]
    if gpu_alone is not None:
        known = dict.fromkeys(("all", "some"), (UNIT["gpu0"], runs))
        candidates[0] = beside(GPU, {**known, "none": gpu_alone})
    return candidates


def test_a_set_that_may_gain_is_tried() -> None:
    plan = Planner(LOAD).next(machine())

    assert shares(plan) == {"gpu0": LOAD}
    assert plan.trial == "the job with gpu0 only, which may be faster"
    (chosen,) = [option for option in plan.weighed if option.is_tried]
    assert chosen.gain > chosen.cost
    explained = str(
        explain_job(Explanation(job=None, state="planned", workload="fft", load=LOAD), plan)
    )
    assert f"{chosen.what}: gains" in explained.replace("\n", " ")


@pytest.mark.parametrize(
    ("alone", "runs", "devices"), [(0.50e-3, 3, {"gpu0"}), (0.58e-3, 3, set(SHARES))]
)
def test_a_measured_set_is_kept_if_it_is_faster(
    alone: float, runs: int, devices: set[str]
) -> None:
    plan = Planner(LOAD).next(machine((alone, runs)))

    assert (set(shares(plan)), plan.trial) == (devices, "")


# ---- core teams


def team(count: int, runs: int = 9, *, units: int = 1, **seconds: float | None) -> Candidate:
    members = tuple(f"cpu{number}" for number in range(count))
    info = DeviceInfo(name="team0", kind="cpu", identity="core x threads", members=members)
    models = {n: None if s is None else measured(s, units, runs) for n, s in seconds.items()}
    counts = {name: runs if model else 0 for name, model in models.items()}
    return Candidate(info, DEMAND, models, counts)


def planned(load: int, candidates: list[Candidate], runs: int = 9) -> JobPlan:
    return Planner(load).next(candidates, runs=runs)


def reason(plan: JobPlan, name: str) -> str:
    (matching,) = [text for text in plan.reasons if text.startswith(f"{name}: ")]
    return matching


def test_a_single_unit_is_computed_by_a_team_that_is_six_times_as_fast() -> None:
    plan = planned(1, [*cores(8, fft=0.060), team(8, fft=0.010)])

    assert shares(plan) == {"team0": 1}
    assert plan.predicted_seconds == pytest.approx(0.010)
    assert reason(plan, "cpu3") == "cpu3: no share, team0 finishes sooner"


@pytest.mark.parametrize(
    ("load", "core_seconds", "team_units", "is_team"),
    [(800, 0.002, 800, False), (9, 0.010, 1, True), (8, 0.010, 1, False)],
    ids=["many small units", "a unit too many", "a unit for each"],
)
def test_a_team_computes_units_that_would_leave_cores_waiting(
    load: int, core_seconds: float, team_units: int, is_team: bool
) -> None:
    all_of_them = [*cores(8, fft=core_seconds), team(8, units=team_units, fft=core_seconds / 6)]

    plan = planned(load, all_of_them)

    separately = {f"cpu{i}": load // 8 for i in range(8)}
    assert shares(plan) == ({"team0": load} if is_team else separately)
    if load == 800:
        assert reason(plan, "team0").endswith("the job is faster with cpu0 to cpu7 only")


@pytest.mark.parametrize(("load", "is_tried"), [(1, True), (2, False), (800, False)])
def test_a_team_is_tried_where_cores_would_idle(load: int, is_tried: bool) -> None:
    plan = planned(load, [*cores(2, fft=0.01), team(2, fft=None)])

    assert ("team0" in shares(plan)) == bool(plan.trial) == is_tried


def test_a_team_tries_the_variants_that_are_fast_on_its_cores() -> None:
    single = cores(2, slow=0.2, right=0.050, fast=0.048)
    unmeasured = team(2, slow=None, right=None, fast=None)
    measured_once = team(2, slow=None, right=None, fast=0.030)
    measured_twice = team(2, slow=None, right=0.025, fast=0.030)

    planner = Planner(1)
    teams = [unmeasured, measured_once, measured_once, measured_twice]
    plans = [planner.next([*single, each], runs=9) for each in teams]

    assert [plan.assignments[0].variant for plan in plans] == ["fast", "fast", "right", "right"]
    assert [plan.assignments[0].device for plan in plans] == ["team0"] * 4
    assert [bool(plan.trial) for plan in plans] == [True, False, True, False]


def test_a_team_is_started_once_as_many_further_jobs_would_repay_it() -> None:
    asleep = replace(team(2, fft=0.04), needs_start=True)
    single = cores(2, fft=0.055)

    assert "team0" not in shares(planned(1, [*single, asleep], runs=9))
    assert shares(planned(1, [*single, asleep], runs=100)) == {"team0": 1}


def test_the_choice_stays_unless_the_gain_is_above_noise() -> None:
    planner, single = Planner(1), cores(2, fft=0.050)
    chosen = [
        next(iter(planner.next([*single, team(2, fft=seconds)], runs=9).shares))
        for seconds in (0.0495, 0.040, 0.0505, 0.060)
    ]

    assert chosen == ["cpu0", "team0", "team0", "cpu0"]


some_pace = st.one_of(st.none(), st.floats(1e-4, 0.2))


@given(st.integers(1, 60), st.lists(some_pace, min_size=2, max_size=5), some_pace, st.booleans())
def test_a_team_and_its_cores_never_work_together(
    load: int, seconds: list[float | None], team_seconds: float | None, asleep: bool
) -> None:
    single = [core(number, {"fft": pace}) for number, pace in enumerate(seconds)]
    both = replace(team(len(single), fft=team_seconds), needs_start=asleep)

    plan = planned(load, [*single, both])

    assert sum(shares(plan).values()) == load
    assert "team0" not in shares(plan) or shares(plan) == {"team0": load}


# ---- sizes near a step

GAP, STEP_UNIT = 40e-6, 100e-6
MEASURED = (1, 2, 4, 8, 12, 21, 36, 60, 128)


def stepping(units: int) -> float:
    return GAP + STEP_UNIT * units * (1 if units < 20 else 2)


def linear(units: int) -> float:
    return GAP + STEP_UNIT * units


def stepped(seconds: object) -> Candidate:
    assert callable(seconds)
    compute = PhaseCurve([(size, seconds(size)) for size in MEASURED for _ in range(3)])
    copy = Affine(20e-6, 60e-6)
    info = DeviceInfo(
        name="gpu0",
        kind="emulated",
        identity="gpu",
        link=True,
        memory=1 << 40,
        engines=2,
        clock="virtual",
    )
    model = DeviceModel(PiecewiseLinear(), compute, copy, copy)
    return Candidate(info, replace(DEMAND, limit=1 << 40), {"v": model}, {"v": 3})


def test_a_size_that_may_be_much_faster_is_tried_with_a_chunk() -> None:
    plan = Planner(2048).next([stepped(stepping)])

    (assignment,) = plan.assignments
    assert assignment.purpose == "sizes"
    assert any(12 < size < 21 for size in assignment.plan.chunks)
    assert assignment.plan.share == 2048


def test_no_size_is_tried_where_a_line_fits() -> None:
    assert not Planner(2048).next([stepped(linear)]).trial
