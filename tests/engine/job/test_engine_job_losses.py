"""Devices that die, come back, or report an error: what it costs their job in each stage."""

from __future__ import annotations

import pytest
from job_story import DEVICES, FACTORS, Story, X, info, plan

from hetsched.device import DeviceInfo
from hetsched.engine.failures import MAX_FAILURES
from hetsched.engine.job import commands as do
from hetsched.engine.job.events import (
    AbortRequested,
    DeviceExcluded,
    DevicesJoined,
    PlanFailed,
    PlanReady,
    ProcessesSettled,
    ProcessesStarted,
)
from hetsched.engine.job.retries.retry_policy import MAX_ATTEMPTS
from hetsched.errors import Cancelled, Unavailable

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
    assert story.names == [*["RecordFailure"] * 2, "LogMessage", "WaitForProcesses"]


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


def failures(story: Story) -> list[str]:
    """The devices whose failure is counted by the last commands."""
    return [c.device for c in story.commands if isinstance(c, do.RecordFailure)]


def test_a_device_whose_process_keeps_dying_is_used_no_more() -> None:
    story = Story().to_computing().done("cpu1", 2, 3)
    for _ in range(MAX_FAILURES - 1):
        story.lost("cpu0").joined("cpu0")
    story.lost("cpu0")

    assert failures(story) == ["cpu0"]
    assert story.joined("cpu0").commands == []
    finish = story.done("cpu1", 4, 5).only(do.FinishJob)
    assert finish.report.state == "done"
    assert len(finish.report.notes) == MAX_FAILURES + 1, "and the plan's reason"


def test_a_job_that_crashes_on_every_device_fails_and_says_so() -> None:
    story = Story().to_computing()
    for _ in range(MAX_FAILURES - 1):
        story.lost(*DEVICES).joined(*DEVICES).prepared(*DEVICES)
    story.lost(*DEVICES)

    assert story.state == "WaitingForProcesses"
    finish = story.to_planning().only(do.FinishJob)
    assert (finish.error.code, finish.report.state) == (1, "failed")
    assert finish.error.message == (
        "it failed on every device that it may use:"
        " cpu0, cpu1: its process died 3 times: ended by SIGKILL"
    )


def test_devices_without_a_share_take_over_from_those_that_crash() -> None:
    story = Story().to_computing(["cpu0"])
    for _ in range(MAX_FAILURES - 1):
        story.lost("cpu0").joined("cpu0").prepared("cpu0")
    story.lost("cpu0")

    assert story.only(do.WaitForProcesses).devices == ("cpu1",)
    assert story.to_computing(["cpu1"]).state == "Computing"


def test_the_death_of_a_process_counts_for_its_busy_devices() -> None:
    story = Story().to_computing().done("cpu1", 2, 3).lost(*DEVICES)

    assert failures(story) == ["cpu0"]


def test_the_death_of_a_process_counts_for_the_device_that_is_known_to_have_caused_it() -> None:
    story = Story().to_computing()

    assert failures(story.lost(*DEVICES, culprits=["cpu1"])) == ["cpu1"]


def test_after_an_unexplained_death_devices_take_up_work_one_after_the_other() -> None:
    story = Story().to_computing().lost(*DEVICES).joined(*DEVICES)

    assert [c.assignment.device for c in story.commands] == ["cpu0"]
    story.prepared("cpu0").done("cpu0", 4)
    assert story.only(do.PrepareDevice).assignment.device == "cpu1"


def test_the_next_death_is_that_of_the_device_that_computes() -> None:
    story = Story().to_computing().lost(*DEVICES).joined(*DEVICES).prepared("cpu0")

    assert failures(story.lost(*DEVICES)) == ["cpu0"]
    assert [c.assignment.device for c in story.joined(*DEVICES).commands] == [*DEVICES]


def test_a_device_that_misses_a_deadline_has_caused_the_death_of_its_process() -> None:
    story = Story().to_computing().pass_time(20).done("cpu1", 2).pass_time(12)

    assert failures(story.lost(*DEVICES)) == ["cpu0"]


def test_a_device_that_reports_a_fault_has_caused_the_death_of_its_process() -> None:
    story = Story().to_computing().failed("cpu1", "fault")

    assert failures(story.lost(*DEVICES)) == ["cpu1"]


def test_a_device_that_misses_the_deadline_of_a_cancellation_has_not_failed() -> None:
    story = Story().to_computing().feed(AbortRequested(Cancelled("cancelled"))).pass_time(60)

    assert failures(story.lost(*DEVICES)) == []


@pytest.mark.parametrize("state", BESIDE_COMPUTING)
def test_outside_of_computing_deaths_are_counted_too(state: str) -> None:
    story = story_at(state)

    assert failures(story.lost("cpu0")) == ["cpu0"]


