"""Ended jobs that are remembered: bounded in bytes, large parameters dropped first."""

from __future__ import annotations

import sys
import tracemalloc

from hetsched.daemon.limits.ended_jobs import ENTRY_BYTES, MAX_ENDED_JOBS, EndedJobs
from hetsched.daemon.records import JobEntry
from hetsched.job import DeviceReport, Done, JobReport, JobSpec

MIB = 1 << 20


def ended_job(number: int, text: str = "", chunks: int = 1) -> JobEntry:
    params = {"text": text}
    device = DeviceReport(
        device="cpu0", kind="cpu", variant="v", share=chunks, seconds=1.0, chunks=(1,) * chunks
    )
    report = JobReport(
        job=number, state="done", workload="w", load=1, params=params, devices=(device,)
    )
    spec = JobSpec(workload="w", params=params)
    entry = JobEntry(number, spec, 1, 0.0, number)
    entry.state = Done(number, report)
    return entry


def test_large_parameters_are_dropped_before_other_jobs_are_forgotten() -> None:
    jobs = EndedJobs(MIB)
    small = [ended_job(number) for number in range(50)]
    large = [ended_job(100 + number, "x" * 300_000) for number in range(10)]
    forgotten = [gone for entry in [*small, *large] for gone in jobs.add(entry)]
    assert forgotten == [] and jobs.nbytes <= MIB
    assert not any(entry.is_shortened for entry in small)
    assert all(entry.spec.params == {} for entry in large[:-2])


def test_a_long_list_of_chunks_is_dropped_too() -> None:
    jobs = EndedJobs(20_000)
    long_job = ended_job(1, chunks=100_000)
    jobs.add(long_job)
    assert isinstance(long_job.state, Done)
    assert long_job.state.report.devices[0].chunks == ()
    assert long_job.state.report.devices[0].share == 100_000


def test_then_the_oldest_are_forgotten_but_never_the_newest() -> None:
    jobs = EndedJobs(3 * (ENTRY_BYTES + 400))
    forgotten = [gone.job for number in range(10) for gone in jobs.add(ended_job(number))]
    assert forgotten == list(range(len(forgotten))) and 1 < len(jobs) < 10
    tiny = EndedJobs(0)
    assert [gone.job for number in range(3) for gone in tiny.add(ended_job(number))] == [0, 1]


def test_their_number_is_limited_as_well() -> None:
    jobs = EndedJobs(1 << 40)
    for number in range(MAX_ENDED_JOBS + 5):
        jobs.add(ended_job(number))
    assert len(jobs) == MAX_ENDED_JOBS


def test_what_python_holds_is_about_what_was_counted() -> None:
    jobs = EndedJobs(4 * MIB)
    tracemalloc.start()
    for number in range(300):
        jobs.add(ended_job(number, f"{number}" + "x" * 100_000))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert jobs.nbytes <= 4 * MIB
    assert held < 6 * MIB + sys.getsizeof(jobs)
