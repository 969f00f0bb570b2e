from __future__ import annotations

import pytest

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.engine.planning import LEARNT_ONE_BY_ONE, SAMPLED, JobKind, Plans
from hetsched.engine.run.report import JobSnapshot, job_activity
from hetsched.explain import Explanation
from hetsched.memory import MemoryDemand
from hetsched.planner.learning import DeviceRun
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.planner.totals import PlanCache
from hetsched.plans import DevicePlan

KIND: JobKind = ("m:toy", b"", "memory", ("cpu0",), None, "best")
USUAL = JobPlan((), 1.0, ())


class Jobs:
    """Runs of jobs of one kind, one after the other, with a plan that predicts a second."""

    def __init__(self) -> None:
        self.plans = Plans(PlanCache())
        self.plans.planner(KIND, 100)
        self.plans.put(KIND, USUAL, self.plans.generation)

    def run(self, *seconds: float) -> list[bool]:
        """Whether runs that take so long are learnt from."""
        return [self.plans.count_run(KIND, USUAL, each) for each in seconds]


@pytest.fixture
def familiar() -> Jobs:
    jobs = Jobs()
    assert all(jobs.run(*[1.0] * LEARNT_ONE_BY_ONE))
    return jobs


def test_a_well_known_kind_is_sampled(familiar: Jobs) -> None:
    learnt = familiar.run(*[1.0] * 3 * SAMPLED)
    assert sum(learnt) in (2, 3)
    assert familiar.plans.get(KIND) is USUAL


def test_a_single_disturbed_run_is_nothing_and_a_second_one_is_news(familiar: Jobs) -> None:
    assert not any(familiar.run(2.0, 1.0, 2.0, 1.0, 2.0))
    assert familiar.run(2.0) == [True]


def test_a_trial_is_learnt_from_and_not_repeated(familiar: Jobs) -> None:
    trial = JobPlan((), 1.0, (), trial="something")
    familiar.plans.put(KIND, trial, familiar.plans.generation)
    assert familiar.plans.get(KIND) is trial
    assert familiar.plans.count_run(KIND, trial, 1.0)
    assert familiar.plans.get(KIND) is not trial


def test_a_plan_whose_assumptions_were_dropped_while_it_was_made_is_not_kept() -> None:
    jobs = Jobs()
    generation = jobs.plans.generation
    jobs.plans.clear()
    jobs.plans.put(KIND, USUAL, generation)
    assert jobs.plans.get(KIND) is None


GPU = DeviceInfo(name="gpu0", kind="gpu", identity="g", link=True)


def snapshot(
    times: list[tuple[int, ChunkTimes]],
    demand: MemoryDemand | None = None,
    predicted: float | None = 10.0,
) -> JobSnapshot:
    candidate = None if demand is None else Candidate(GPU, demand, {}, {})
    assignment = Assignment(
        "gpu0", "v", DevicePlan(((40,),)), (), 40, 1, 0, 2, predicted, candidate=candidate
    )
    job = Explanation(job=3, state="running", workload="fft", load=40)
    runs = {"gpu0": DeviceRun(assignment, GPU, tuple(times))}
    return JobSnapshot(job, JobPlan((assignment,), predicted, ()), runs)


def chunk(start: float) -> tuple[int, ChunkTimes]:
    """10 units in 2 s: 1 s in, 1 s of computing, 0.5 s out, partly at the same time."""
    times = ChunkTimes(
        copy_in=(start, start + 1.0),
        compute=(start + 0.5, start + 1.5),
        copy_out=(start + 1.5, start + 2.0),
    )
    return 10, times


def test_speed_and_use_of_the_link_are_those_of_the_last_chunks() -> None:
    demand = MemoryDemand(input_bytes=100, work_bytes=0, output_bytes=50)
    (activity,) = job_activity(snapshot([chunk(0.0), chunk(2.0)], demand))

    assert (activity.done, activity.speed) == (20, 5.0)
    assert (activity.h2d_busy, activity.compute_busy, activity.d2h_busy) == (0.5, 0.5, 0.25)
    assert (activity.h2d_rate, activity.d2h_rate) == (1000.0, 1000.0)
