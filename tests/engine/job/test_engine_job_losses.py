"""Devices that die, come back, or report an error: what it costs their job in each stage."""

from __future__ import annotations

import pytest
from job_story import DEVICES, FACTORS, Story, X, plan

from hetsched.engine.job import commands as do
from hetsched.engine.job.events import (
    DevicesJoined,
    PlanReady,
    ProcessesSettled,
    ProcessesStarted,
)
from hetsched.engine.job.retry_policy import MAX_ATTEMPTS, MAX_DEATHS

BESIDE_COMPUTING = ["Preparing", "Filling", "ReloadingResidents", "Verifying"]


def story_at(state: str) -> Story:
    generated = {"Filling": [X], "ReloadingResidents": [FACTORS]}.get(state, [])
    return Story(verify=state == "Verifying", generated=generated).to_stage(state)


@pytest.mark.parametrize("state", BESIDE_COMPUTING)
def test_outside_of_computing_a_job_starts_over_when_the_others_have_stopped(state: str) -> None:
    story = story_at(state).lost("cpu0")

    assert story.state == "Stopping"
    assert story.only(do.FenceDevice) == do.FenceDevice(41, "cpu1")
    assert story.only(do.LogMessage).text == "starts over: ended by SIGKILL"
    assert story.fenced("cpu1").commands == [do.WaitForProcesses(DEVICES)]
    assert story.to_computing(["cpu1"]).attempt_id == 42


def test_while_computing_only_the_chunks_of_the_lost_device_run_again() -> None:
    story = Story().to_computing().done("cpu1", 2, 3).lost("cpu0")

    assert story.state == "Computing"
    (chunk,) = story.only(do.RunChunks).chunks
    assert (story.only(do.RunChunks).device, chunk.first) == ("cpu1", 0)
    finish = story.done("cpu1", 4, 5).only(do.FinishJob)
    assert finish.report.state == "done"
    assert [device.share for device in finish.report.devices] == [0, 4]
    assert finish.runs is None, "nothing is learnt from a run with a loss"
    assert "the process of cpu0 died, ended by SIGKILL" in finish.report.notes[0]


def test_a_lost_device_that_comes_back_is_prepared_and_takes_chunks_again() -> None:
    story = Story().to_computing().lost("cpu0")

    story.feed(DevicesJoined(("cpu0", "gpu7")))

    assert story.commands == [do.PrepareDevice(41, plan().assignments[0], answer=True)]
    assert story.prepared("cpu0").only(do.RunChunks).device == "cpu0"


def test_a_device_that_came_back_without_being_prepared_does_not_check() -> None:
    story = Story(verify=True).to_computing().done("cpu1", 2, 3).lost("cpu0")
    story.feed(DevicesJoined(("cpu0",))).done("cpu1", 4, 5)

    checks = [c.order.device for c in story.commands if isinstance(c, do.CheckUnits)]
    assert (story.state, checks) == ("Verifying", ["cpu1"])
    assert story.prepared("cpu0").state == "Verifying", "its late answer is no check"


def test_when_no_assigned_device_can_come_back_others_take_over() -> None:
    story = Story().to_computing().lost(*DEVICES, abandoned=DEVICES)

    assert story.state == "WaitingForProcesses"
    assert story.names == ["LogMessage", "WaitForProcesses"]


def test_a_job_waits_for_its_only_device_to_come_back() -> None:
    story = Story().to_computing().lost(*DEVICES)

    assert story.state == "Computing"
    story.feed(DevicesJoined(("cpu1",))).prepared("cpu1")
    assert [c.device for c in story.commands if isinstance(c, do.RunChunks)] == ["cpu1"]


@pytest.mark.parametrize("state", ["WaitingForProcesses", "Planning", "StartingProcesses"])
def test_before_a_job_reaches_its_devices_a_loss_has_no_effect(state: str) -> None:
    story = Story().to_stage(state).lost("cpu0")

    assert (story.state, story.commands) == (state, [])


def test_a_device_that_is_gone_when_its_plan_is_ready_makes_the_job_plan_again() -> None:
    story = Story().to_starting().feed(ProcessesStarted(frozenset(["cpu1"]), {}, False))

    assert story.state == "WaitingForProcesses"
    assert story.names == ["LogMessage", "WaitForProcesses"]


@pytest.mark.parametrize("state", [*BESIDE_COMPUTING, "Computing", "Publishing"])
def test_the_loss_of_a_device_without_a_share_has_no_effect(state: str) -> None:
    story = Story(output="/y.npy").to_stage(state) if state == "Publishing" else story_at(state)

    story.lost("gpu0")

    assert (story.state, story.commands) == (state, [])


