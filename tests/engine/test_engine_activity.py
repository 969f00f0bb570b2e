"""Speeds and use of the link, from a plan and the last chunks, and explanations."""

from __future__ import annotations

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.engine.explanations import JobSnapshot, job_activity
from hetsched.memory import MemoryDemand
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.plans import DevicePlan

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
    return JobSnapshot(3, "fft", 40, None, JobPlan((assignment,), predicted, ()), {"gpu0": times})


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
