"""Kept results: what they take, and the order in which they expire."""

from __future__ import annotations

from hetsched.daemon.kept_results import KeptResults
from hetsched.daemon.records import JobEntry
from hetsched.job import JobSpec


def ended_job(ticket: int, keep_until: float) -> JobEntry:
    spec = JobSpec(workload="w", params={})
    entry = JobEntry(ticket, spec, 1, 0.0, ticket)
    entry.keep_until = keep_until
    return entry


def test_the_bytes_of_all_results_are_counted() -> None:
    results, job = KeptResults(), ended_job(1, 10.0)
    results.add(job, 7, 100)
    results.add(job, 8, 50)
    assert results.remove(job, 7)
    assert not results.remove(job, 7)
    assert (results.nbytes, results.job_keeping(7), results.job_keeping(8)) == (50, None, job)


def test_results_expire_in_the_order_in_which_their_jobs_ended() -> None:
    results, jobs = KeptResults(), [ended_job(ticket, 10.0 + ticket) for ticket in range(3)]
    for job in jobs:
        results.add(job, job.ticket, 1)
    assert results.first() is jobs[0]
    assert results.expired(11.0) == jobs[:2]


def test_a_job_without_results_expires_no_more() -> None:
    results, job = KeptResults(), ended_job(1, 10.0)
    results.add(job, 7, 1)
    results.remove(job, 7)
    assert results.first() is None and list(results) == []
