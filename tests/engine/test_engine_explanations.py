"""Which jobs can be explained, and the errors for those that cannot."""

from __future__ import annotations

from typing import Any

import pytest

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.engine import explanations
from hetsched.engine.explanations import ExplanationArchive, JobSnapshot
from hetsched.errors import HetschedError, InputMissing, TryAgain
from hetsched.job import Done, JobReport
from hetsched.memory import MemoryDemand
from hetsched.planner.job_planner import Candidate, JobPlan, plan_job
from hetsched.planner.plan_cache import PlanCache

INFO = DeviceInfo(name="cpu0", kind="cpu", identity="c")
DEMAND = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1)
PLAN = plan_job(4, [Candidate(INFO, DEMAND, {"v": None}, {"v": 0})])


def evidence(number: int, plan: JobPlan = PLAN, chunks: int = 1) -> JobSnapshot:
    times = {"cpu0": [(4, ChunkTimes(compute=(0.0, 1.0)))] * chunks}
    return JobSnapshot(number, "toy", 4, {}, plan, times if plan.assignments else {})


def done(number: int) -> Done:
    return Done(number, JobReport(job=number, state="done", workload="toy", load=4))


def archive_of(*numbers: int, chunks: int = 1) -> ExplanationArchive:
    archive = ExplanationArchive(lambda device: INFO, PlanCache())
    for number in numbers:
        archive.add(evidence(number, chunks=chunks).ended(done(number)))
    return archive


def refused(
    archive: ExplanationArchive,
    number: int,
    running: JobSnapshot | None = None,
    *,
    is_waiting: bool = False,
) -> Any:
    with pytest.raises(HetschedError) as caught:
        archive.explainer(number, running, is_waiting=is_waiting)
    return caught.value


def test_a_running_job_is_explained_as_of_the_request() -> None:
    running = evidence(2)
    times: Any = running.times
    make = archive_of(1).explainer(2, running, is_waiting=False)
    times["cpu0"].append((4, ChunkTimes(compute=(5.0, 6.0))))

    explanation = make()

    assert (explanation.state, explanation.seconds) == ("running", 1.0)


def test_before_a_job_is_planned_there_is_nothing_to_explain() -> None:
    error = refused(archive_of(1), 2, evidence(2, JobPlan((), None)))

    assert isinstance(error, TryAgain) and "still being planned" in str(error)


def test_before_a_job_has_begun_there_is_nothing_to_explain() -> None:
    error = refused(archive_of(1), 3, is_waiting=True)

    assert isinstance(error, TryAgain) and "job 3 hasn't started" in str(error)


def test_only_the_last_jobs_are_kept() -> None:
    newest = explanations.MAX_JOBS + 2
    archive = archive_of(*range(1, newest + 1))

    error = refused(archive, 2)

    assert isinstance(error, InputMissing)
    assert f"only the last {explanations.MAX_JOBS} jobs can be explained" in str(error)
    assert archive.explainer(3, None, is_waiting=False)().job == 3
