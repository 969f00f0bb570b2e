"""The plan of the next such job is made ahead, and found without another thread."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import numpy as np
import pytest
from planned_jobs import INFO, Calls, Jobs, familiar_jobs

from hetsched.engine.admission.resolve import MachineLimits, resolve
from hetsched.engine.planning import run_planner
from hetsched.engine.planning.repeated_jobs import job_kind
from hetsched.engine.planning.run_backlog import (
    GATHERED_SECONDS,
    MAX_GATHERED,
    MIN_GATHERED,
    gathered_runs,
)
from hetsched.engine.planning.run_planner import MAX_DEFERRED
from hetsched.job import FileRef, JobSpec
from hetsched.planner.rebalancing.rebalancer import Rebalancer


def test_only_the_first_job_of_its_kind_waits_for_its_plan() -> None:
    jobs = Jobs()

    plans = [jobs.run() for _ in range(4)]

    assert jobs.thread.submitted == 1
    assert [plan.predicted_seconds for plan in plans] == [None, 1.0, 1.0, 1.0]


def test_a_job_that_comes_before_anything_was_learnt_follows_a_good_plan_again() -> None:
    jobs = Jobs()
    jobs.run()
    plan = jobs.run(1.05, learn=False)

    assert jobs.run(1.3, learn=False) is plan
    assert jobs.thread.submitted == 1

    jobs.run()
    assert jobs.thread.submitted == 2, "the last run wasn't as predicted"


def test_but_only_so_often() -> None:
    jobs = Jobs()
    jobs.run()
    for _ in range(MAX_DEFERRED + 1):
        jobs.run(learn=False)

    jobs.run()

    assert jobs.thread.submitted == 2


def test_several_runs_of_a_familiar_job_are_learnt_from_at_once() -> None:
    jobs = familiar_jobs()
    before = jobs.learnt_runs()
    for _ in range(MIN_GATHERED):
        jobs.run(learn=False)
    assert jobs.learnt_runs() == before

    jobs.task.function()

    assert jobs.learnt_runs() == before + MIN_GATHERED
    assert jobs.thread.submitted == 1


def test_a_short_run_of_a_familiar_job_is_routine_if_it_went_as_predicted() -> None:
    jobs = familiar_jobs(0.1)
    assert jobs.task.is_routine

    jobs.run(0.3, learn=False)
    jobs.run(0.3, learn=False)
    assert not jobs.task.is_routine


def test_long_runs_are_learnt_from_one_by_one() -> None:
    limit = run_planner.MAX_ROUTINE_SECONDS
    assert [familiar_jobs(f * limit).task.is_routine for f in (0.9, 1.1)] == [True, False]


def test_a_single_disturbed_run_is_learnt_from_with_later_ones() -> None:
    jobs = familiar_jobs(0.1)

    for seconds in (0.3, 0.1, 0.3, 0.1):
        jobs.run(seconds, learn=False)

        assert jobs.task.is_routine


def test_news_of_brief_runs_is_learnt_from_once_it_is_worth_the_time() -> None:
    brief, slow = GATHERED_SECONDS / 10, GATHERED_SECONDS / 5
    jobs = familiar_jobs(brief)
    plan = jobs.run(slow, learn=False)

    for _ in range(3):
        assert jobs.run(slow, learn=False) is plan
        assert jobs.task.is_routine
    jobs.run(slow, learn=False)

    assert not jobs.task.is_routine


def test_a_single_long_run_that_differs_is_learnt_from_before_the_next() -> None:
    jobs = familiar_jobs(1.0)

    jobs.run(3.0, learn=False)
    jobs.run(3.0, learn=False)

    assert jobs.thread.submitted == 2


def test_a_difference_shorter_than_planning_is_none() -> None:
    jobs = familiar_jobs(1e-4)

    jobs.run(5e-4, learn=False)

    assert jobs.task.is_routine


@pytest.mark.parametrize("deviation", [0.02, 0.15])
def test_a_steady_job_is_seldom_learnt_from_and_planned_anew(
    deviation: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a noisy machine, too, where most runs deviate by more than a good plan should."""
    jobs, random = Jobs(), np.random.default_rng(0)
    learnt, planned = Calls(run_planner.learn), Calls(Rebalancer.replan)
    for _ in range(60):
        jobs.run(0.1 * random.lognormal(0.0, deviation))
    monkeypatch.setattr(run_planner, "learn", learnt)
    monkeypatch.setattr(Rebalancer, "replan", planned)

    for _ in range(100):
        jobs.run(0.1 * random.lognormal(0.0, deviation), learn=False)
        if not jobs.task.is_routine:
            jobs.task.function()

    assert learnt.count <= 100 / MIN_GATHERED + 6
    assert planned.count <= 8


def test_a_change_of_speed_is_learnt_from_at_its_second_run() -> None:
    jobs, random = Jobs(), np.random.default_rng(0)
    for _ in range(60):
        jobs.run(0.1 * random.lognormal(0.0, 0.15))
    assert jobs.task.is_routine

    jobs.run(0.2, learn=False)
    jobs.run(0.2, learn=False)

    assert not jobs.task.is_routine


def test_a_job_after_a_trial_of_a_familiar_kind_waits_for_no_plan() -> None:
    jobs = familiar_jobs(0.1)
    kind = job_kind(jobs.job, ["cpu0"], None)
    steady = jobs.run(0.1, learn=False)
    trial = dataclasses.replace(steady, is_exploring=True)
    repeated = jobs.state.repeated_jobs
    repeated.put_plan(kind, trial, repeated.clearings)

    assert jobs.run(0.1, learn=False) is trial
    assert not jobs.task.is_routine
    assert jobs.run(0.1, learn=False) is steady
    assert jobs.thread.submitted == 1


