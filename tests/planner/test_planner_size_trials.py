"""Trials of chunk sizes near a step of a kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.models.curves.phases.phase_curve import PhaseCurve
from hetsched.planner.job_planner import Candidate, JobPlan, plan_job
from hetsched.planner.rebalancing.size_trials import (
    EARLY_RUNS,
    MAX_TRIALS,
    TrialState,
    with_chunks,
    with_size_trials,
)
from hetsched.plans.device_plan import DevicePlan, Mode

LOAD = 256
GAP, UNIT = 40e-6, 100e-6
MEASURED = (1, 2, 4, 8, 12, 21, 36, 60, 128)


def in_waves(units: int) -> float:
    return GAP + UNIT * 16 * -(-units // 16)


def linear(units: int) -> float:
    return GAP + UNIT * units


def candidate(seconds: object = in_waves) -> Candidate:
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
    demand = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1, limit=1 << 40)
    model = DeviceModel(PiecewiseLinear(), compute, copy, copy)
    return Candidate(info, demand, {"default": model}, {"default": 3})


def trial(gpu: Candidate, state: TrialState, run: int, load: int = LOAD) -> JobPlan | None:
    trying = with_size_trials(plan_job(load, [gpu]), [gpu], state, run)
    return plan_job(load, trying) if trying else None


def test_sizes_that_may_be_much_faster_are_tried_with_a_few_chunks() -> None:
    gpu, state = candidate(), TrialState()
    usual = plan_job(LOAD, [gpu])

    tried = trial(gpu, state, run=3)

    assert tried is not None
    chunks = tried.assignments[0].plan.chunks
    new = set(chunks) - set(usual.assignments[0].plan.chunks) - set(MEASURED)
    assert any(12 < size < 36 for size in new)
    assert sum(chunks) == LOAD
    assert state.trials == 1


def test_nothing_is_tried_where_a_line_fits() -> None:
    state = TrialState()

    assert trial(candidate(linear), state, run=3) is None
    assert state.trials == 0


def test_a_trial_measures_something_at_any_load() -> None:
    gpu, trials = candidate(), 0
    for load in range(2, 70, 3):
        usual, tried = plan_job(load, [gpu]), trial(gpu, TrialState(), 3, load)
        if tried is not None:
            trials += 1
            assert tried.assignments[0].plan.chunks != usual.assignments[0].plan.chunks, load
    assert trials > 3


def test_later_trials_leave_out_a_run_and_their_number_is_limited() -> None:
    gpu = candidate()

    assert trial(gpu, TrialState(1, EARLY_RUNS), EARLY_RUNS + 1) is None
    assert trial(gpu, TrialState(MAX_TRIALS, 0), 3) is None


@pytest.mark.parametrize("sizes", [(20,), (20, 16, 14), (9,), (120,)])
def test_chunks_to_be_measured_take_the_place_of_others(sizes: tuple[int, ...]) -> None:
    plan = DevicePlan(((12, 36, 60, 60, 60, 53, 27, 12),), Mode.RING, 3)

    changed = with_chunks(plan, sizes)

    assert changed.share == plan.share
    assert set(sizes) <= set(changed.chunks)
    assert changed.chunks[:2] == (12, 36)
    assert replace(changed, sub_distributions=plan.sub_distributions) == plan


def test_an_optimistic_curve_continues_the_faster_speed_up_to_the_next_size() -> None:
    points = [(2, 2.0), (4, 4.0), (8, 8.0), (16, 48.0), (32, 96.0)]
    curve = PhaseCurve([point for point in points for _ in range(3)])

    optimistic = curve.optimistic()

    assert optimistic is not None
    assert optimistic.time(15) == pytest.approx(15.0)
    assert curve.time(15) > 40
    measured = [optimistic.time(units) for units, _ in points]
    assert measured == pytest.approx([seconds for _, seconds in points])
    assert optimistic.time(24) == pytest.approx(curve.time(24))
    assert optimistic.time(100) == pytest.approx(curve.time(100))


def test_a_pessimistic_curve_takes_the_next_larger_size_for_those_in_between() -> None:
    curve = candidate().models["default"]
    assert curve is not None and isinstance(curve.compute, PhaseCurve)

    worst = curve.compute.pessimistic()

    assert worst is not None
    assert worst.time(13) == pytest.approx(in_waves(21), rel=1e-3)
    assert worst.time(20) == pytest.approx(in_waves(21), rel=1e-3)
    assert [worst.time(x) for x in MEASURED] == pytest.approx([in_waves(x) for x in MEASURED])


def test_a_late_trial_is_priced_as_if_its_sizes_were_right_after_a_step() -> None:
    early, late = (trial(candidate(), TrialState(), run=run) for run in (1, EARLY_RUNS + 1))

    assert early is not None  # some of its sizes are just below a step
    assert late is None
