"""Devices that miss a deadline, in each stage."""

from __future__ import annotations

from dataclasses import replace

import pytest
from job_story import DEVICES, FACTORS, Story, X, assignment

from hetsched.engine.deadlines import DEFAULT_DEADLINES
from hetsched.engine.job import commands as do
from hetsched.engine.job.events import (
    AbortRequested,
    DeadlinePassed,
    DevicesJoined,
    PlanReady,
    ProcessesStarted,
)
from hetsched.errors import Cancelled
from hetsched.planner.job_planner import JobPlan
from hetsched.transport.device_messages import DeviceNote

DEADLINES = replace(DEFAULT_DEADLINES, prepare=100.0, fill=200.0, check=300.0)
SECONDS = {"Preparing": 100, "Filling": 200, "ReloadingResidents": 100, "Verifying": 300}


def story_at(state: str) -> Story:
    generated = {"Filling": [X], "ReloadingResidents": [FACTORS]}.get(state, [])
    verify = state == "Verifying"
    return Story(verify=verify, generated=generated, deadlines=DEADLINES).to_stage(state)


def killed(story: Story) -> list[str]:
    return [command.device for command in story.commands if isinstance(command, do.KillDevice)]


@pytest.mark.parametrize("state", SECONDS)
def test_a_device_that_does_not_answer_is_killed(state: str) -> None:
    story = story_at(state)

    early = killed(story.pass_time(SECONDS[state] - 3))
    late = killed(story.pass_time(6))

    assert (early, late) == ([], [*DEVICES])
    assert story.lost(*DEVICES).state == "WaitingForProcesses"


def test_a_note_about_progress_restarts_the_wait() -> None:
    story = story_at("Preparing").pass_time(90)
    story.feed(story.message("cpu0", DeviceNote, "planning ..."))

    assert killed(story.pass_time(20)) == ["cpu1"]
    assert story.only(do.KillDevice).reason == (
        "preparing kernels takes longer than 1 min 40 s (deadlines.prepare)"
    )


def test_a_chunk_may_take_ten_times_its_prediction() -> None:
    story = Story().to_starting()
    slow = replace(assignment("cpu0", 0, 0), predicted_seconds=8.0)  # 4 s a chunk
    story = Story().to_planning().feed(PlanReady(JobPlan((slow,), 8.0)))
    story.feed(ProcessesStarted(frozenset(["cpu0"]), {}, True))

    early = killed(story.pass_time(38))
    late = killed(story.pass_time(4))

    assert (early, late) == ([], ["cpu0"])
    assert "a chunk of 1 units takes longer than 40" in story.only(do.KillDevice).reason


def test_on_a_core_with_two_jobs_a_chunk_may_take_twice_as_long() -> None:
    slow = replace(assignment("cpu0", 0, 0), predicted_seconds=8.0)  # 4 s a chunk
    story = Story().to_planning().feed(PlanReady(JobPlan((slow,), 8.0)))
    story.feed(ProcessesStarted(frozenset(["cpu0"]), {}, True))
    story.machine.record.side_jobs = 1

    early = killed(story.pass_time(78))
    late = killed(story.pass_time(4))

    assert (early, late) == ([], ["cpu0"])


def test_a_chunk_may_take_the_least_time_of_any_chunk() -> None:
    story = Story().to_computing()

    assert killed(story.pass_time(28)) == []
    assert killed(story.pass_time(4)) == [*DEVICES]


def test_each_finished_chunk_restarts_the_wait_for_the_next() -> None:
    story = Story().to_computing().pass_time(20).done("cpu0", 0).pass_time(20)

    assert killed(story) == ["cpu1"]


def unpredicted(*devices: str) -> Story:
    story = Story(deadlines=DEADLINES).to_planning(devices)
    shares = [
        replace(assignment(d, 2 * i, 2 * i), predicted_seconds=None) for i, d in enumerate(devices)
    ]
    story.feed(PlanReady(JobPlan(tuple(shares), None)))
    return story.feed(ProcessesStarted(frozenset(devices), {}, True))


def test_a_chunk_without_a_prediction_has_much_time() -> None:
    story = unpredicted("cpu0")

    assert killed(story.pass_time(DEADLINES.unpredicted_chunk - 3)) == []
    assert killed(story.pass_time(6)) == ["cpu0"]


def test_without_a_prediction_the_speed_of_the_others_counts() -> None:
    story = unpredicted(*DEVICES).done("cpu1", 2, 3)  # in seconds

    seconds = DEADLINES.chunk_factor**2 * 2.0  # of one unit, and the other way of counting time

    assert set(killed(story.pass_time(seconds))) == {"cpu0"}


def test_the_chunks_of_a_killed_device_run_elsewhere() -> None:
    story = Story().to_computing().done("cpu1", 2, 3).pass_time(40)

    story.lost("cpu0")

    assert story.only(do.RunChunks).device == "cpu1"


def test_a_device_that_comes_back_and_does_not_prepare_is_killed_again() -> None:
    story = Story(deadlines=DEADLINES).to_computing().done("cpu1", 2, 3).lost("cpu0")
    story.done("cpu1", 4).feed(DevicesJoined(("cpu0",)))

    story.pass_time(120)

    assert "cpu0" in killed(story)


def test_after_a_cancellation_devices_have_little_time() -> None:
    story = Story().to_computing().feed(AbortRequested(Cancelled("cancelled")))

    early = killed(story.pass_time(DEADLINES.fence - 3))
    late = killed(story.pass_time(6))

    assert (early, late) == ([], [*DEVICES])
    story.lost(*DEVICES)
    assert story.only(do.FinishJob).error.code == 130


def test_without_a_cancellation_a_chunk_may_end() -> None:
    story = Story().to_computing().failed("cpu0", "kernel", chunk=0).fenced("cpu0")

    assert killed(story.pass_time(28)) == []
    assert killed(story.pass_time(4)) == ["cpu1"]


def test_a_cancellation_while_stopping_shortens_the_wait() -> None:
    story = Story().to_computing().failed("cpu0", "memory").pass_time(10)

    story.feed(AbortRequested(Cancelled("cancelled")))

    assert killed(story.pass_time(6)) == [*DEVICES]


@pytest.mark.parametrize("state", ["WaitingForProcesses", "Planning", "StartingProcesses"])
def test_before_a_job_reaches_its_devices_no_deadline_is_its_own(state: str) -> None:
    story = Story().to_stage(state)

    assert story.feed(DeadlinePassed()).commands == []