def test_a_loss_while_stopping_is_not_waited_for() -> None:
    story = story_at("Preparing").failed("cpu0", "memory").fenced("cpu0")
    assert story.state == "Stopping"

    assert story.lost("cpu1").state == "WaitingForProcesses"


def test_a_job_whose_processes_keep_dying_fails() -> None:
    story = Story().to_computing()
    for _ in range(MAX_DEATHS - 1):
        story.lost("cpu0").feed(DevicesJoined(("cpu0",)))
    story.lost("cpu0")

    assert story.commands == [do.FenceDevice(41, "cpu1")]
    finish = story.fenced("cpu1").only(do.FinishJob)
    assert (finish.error.code, finish.report.state) == (1, "failed")
    assert "died 3 times: ended by SIGKILL" in finish.error.message
    assert len(finish.report.notes) == MAX_DEATHS + 1, "and the plan's reason"


def test_a_death_too_many_while_stopping_fails_the_job() -> None:
    story = Story().to_computing().lost("cpu0").feed(DevicesJoined(("cpu0",)))
    story.lost("cpu0").feed(DevicesJoined(("cpu0",))).failed("cpu1", "memory")
    assert story.state == "Stopping"

    story.lost("cpu0").fenced("cpu1")

    assert "died 3 times" in story.only(do.FinishJob).error.message


def test_a_variant_that_breaks_at_preparation_is_excluded() -> None:
    story = Story().to_preparing().failed("cpu0", "variant", "no such library")

    assert story.names == ["LogMessage", "ExcludeVariant", "LogMessage", *["FenceDevice"] * 2]
    assert story.only(do.ExcludeVariant).variant == "numpy"
    assert story.only(do.ExcludeVariant).info.name == "cpu0"
    assert story.fenced(*DEVICES).state == "WaitingForProcesses"


def test_a_variant_that_breaks_without_an_answer_to_wait_for_is_excluded_too() -> None:
    story = Story().to_preparing(cached=True).failed("cpu0", "variant")

    assert story.only(do.ExcludeVariant).variant == "numpy"
    assert story.state == "Stopping"


def test_a_usage_error_of_a_kernel_that_ran_fails_the_job() -> None:
    story = Story().to_computing().failed("cpu0", "variant", "bad", chunk=0).fenced(*DEVICES)

    assert story.only(do.FinishJob).error.message == "bad"


@pytest.mark.parametrize("state", [*BESIDE_COMPUTING, "Computing"])
def test_out_of_memory_is_answered_by_a_smaller_plan(state: str) -> None:
    story = story_at(state).failed("cpu1", "memory")

    assert story.only(do.ReduceMemory) == do.ReduceMemory("cpu1", 1024)
    assert story.fenced(*DEVICES).state == "WaitingForProcesses"


@pytest.mark.parametrize("cause", ["kernel", "io"])
def test_an_error_of_the_job_fails_it_when_devices_have_stopped(cause: str) -> None:
    story = Story().to_computing().failed("cpu0", cause, "the kernel failed", chunk=0)

    assert story.commands == [do.FenceDevice(41, "cpu0"), do.FenceDevice(41, "cpu1")]
    assert story.done("cpu1", 2).commands == [], "nothing more is sent"
    assert story.fenced("cpu0").commands == []
    finish = story.fenced("cpu1").only(do.FinishJob)
    assert (finish.error.message, finish.report.state) == ("the kernel failed", "failed")
    assert finish.report.seconds is None


def test_a_fault_is_answered_when_its_process_has_died() -> None:
    story = Story().to_computing().failed("cpu0", "fault")

    assert (story.state, story.commands) == ("Computing", [])


def test_a_job_is_given_up_after_its_last_attempt() -> None:
    story = Story()
    for _ in range(MAX_ATTEMPTS):
        story.to_preparing().failed("cpu0", "memory", "no memory").fenced(*DEVICES)
    story.to_planning()

    assert story.state == "Ended"
    assert story.only(do.FinishJob).error.message == "gave up after 5 attempts: no memory"


def test_where_no_device_is_left_the_job_fails() -> None:
    story = Story().to_waiting().feed(ProcessesSettled(1, (), {"gpu0": "no driver"}))

    finish = story.only(do.FinishJob)
    assert (finish.error.code, finish.attempt_id) == (69, None)
    assert "gpu0: no driver" in finish.error.message


def test_inputs_are_filled_once_for_all_attempts() -> None:
    story = Story(verify=True, generated=[X]).to_computing().failed("cpu0", "memory")
    story.fenced(*DEVICES).to_preparing().prepared(*DEVICES)

    assert story.state == "Computing"


def test_a_late_plan_or_process_has_no_effect() -> None:
    story = Story().to_computing()

    for event in (PlanReady(plan()), ProcessesSettled(9, (), {})):
        assert story.feed(event).commands == []
    assert story.state == "Computing"
