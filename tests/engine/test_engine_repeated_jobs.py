"""Plans that are promised to the next job, while the planner's thread makes others."""

from __future__ import annotations

from hetsched.engine.planning.repeated_jobs import JobKind, RepeatedJobs
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.records import JobPlan

KIND: JobKind = ("m:toy", b"{}", "memory", ("cpu0",), None)
OTHER_KIND: JobKind = ("m:toy", b"{}", "memory", ("cpu0", "cpu1"), None)


def new_plan() -> JobPlan:
    return JobPlan((), None, ())


def with_plan(plan: JobPlan) -> RepeatedJobs:
    repeated = RepeatedJobs(PlanCache())
    repeated.offer_plan(KIND, plan)
    return repeated


def test_a_promised_plan_is_followed_whatever_is_planned_meanwhile() -> None:
    plan, later_plan = new_plan(), new_plan()
    repeated = with_plan(plan)

    assert repeated.promise_plan(KIND, plan)
    repeated.take_plan(KIND)  # by the planner's thread
    repeated.put_plan(KIND, later_plan, repeated.clearings)

    assert repeated.take_promised_plan(KIND) is plan
    assert repeated.take_plan(KIND) is later_plan


def test_a_plan_that_is_not_ready_is_not_promised() -> None:
    plan, other_plan = new_plan(), new_plan()
    repeated = with_plan(plan)

    assert not repeated.promise_plan(KIND, other_plan)
    assert not repeated.promise_plan(OTHER_KIND, plan)
    repeated.clear()
    assert not repeated.promise_plan(KIND, plan)
    assert repeated.take_promised_plan(KIND) is None


def test_a_promise_is_for_one_kind_of_job_and_one_job() -> None:
    plan = new_plan()
    repeated = with_plan(plan)

    assert repeated.promise_plan(KIND, plan)
    assert repeated.take_plan(KIND) is None, "it is no other job's"
    assert repeated.take_promised_plan(OTHER_KIND) is None
    assert repeated.take_promised_plan(KIND) is None
