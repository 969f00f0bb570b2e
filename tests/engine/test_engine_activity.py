"""Speeds and use of the link, from a plan and the last chunks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.engine.explanations import RECENT_CHUNKS, JobSnapshot, job_activity
from hetsched.explain.iterations.recorder import IterationRecorder
from hetsched.job import IterationSeconds
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


def test_a_device_of_an_iterative_job_has_rows() -> None:
    recorder = IterationRecorder(("gpu0", "team0"))
    recorder.add(1, (30, 0), (IterationSeconds(3.0, 0.0, 1.0), None), 0.5)
    recorder.add(2, (40, 0), (IterationSeconds(1.5, 0.0, 0.5), None), 0.4)

    (activity,) = job_activity(replace(snapshot([]), history=recorder.history()))

    assert (activity.device, activity.share, activity.is_iterative) == ("gpu0", 40, True)
    assert (activity.speed, activity.compute_busy) == (20.0, 0.75)


def test_before_the_first_chunk_only_the_prediction_is_known() -> None:
    (activity,) = job_activity(snapshot([]))

    assert (activity.job, activity.share, activity.done, activity.speed) == (3, 40, 0, None)
    assert activity.predicted_speed == 4.0


def test_speed_and_use_of_the_link_are_those_of_the_last_chunks() -> None:
    demand = MemoryDemand(input_bytes=100, work_bytes=0, output_bytes=50)
    (activity,) = job_activity(snapshot([chunk(0.0), chunk(2.0)], demand))

    assert (activity.done, activity.speed) == (20, 5.0)
    assert (activity.h2d_busy, activity.compute_busy, activity.d2h_busy) == (0.5, 0.5, 0.25)
    assert (activity.h2d_rate, activity.d2h_rate) == (1000.0, 1000.0)


def test_old_chunks_count_as_done_but_not_for_the_speed() -> None:
    slow = (10, ChunkTimes(compute=(0.0, 100.0)))
    recent = [(10, ChunkTimes(compute=(100.0 + i, 101.0 + i))) for i in range(RECENT_CHUNKS)]
    (activity,) = job_activity(snapshot([slow, *recent]))

    assert activity.done == 10 * (RECENT_CHUNKS + 1)
    assert activity.speed == pytest.approx(10.0)


def test_code_of_a_plugin_isnt_called() -> None:
    def explode(units: int) -> float:
        raise AssertionError(units)

    demand = MemoryDemand(input_bytes=explode, work_bytes=0, output_bytes=50)
    (activity,) = job_activity(snapshot([chunk(0.0)], demand))

    assert (activity.h2d_rate, activity.d2h_rate) == (None, 1000.0)


def test_without_a_model_there_is_no_prediction() -> None:
    (activity,) = job_activity(snapshot([chunk(0.0)], predicted=None))

    assert (activity.predicted_speed, activity.h2d_rate) == (None, None)
