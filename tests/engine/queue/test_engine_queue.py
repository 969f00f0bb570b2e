"""The queue, by events and decisions."""

from __future__ import annotations

from typing import Any

import pytest

from hetsched.engine.queue.job_queue import JobQueue
from hetsched.engine.queue.records import (
    AbortJob,
    Decision,
    FailJob,
    Outcome,
    Position,
    QueuedTerms,
    ReportPosition,
)
from hetsched.errors import InputMissing, UsageError
from hetsched.job import Condition, Dependency, JobSpec

DONE, FAILED, CANCELLED = Outcome.DONE, Outcome.FAILED, Outcome.CANCELLED


def queue_of(*terms: QueuedTerms, now: float = 0.0) -> JobQueue:
    queue = JobQueue()
    for job in terms:
        queue.submit(job, now)
    return queue


def job(number: int, *after: tuple[int, Condition], **options: Any) -> QueuedTerms:
    dependencies = tuple(Dependency(*dependency) for dependency in after)
    spec = JobSpec(workload="fft", params={}, after=dependencies, **options)
    return QueuedTerms.of(number, spec)


def line(queue: JobQueue) -> list[int]:
    return list(queue.ready())


def failed(decisions: list[Decision]) -> list[tuple[int, str]]:
    return [(d.number, str(d.error)) for d in decisions if isinstance(d, FailJob)]


# the order


def test_jobs_of_equal_priority_run_in_the_order_of_submission() -> None:
    assert line(queue_of(job(1), job(2), job(3))) == [1, 2, 3]


def test_a_larger_priority_runs_first() -> None:
    assert line(queue_of(job(1), job(2, priority=19), job(3, priority=-20))) == [2, 1, 3]


def test_another_priority_keeps_the_age() -> None:
    queue = queue_of(job(1), job(2), job(3))

    queue.prioritize(3, 5)
    queue.prioritize(1, 5)

    assert line(queue) == [1, 3, 2]


def test_a_position_says_how_many_are_ahead_and_why_the_job_waits() -> None:
    queue = queue_of(job(1), job(2), job(3), job(4, hold=True), job(5, (1, "ok"), (3, "any")))
    queue.start(1)

    assert [queue.position(number) for number in (2, 3, 4, 5)] == [
        Position(1, "resources"),
        Position(2, "priority"),
        Position(3, "held"),
        Position(3, "after 1, 3"),
    ]


# holds


def test_a_held_job_keeps_its_age_for_when_it_is_released() -> None:
    queue = queue_of(job(1, hold=True), job(2))
    assert line(queue) == [2]

    assert queue.release(1) == [ReportPosition(1)]

    assert line(queue) == [1, 2]


def test_holding_twice_changes_nothing() -> None:
    queue = queue_of(job(1))

    assert queue.hold(1) == [ReportPosition(1)]
    assert queue.hold(1) == []
    assert queue.first() is None


def test_a_running_job_cannot_be_held() -> None:
    queue = queue_of(job(1))
    queue.start(1)

    with pytest.raises(UsageError, match="job 1 is running; only a waiting job can be held"):
        queue.hold(1)


# dependencies


@pytest.mark.parametrize(
    ("condition", "outcome", "runs"),
    [
        ("ok", DONE, True),
        ("ok", FAILED, False),
        ("ok", CANCELLED, False),
        ("any", DONE, True),
        ("any", FAILED, True),
        ("any", CANCELLED, True),
        ("fail", DONE, False),
        ("fail", FAILED, True),
        ("fail", CANCELLED, True),
    ],
)
@pytest.mark.parametrize("is_earlier_over", [False, True])
def test_a_dependency_is_met_by_the_outcomes_that_it_names(
    condition: Condition, outcome: Outcome, runs: bool, is_earlier_over: bool
) -> None:
    queue = queue_of(job(1))
    queue.start(1)
    later = job(2, (1, condition))

    if is_earlier_over:
        queue.end(1, outcome)
        decisions = queue.submit(later, 0.0)
    else:
        queue.submit(later, 0.0)
        decisions = queue.end(1, outcome)

    assert line(queue) == ([2] if runs else [])
    assert bool(failed(decisions)) is not runs
    assert (2 in queue) is runs


def test_a_job_waits_for_all_that_it_runs_after() -> None:
    queue = queue_of(job(1), job(2), job(3, (1, "ok"), (2, "any")))

    assert queue.end(1, DONE) == [ReportPosition(3)]
    assert line(queue) == [2]
    assert queue.end(2, FAILED) == [ReportPosition(3)]
    assert line(queue) == [3]


def test_a_chain_fails_as_a_whole_with_the_reason_of_each() -> None:
    queue = queue_of(job(1), job(2, (1, "ok")), job(3, (2, "ok")), job(4, (3, "any")))

    decisions = queue.end(1, CANCELLED)

    assert failed(decisions) == [
        (2, "job 2 was to run only if job 1 succeeds, but job 1 was cancelled"),
        (3, "job 3 was to run only if job 2 succeeds, but job 2 failed"),
    ]
    assert line(queue) == [4]


