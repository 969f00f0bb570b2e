"""Ilic & Sousa 2012: a GPU and three cores; figures of a reference on the same fitted machine."""

from __future__ import annotations

import pytest

from hetsched.errors import UsageError
from hetsched.plans import Overlap, check
from hetsched.simulate.learning import ideal_plan
from hetsched.simulate.machine import makespan
from hetsched.simulate.papers import ilic
from hetsched.simulate.papers.ilic import (
    MEMORY,
    IlicOutcome,
    IlicSetting,
    run_paper_steps,
    run_single_chunks,
)

SETTINGS = [IlicSetting(o, c) for o in (Overlap.SINGLE, Overlap.FULL) for c in (True, False)]


@pytest.fixture(scope="module")
def paper() -> IlicOutcome:
    """The paper's algorithm on the paper's machine."""
    return run_paper_steps()


def test_the_paper_s_algorithm_is_balanced_in_the_third_run(paper: IlicOutcome) -> None:
    shares = [run.shares for run in paper.trace.runs]

    assert shares[:2] == [(64, 64, 64, 64), (178, 30, 24, 24)]
    assert shares[2] == pytest.approx((187, 27, 21, 21), abs=3)
    assert len(shares) == 3
    assert paper.trace.reason == "balanced"
    assert paper.trace.final.makespan == pytest.approx(0.3135, rel=0.02)


def test_the_first_run_halves_and_gives_seven_points(paper: IlicOutcome) -> None:
    first = paper.steps[0]

    assert first.plan.sub_distributions == ((32, 16, 8, 4, 2, 1, 1),)
    assert (len(first.total), first.repeats) == (7, 1)
    assert first.gain == pytest.approx(1.4, abs=0.06)


def test_its_chunks_are_those_of_the_printed_lists_nearly(paper: IlicOutcome) -> None:
    first, second = paper.steps[-1].plan.sub_distributions[:2]

    assert first == pytest.approx((14, 26, 36, 16), abs=3)
    assert second == pytest.approx((8, 14, 18, 20, 9), abs=3)


def test_single_chunks_by_speed_functions_need_eight_runs_and_twice_the_time(
    paper: IlicOutcome,
) -> None:
    trace = run_single_chunks().trace

    assert len(trace.runs) == 8
    assert trace.final.makespan == pytest.approx(0.6615, rel=0.005)
    assert trace.final.makespan / paper.trace.final.makespan == pytest.approx(2.1, abs=0.05)


def test_single_chunks_by_constants_oscillate(paper: IlicOutcome) -> None:
    trace = run_single_chunks(method="constant").trace

    assert [run.shares[0] for run in trace.runs] == [64, 155, 104, 155, 104, 155, 104, 155]
    assert not trace.reason
    assert trace.best.makespan == pytest.approx(0.6865, rel=1e-3)
    assert trace.best.makespan / paper.trace.final.makespan == pytest.approx(2.2, abs=0.05)


@pytest.mark.parametrize("method", ["geometric", "constant"])
def test_without_the_cliff_single_chunks_are_balanced_at_once(
    paper: IlicOutcome, method: str
) -> None:
    trace = run_single_chunks(IlicSetting(cliff=False), method=method).trace

    assert len(trace.runs) == 2
    assert trace.final.makespan == pytest.approx(0.4529, rel=1e-3)
    assert trace.final.makespan / paper.trace.final.makespan == pytest.approx(1.44, abs=0.05)


@pytest.mark.parametrize("setting", SETTINGS)
def test_overlap_alone_gains_no_more_than_engines_allow(setting: IlicSetting) -> None:
    for step in run_paper_steps(setting).steps:
        assert 1 < step.overlap_gain <= (2 if setting.overlap is Overlap.SINGLE else 3)
        assert step.gain == pytest.approx(step.size_gain * step.overlap_gain)


def test_most_of_the_gain_is_the_cliff_s(paper: IlicOutcome) -> None:
    """The paper: 4.6 and 4.5."""
    even = run_paper_steps(IlicSetting(cliff=False))

    assert [step.size_gain > 2 for step in paper.steps] == [False, True, True]
    assert all(3.5 < step.gain < 4.6 for step in paper.steps[1:])
    assert all(1.6 < step.gain < 2 for step in even.steps[1:])
    assert all(step.size_gain < 1 for step in even.steps)


@pytest.mark.parametrize("setting", SETTINGS)
def test_best_plans_are_better_and_near_their_bound(setting: IlicSetting) -> None:
    machine = ilic.machine(setting)
    plan = ideal_plan(machine)
    seconds = makespan(machine.play(plan))
    paper = run_paper_steps(setting)

    assert seconds < 0.2918  # the best that the reference knew with installments
    assert seconds < paper.trace.final.makespan
    assert machine.bound() <= seconds <= 1.03 * machine.bound()
    for device_plan in (plan.assignments[0].plan, *(step.plan for step in paper.steps)):
        check(device_plan, MEMORY)


def test_with_noise_of_two_percent_it_takes_two_to_six_runs() -> None:
    runs = [len(run_paper_steps(noise=0.02, seed=seed).trace.runs) for seed in range(20)]

    assert 2 <= min(runs) <= max(runs) <= 6


def test_a_seed_gives_the_same_loop_again() -> None:
    first, again, other = (run_paper_steps(noise=0.02, seed=seed).trace.runs for seed in (3, 3, 4))

    assert first == again != other


@pytest.mark.parametrize("noise", [-0.1, 0.5, float("nan")])
def test_impossible_noise_is_refused(noise: float) -> None:
    with pytest.raises(UsageError, match="noise"):
        run_paper_steps(noise=noise)


def test_the_report_is_compared_with_the_paper() -> None:
    result = ilic.run_experiment()
    runs, chunks, gains, _, methods, noisy = result.tables

    assert all(len(set(table.columns)) == len(table.columns) for table in result.tables)
    assert runs.rows[1][1:3] == ("178 30 24 24", "181 29 23 23")
    assert [row[4] for row in runs.rows] == [7, 15, 23]
    assert chunks.rows[1][2] == "{8 14 18 20 9 1} {8 14 18 20 21 21 9}"
    assert [row[6] for row in gains.rows] == [1.4, 4.6, 4.5]
    assert [row[2] for row in methods.rows[:4]] == [
        "paper's steps", "single, functions", "single, constants", "best plans",
    ]  # fmt: skip
    assert methods.rows[2][5] == "never"
    assert [row[:2] for row in noisy.rows] == [(1, 14), (2, 17)]
    assert len(result.charts) == 4
