"""A job from stage to stage, as long as nothing goes wrong."""

from __future__ import annotations

import pytest
from job_story import DEVICES, FACTORS, JOB, SEED, TIMES, Story, X, info, plan

from hetsched.device import DeviceInfo
from hetsched.engine.job import commands as do
from hetsched.engine.job.events import (
    DeviceMessage,
    DevicesJoined,
    ProcessesStarted,
    Published,
)
from hetsched.engine.planning.device_run import DeviceRun
from hetsched.job import DeviceProgress, Running
from hetsched.transport.device_messages import DeviceNote, Hello


def test_a_job_allocates_and_waits_for_processes() -> None:
    story = Story().to_waiting()

    assert story.state == "WaitingForProcesses"
    assert story.commands == [do.AllocateArrays(), do.WaitForProcesses(DEVICES)]


def test_it_is_planned_for_the_devices_that_are_there() -> None:
    story = Story().to_planning(["cpu1"])

    assert story.state == "Planning"
    assert [info.name for info in story.only(do.MakePlan).infos] == ["cpu1"]


def test_processes_of_assigned_devices_are_started() -> None:
    story = Story().to_starting()

    assert story.state == "StartingProcesses"
    assert story.commands == [do.StartProcesses(plan().assignments)]


def test_every_device_is_prepared_before_the_first_chunk() -> None:
    story = Story().to_preparing()

    assert story.state == "Preparing"
    assert story.commands == [
        do.ReportProgress(Running(JOB, "preparing", (), 2.0)),
        do.PrepareDevice(41, plan().assignments[0], answer=True),
        do.PrepareDevice(41, plan().assignments[1], answer=True),
    ]
    assert story.prepared("cpu0").commands == []
    assert story.state == "Preparing"


def test_devices_with_a_link_are_prepared_before_cores_begin_to_compute() -> None:
    gpu = DeviceInfo(name="gpu0", kind="cuda", identity="test", link=True)
    infos = {"cpu0": info("cpu0"), "gpu0": gpu}
    story = Story().to_starting(["cpu0", "gpu0"])

    story.feed(ProcessesStarted(frozenset(infos), infos, kernels_cached=True))

    prepared = [c.assignment.device for c in story.commands if isinstance(c, do.PrepareDevice)]
    assert prepared == ["gpu0", "cpu0"]


def test_when_all_are_prepared_chunks_are_sent() -> None:
    story = Story().to_preparing().prepared(*DEVICES)

    assert story.state == "Computing"
    chunks = [assignment.chunks for assignment in plan().assignments]
    progress = (DeviceProgress("cpu0", 0, 2), DeviceProgress("cpu1", 0, 2))
    assert story.commands == [
        do.RecordKernels(plan().assignments, {device: info(device) for device in DEVICES}),
        do.ReportProgress(Running(JOB, "computing", progress, 2.0)),
        do.RunChunks(41, "cpu0", chunks[0][:1]),
        do.RunChunks(41, "cpu1", chunks[1][:1]),
    ]


def test_chunks_follow_at_once_where_preparing_is_quick() -> None:
    story = Story().to_preparing(cached=True)

    assert story.state == "Computing"
    prepare = [c for c in story.commands if isinstance(c, do.PrepareDevice)]
    assert [command.answer for command in prepare] == [False, False]
    assert story.names[-2:] == ["RunChunks", "RunChunks"]


def test_a_finished_chunk_is_followed_by_the_next() -> None:
    story = Story().to_computing().done("cpu0", 0)

    assert story.commands[0] == do.RunChunks(41, "cpu0", plan().assignments[0].chunks[1:])
    assert story.only(do.ReportProgress).state.devices[0] == DeviceProgress("cpu0", 1, 2)


def test_progress_is_not_reported_more_often_than_ten_times_a_second() -> None:
    story = Story().to_computing()
    story.now -= 0.95

    assert story.done("cpu0", 0).names == ["RunChunks"]


def test_when_every_chunk_is_done_the_job_is_finished_and_learnt_from() -> None:
    story = Story().to_computing().done("cpu0", 0, 1).done("cpu1", 2, 3)

    finish = story.only(do.FinishJob)
    assert story.state == "Ended"
    assert (finish.error, finish.report.state, finish.report.verified) == (None, "done", None)
    assert (finish.attempt_id, finish.devices) == (41, DEVICES)
    assert [device.chunks for device in finish.report.devices] == [(1, 1), (1, 1)]
    assert [type(run) for run in finish.runs.values()] == [DeviceRun] * 2
    assert finish.runs["cpu1"].chunks == ((1, TIMES), (1, TIMES))


