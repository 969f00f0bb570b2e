"""What is kept of jobs, for how long, and what those who ask too early or too late hear."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Collection
from typing import Any

import pytest

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.engine import explanations
from hetsched.engine.explanations import Accounts, Evidence
from hetsched.errors import ErrorRecord, HetschedError, InputMissing, TryAgain
from hetsched.job import Done, Failed, JobReport
from hetsched.memory import MemoryDemand
from hetsched.planner.job_planner import Candidate, JobPlan, plan_job
from hetsched.planner.plan_cache import PlanCache

INFO = DeviceInfo(name="cpu0", kind="cpu", identity="c")
DEMAND = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1)
PLAN = plan_job(4, [Candidate(INFO, DEMAND, {"v": None}, {"v": 0})])


def evidence(number: int, plan: JobPlan = PLAN, chunks: int = 1) -> Evidence:
    times = {"cpu0": [(4, ChunkTimes(compute=(0.0, 1.0)))] * chunks}
    return Evidence(number, "toy", 4, {}, plan, times if plan.assignments else {})


def done(number: int) -> Done:
    return Done(number, JobReport(job=number, state="done", workload="toy", load=4))


def kept(*numbers: int, chunks: int = 1) -> Accounts:
    found = Accounts(lambda device: INFO, PlanCache())
    for number in numbers:
        found.keep(evidence(number, chunks=chunks).ended(done(number)))
    return found


def refused(
    found: Accounts,
    number: int,
    newest: int,
    running: Evidence | None = None,
    waiting: Collection[int] = (),
) -> Any:
    with pytest.raises(HetschedError) as caught:
        found.ask(number, running, waiting, newest)
    return caught.value


def test_a_job_that_has_ended_is_explained() -> None:
    account = kept(1).ask(1, None, (), 1)()

    assert (account.job, account.state, account.seconds) == (1, "done", 1.0)
    assert [one.share for one in account.devices] == [4]


def test_a_job_that_failed_says_what_with() -> None:
    found = Accounts(lambda device: INFO, PlanCache())
    report = JobReport(job=1, state="failed", workload="toy", load=4)
    found.keep(evidence(1).ended(Failed(1, report, ErrorRecord(1, "kernel broke"))))

    account = found.ask(1, None, (), 1)()

    assert (account.state, account.error) == ("failed", "kernel broke")


def test_a_running_job_is_explained_as_it_was_when_asked() -> None:
    running = evidence(2)
    times: Any = running.times
    make = kept(1).ask(2, running, (), 2)
    times["cpu0"].append((4, ChunkTimes(compute=(5.0, 6.0))))

    account = make()

    assert (account.state, account.seconds) == ("running", 1.0)


def test_before_a_job_is_planned_there_is_nothing_to_explain() -> None:
    error = refused(kept(1), 2, 2, evidence(2, JobPlan((), None)))

    assert isinstance(error, TryAgain) and "still being planned" in str(error)


def test_before_a_job_has_begun_there_is_nothing_to_explain() -> None:
    error = refused(kept(1), 3, 3, evidence(2), waiting=[3])

    assert isinstance(error, TryAgain) and "job 3 hasn't begun" in str(error)


@pytest.mark.parametrize("number", [0, 2, 99])
def test_jobs_that_never_were_are_missing(number: int) -> None:
    error = refused(kept(1), number, 1)

    assert isinstance(error, InputMissing)
    assert str(error) == f"no job {number}; the newest is 1"


def test_only_the_last_jobs_are_kept() -> None:
    found = kept(*range(1, explanations.MOST_JOBS + 3))

    error = refused(found, 2, 66)

    assert isinstance(error, InputMissing) and "kept of the last 64 that ended" in str(error)
    assert found.ask(3, None, (), 66)().job == 3


def test_a_job_that_was_dropped_while_others_waited_has_ended_too() -> None:
    found = kept(100, *range(1, explanations.MOST_JOBS + 1))

    error = refused(found, 100, 101, waiting=[101])

    assert isinstance(error, InputMissing) and "job 100 ended too long ago" in str(error)


def test_fewer_are_kept_if_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanations, "MOST_CHUNKS", 100)
    found = kept(1, 2, 3, chunks=60)

    assert isinstance(refused(found, 2, 3), InputMissing)
    assert found.ask(3, None, (), 3)().job == 3, "the last one always is"


def test_nothing_of_the_job_but_figures_is_held() -> None:
    class Array:
        pass

    array = Array()
    job: Any = type("Job", (), {})()
    job.workload, job.load, job.params, job.notes = type("W", (), {"name": "toy"}), 4, {}, []
    job.inputs = {"x": array}
    found = Accounts(lambda device: INFO, PlanCache())
    found.keep(Evidence.of(1, job, PLAN, {}).ended(done(1)))
    gone = weakref.ref(array)
    del job, array
    gc.collect()

    assert gone() is None