def test_a_job_that_two_failures_concern_fails_once() -> None:
    queue = queue_of(job(1), job(2, (1, "ok")), job(3, (1, "ok"), (2, "ok")))

    decisions = queue.end(1, FAILED)

    assert [number for number, _ in failed(decisions)] == [2, 3]


def test_a_chain_of_ten_thousand_jobs_fails_without_recursion() -> None:
    queue = queue_of(job(1), *(job(n, (n - 1, "ok")) for n in range(2, 10_001)))

    assert len(failed(queue.end(1, FAILED))) == 9_999
    assert len(queue) == 0


def test_a_job_that_ends_early_is_forgotten_by_those_that_it_ran_after() -> None:
    queue = queue_of(job(1), job(2, (1, "ok")))

    queue.end(2, CANCELLED)

    assert queue.end(1, FAILED) == []


def test_a_job_may_run_only_after_one_that_is_known() -> None:
    queue = queue_of(job(1))
    queue.remember(7, DONE)

    queue.check((Dependency(1), Dependency(7)))
    with pytest.raises(InputMissing, match="after: there is no job 8"):
        queue.check((Dependency(8),))


# retries


def test_a_failed_attempt_waits_behind_the_others_of_its_priority() -> None:
    queue = queue_of(job(1, retries=1), job(2), job(3, priority=-1))
    queue.start(1)

    assert queue.requeue(1, code=1)

    assert line(queue) == [2, 1, 3]


def test_an_attempt_is_repeated_as_often_as_asked() -> None:
    queue = queue_of(job(1, retries=2))
    queue.start(1)
    outcomes = []
    while queue.requeue(1, code=74):
        outcomes.append(queue.terms(1).failures)
        queue.start(1)

    assert outcomes == [1, 2]
    assert queue.terms(1).attempts == 3


@pytest.mark.parametrize("code", [2, 65, 66, 130])
def test_errors_of_the_request_and_cancellations_are_final(code: int) -> None:
    queue = queue_of(job(1, retries=5))
    queue.start(1)

    assert not queue.requeue(1, code)


def test_those_that_run_after_a_job_wait_for_its_last_attempt() -> None:
    queue = queue_of(job(1, retries=1), job(2, (1, "fail")))
    queue.start(1)

    queue.requeue(1, code=1)

    assert line(queue) == [1]


# deadlines


def test_a_waiting_job_fails_at_its_deadline_and_a_running_one_is_aborted() -> None:
    queue = queue_of(job(1, deadline=10.0, retries=3), job(2, deadline=20.0, hold=True), job(3))
    queue.start(1)
    assert queue.next_deadline() == 10.0

    (abort,) = queue.expire(10.0)
    assert isinstance(abort, AbortJob)
    assert str(abort.error) == "job 1: its deadline passed while it was running"
    assert not queue.requeue(1, code=1)
    assert queue.next_deadline() == 20.0
    assert failed(queue.expire(25.0)) == [(2, "job 2: its deadline passed while it was waiting")]


def test_a_job_that_comes_after_its_deadline_fails_at_once() -> None:
    queue = JobQueue()

    decisions = queue.submit(job(1, deadline=10.0), now=11.0)

    assert failed(decisions) == [(1, "job 1: its deadline passed before it could start")]
    assert 1 not in queue


def test_the_deadline_of_an_ended_job_is_dropped() -> None:
    queue = queue_of(job(1, deadline=10.0))
    queue.end(1, DONE)

    assert queue.next_deadline() is None
    assert queue.expire(11.0) == []


def test_deadlines_of_ended_jobs_do_not_pile_up() -> None:
    queue = JobQueue()

    for number in range(1, 5001):
        queue.submit(job(number, deadline=1e9), 0.0)
        queue.end(number, DONE)

    assert len(queue._deadlines) <= 1001


# jobs of an earlier queue


def test_a_job_waits_for_one_that_is_still_to_come() -> None:
    queue = JobQueue()
    queue.expect(1)

    queue.submit(job(2, (1, "ok")), 0.0, is_known=True)
    assert line(queue) == []
    queue.submit(job(1), 0.0, is_known=True)

    assert line(queue) == [1]
    assert queue.end(1, DONE) == [ReportPosition(2)]


def test_a_job_that_never_comes_fails_those_that_run_after_it() -> None:
    queue = JobQueue()
    queue.expect(1)
    queue.submit(job(2, (1, "ok")), 0.0, is_known=True)

    assert failed(queue.remember(1, FAILED)) == [
        (2, "job 2 was to run only if job 1 succeeds, but job 1 failed")
    ]


def test_an_accepted_job_runs_after_those_that_are_forgotten() -> None:
    queue = JobQueue()

    assert queue.submit(job(2, (1, "ok")), 0.0, is_known=True) == []

    assert line(queue) == [2]


def test_jobs_of_an_earlier_queue_keep_their_age_in_any_order() -> None:
    queue = queue_of(job(3), job(1, retries=1), job(2))
    queue.start(1)
    queue.requeue(1, code=1)
    queue.submit(job(4), 0.0)

    assert line(queue) == [2, 3, 1, 4]