def test_a_device_that_failed_for_earlier_jobs_takes_no_part() -> None:
    story = Story().to_waiting()
    story.feed(ProcessesSettled(41, (info("cpu1"),), {}, {"cpu0": "quarantined"}))

    assert story.only(do.MakePlan).infos == (info("cpu1"),)
    assert story.machine.record.notes == ["cpu0: quarantined"]


def test_a_device_that_is_excluded_while_it_is_lost_is_not_prepared_again() -> None:
    story = Story().to_computing().lost("cpu0").feed(DeviceExcluded("cpu0", "too often"))

    assert story.joined("cpu0").commands == []
    assert story.lost("cpu1").feed(DeviceExcluded("cpu1", "too often")).state == (
        "WaitingForProcesses"
    )


def linked_story() -> Story:
    """A job on gpu0, which has a link; cpu0 and cpu1 may be used, too."""
    story = Story()
    story.job.devices = (*DEVICES, "gpu0")
    gpu = DeviceInfo(name="gpu0", kind="gpu", identity="test", link=True)
    story.to_waiting().feed(ProcessesSettled(41, (gpu,), {}))
    story.attempt_id = 41
    story.feed(PlanReady(plan(["gpu0"])))
    return story.feed(ProcessesStarted(frozenset(["gpu0"]), {}, False))


@pytest.mark.parametrize("cause", ["kernel", "variant"])
def test_a_kernel_that_fails_on_a_gpu_runs_on_the_cores(cause: str) -> None:
    story = linked_story().prepared("gpu0").failed("gpu0", cause, "no such arch", chunk=0)

    assert failures(story) == ["gpu0"]
    story.fenced("gpu0")
    assert story.only(do.WaitForProcesses).devices == DEVICES
    assert "gpu0 takes no part in this job: no such arch" in story.machine.record.notes


def test_a_kernel_that_fails_on_the_only_device_fails_its_job() -> None:
    story = linked_story()
    story.job.devices = ("gpu0",)

    story.prepared("gpu0").failed("gpu0", "kernel", "no such arch", chunk=0).fenced("gpu0")

    assert story.only(do.FinishJob).error.message == "no such arch"


def test_without_a_variant_for_the_other_devices_the_crashes_are_the_reason() -> None:
    story = linked_story().prepared("gpu0").failed("gpu0", "kernel", "no such arch", chunk=0)
    story.fenced("gpu0").to_planning().feed(PlanFailed(Unavailable("no variant")))

    assert "gpu0: no such arch" in story.only(do.FinishJob).error.message


def test_a_variant_that_breaks_at_preparation_is_excluded() -> None:
    story = Story().to_preparing().failed("cpu0", "variant", "no such library")

    names = ["LogMessage", "ExcludeVariant", "RecordFailure", "LogMessage"]
    assert story.names == [*names, *["FenceDevice"] * 2]
    assert story.machine.record.notes == ["cpu0: variant numpy can't be used: no such library"]
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


def unavailable_beside(*starting: str) -> Story:
    """A job for which the only device that is ready, a core team, has no variant."""
    team = DeviceInfo(name="team0", kind="cpu", identity="test", members=DEVICES)
    story = Story().to_waiting()
    story.feed(ProcessesSettled(41, (team,), {}, starting=frozenset(starting)))
    return story.feed(PlanFailed(Unavailable("no working variant is installed")))


def test_cores_that_restart_are_waited_for_if_no_other_device_has_a_variant() -> None:
    story = unavailable_beside(*DEVICES)

    assert story.only(do.WaitForProcesses) == do.WaitForProcesses(DEVICES, with_restarts=True)
    assert story.state == "WaitingForProcesses"


def test_without_cores_that_restart_such_a_job_fails() -> None:
    assert unavailable_beside().only(do.FinishJob).error.code == Unavailable.code


def test_a_job_that_begins_without_a_device_that_restarts_says_so() -> None:
    story = Story().to_waiting()
    settled = ProcessesSettled(41, (info("cpu0"),), {}, starting=frozenset({"cpu1"}))

    story.feed(settled, PlanReady(plan(["cpu0"])))

    note = "began without cpu1: the process is starting again"
    assert story.machine.record.report_notes == (note,)


def test_inputs_are_filled_once_for_all_attempts() -> None:
    story = Story(verify=True, generated=[X]).to_computing().failed("cpu0", "memory")
    story.fenced(*DEVICES).to_preparing().prepared(*DEVICES)

    assert story.state == "Computing"


def test_a_late_plan_or_process_has_no_effect() -> None:
    story = Story().to_computing()

    for event in (PlanReady(plan()), ProcessesSettled(9, (), {})):
        assert story.feed(event).commands == []
    assert story.state == "Computing"


def test_a_death_that_another_job_may_have_caused_costs_nothing() -> None:
    story = Story().to_computing()

    for _ in range(2 * MAX_FAILURES):
        story.lost("cpu0", counts=False)
        assert story.state == "Computing"
        assert not [c for c in story.commands if isinstance(c, do.RecordFailure)]
        story.joined("cpu0").prepared("cpu0")

    assert story.state == "Computing"