def test_generated_inputs_are_filled_by_the_devices() -> None:
    story = Story(generated=[X]).to_preparing().prepared(*DEVICES)

    assert story.state == "Filling"
    orders = [c.order for c in story.commands if isinstance(c, do.FillUnits)]
    assert [(o.device, o.array, o.first, o.count, o.seed) for o in orders] == [
        ("cpu0", "x", 0, 2, 5),
        ("cpu1", "x", 2, 2, 5),
    ]
    assert story.only(do.ReportProgress).state.stage == "generating"
    assert story.filled(*DEVICES).state == "Computing"


def test_what_is_filled_waits_for_prepared_devices_even_if_preparing_is_quick() -> None:
    story = Story(generated=[X]).to_preparing(cached=True)

    assert story.state == "Preparing"
    assert all(c.answer for c in story.commands if isinstance(c, do.PrepareDevice))


def test_devices_prepare_again_to_load_generated_resident_arrays() -> None:
    story = Story(generated=[FACTORS]).to_stage("ReloadingResidents")

    assert story.names == ["PrepareDevice", "PrepareDevice"]
    assert story.prepared("cpu0").state == "ReloadingResidents"
    assert story.prepared("cpu1").state == "Computing"


def test_outputs_to_be_verified_are_poisoned() -> None:
    story = Story(verify=True).to_preparing().prepared(*DEVICES)

    orders = [c.order for c in story.commands if isinstance(c, do.FillUnits)]
    assert [(o.array, o.poison) for o in orders] == [("y", True), ("y", True)]


def test_an_output_file_is_not_poisoned() -> None:
    story = Story(verify=True, output="/y.npy").to_preparing().prepared(*DEVICES)

    assert story.state == "Computing"


def test_every_unit_is_checked() -> None:
    story = Story(verify=True).to_verifying()

    assert story.state == "Verifying"
    checks = [c for c in story.commands if isinstance(c, do.CheckUnits)]
    assert [(c.order.first, c.order.count, c.seed) for c in checks] == [(0, 2, SEED), (2, 2, SEED)]
    assert story.only(do.ReportProgress).state.stage == "verifying"


def test_the_report_of_a_verified_job_states_it() -> None:
    story = Story(verify=True).to_verifying().checked("cpu0").checked("cpu1", max_error=2e-9)

    report = story.only(do.FinishJob).report
    assert (report.state, report.verified, report.max_error) == ("done", True, 2e-9)


@pytest.mark.parametrize("wrong", [{"worst": 1.5}, {"sample_error": float("nan")}])
def test_a_wrong_result_fails_the_job(wrong: dict[str, float]) -> None:
    story = Story(verify=True).to_verifying().checked("cpu0", unit=1, **wrong).checked("cpu1")

    finish = story.only(do.FinishJob)
    assert (finish.report.state, finish.report.verified, finish.error.code) == ("failed", False, 1)
    assert "verification failed: unit 1" in finish.error.message
    assert finish.runs is None


def test_output_files_are_published_before_the_job_is_done() -> None:
    story = Story(output="/y.npy").to_stage("Publishing")
    assert story.commands == [do.PublishOutputs()]

    finish = story.feed(Published()).only(do.FinishJob)

    assert story.state == "Ended"
    assert (finish.report.state, finish.report.outputs) == ("done", {"y": "/y.npy"})


def test_a_note_of_a_device_is_reported_at_once() -> None:
    story = Story().to_computing()
    story.now -= 0.99
    story.feed(story.message("cpu0", DeviceNote, "planning 512x512"))

    assert story.only(do.ReportProgress).state.text == "planning 512x512"


def test_a_device_that_joins_is_of_no_use_before_or_after_computing() -> None:
    for state in ("WaitingForProcesses", "Planning", "Preparing", "Verifying"):
        story = Story(verify=True).to_stage(state)

        assert story.feed(DevicesJoined(("cpu0",))).commands == []
        assert story.state == state


@pytest.mark.parametrize("state", ["Preparing", "Filling", "Computing", "Verifying"])
def test_messages_about_an_earlier_attempt_are_ignored(state: str) -> None:
    story = Story(verify=True).to_stage(state)
    current, story.attempt_id = story.attempt_id, story.attempt_id - 1

    for device in DEVICES:
        story.prepared(device).filled(device).checked(device).failed(device, "kernel")
        story.done(device, 0)
        assert story.commands == []
    assert story.state == state
    assert story.machine.record.latest is not None
    assert story.machine.record.latest.id == current


def test_messages_without_a_job_are_ignored() -> None:
    story = Story().to_computing()

    assert story.feed(DeviceMessage("cpu0", Hello(1, ()))).commands == []