@pytest.mark.parametrize("familiar", [False, True])
def test_a_race_is_learnt_from_with_later_runs_if_the_kind_of_job_is_familiar(
    familiar: bool,
) -> None:
    jobs = familiar_jobs(0.1) if familiar else Jobs()
    kind = job_kind(jobs.job, ["cpu0"], None)
    steady = jobs.run(0.1, learn=familiar)
    racing = dataclasses.replace(steady.assignments[0], rivals=("other",))
    race = dataclasses.replace(steady, assignments=(racing,), is_exploring=True)
    repeated = jobs.state.repeated_jobs
    repeated.put_plan(kind, race, repeated.clearings)

    assert jobs.run(0.1, learn=False) is race

    assert jobs.task.is_routine == familiar


def test_after_news_a_familiar_job_waits_for_a_new_plan() -> None:
    jobs = familiar_jobs(0.1)
    jobs.run(0.3, learn=False)
    jobs.run(0.3, learn=False)

    jobs.run(0.3, learn=False)

    assert jobs.thread.submitted == 2


def test_more_runs_of_a_short_job_are_learnt_from_at_once() -> None:
    assert gathered_runs(1.0) == MIN_GATHERED
    assert gathered_runs(GATHERED_SECONDS / 30) == 30
    assert gathered_runs(0.0) == gathered_runs(1e-4) == MAX_GATHERED


def test_another_kind_of_job_has_a_separate_plan() -> None:
    jobs = Jobs()
    jobs.run()
    jobs.job.params = {"other": 1}

    jobs.run()

    assert jobs.thread.submitted == 2


def test_plans_made_ahead_are_dropped_with_the_models_they_depend_on() -> None:
    jobs = Jobs()
    jobs.run()

    jobs.state.record_out_of_memory("cpu0", 1 << 20)
    jobs.run()

    assert jobs.thread.submitted == 2


def test_the_storage_of_arrays_is_known_after_the_files_are_closed(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 4, 4), "complex64"))
    spec = JobSpec(workload="fft", params={}, inputs={"": FileRef(str(tmp_path / "x.npy"))})
    job = resolve(spec, MachineLimits([INFO], {}, 1 << 30))
    assert job.storage == "file"

    job.close()

    assert job.storage == "file"


def test_measuring_is_planned_each_time() -> None:
    jobs = Jobs()
    jobs.job.measure = {"cpu0": "numpy"}

    jobs.run()
    jobs.run()

    assert jobs.thread.submitted == 2


def test_a_plan_made_ahead_is_for_the_memory_that_devices_have_now() -> None:
    """Other processes may have taken some of a GPU's memory since the job started."""
    jobs = Jobs()
    jobs.run(learn=False)
    less = msgspec.structs.replace(INFO, memory=7)
    jobs.state.machine = lambda: [less]
    jobs.task.function()

    plan = jobs.run(learn=False)

    assert [candidate.info for candidate in plan.candidates] == [less]


def test_a_fresh_process_is_predicted_apart_from_a_warm_one() -> None:
    jobs = Jobs()
    for _ in range(6):
        jobs.state.kernels.forget(["cpu0"])  # its process has ended
        jobs.state.repeated_jobs.clear()
        fresh = jobs.run(1.3)
        warm = [jobs.run(1.0).predicted_seconds for _ in range(3)]

    assert fresh.predicted_seconds == pytest.approx(1.3, rel=0.02)
    assert warm == pytest.approx([1.0] * 3, rel=0.02)


def test_a_plan_of_a_fresh_process_is_not_repeated_in_the_warm_one() -> None:
    jobs = learnt_fresh_and_warm()
    jobs.state.kernels.forget(["cpu0"])
    fresh = jobs.run(1.3, learn=False)

    assert jobs.run(1.0).predicted_seconds == pytest.approx(1.0, rel=0.02)
    assert fresh.predicted_seconds == pytest.approx(1.3, rel=0.02)


def test_a_plan_made_ahead_is_predicted_for_a_process_that_has_ended_since() -> None:
    jobs = learnt_fresh_and_warm()
    submitted = jobs.thread.submitted
    jobs.state.kernels.forget(["cpu0"])

    assert jobs.run(1.3).predicted_seconds == pytest.approx(1.3, rel=0.02)
    assert jobs.thread.submitted == submitted


def test_a_run_in_a_fresh_process_is_reported_to_the_rebalancer() -> None:
    jobs = learnt_fresh_and_warm()
    jobs.state.kernels.forget(["cpu0"])
    jobs.run(1.3)

    kind = job_kind(jobs.job, ["cpu0"], None)
    assert not jobs.state.repeated_jobs.rebalancer(kind, 100).needs_candidates


def learnt_fresh_and_warm() -> Jobs:
    jobs = Jobs()
    for seconds in (1.3, 1.0, 1.0, 1.0, 1.0):
        jobs.run(seconds)
    return jobs


def test_a_plan_made_while_its_variant_failed_elsewhere_is_not_kept() -> None:
    jobs = Jobs()
    jobs.run(learn=False)
    jobs.exclude_while_planning()

    jobs.task.function()

    kind = job_kind(jobs.job, ["cpu0"], None)
    assert jobs.state.repeated_jobs.take_plan(kind) is None
