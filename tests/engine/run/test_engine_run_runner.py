"""A job's run, whatever its devices do and whenever it is cancelled."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from scripted_fleet import Story

from hetsched.engine.deadlines import DEFAULT_DEADLINES
from hetsched.errors import Cancelled, JobFailed
from hetsched.job import Done, Failed, JobState
from hetsched.transport.device_messages import Fence, Prepare, Prepared, Release, Run

IMPATIENT = dataclasses.replace(DEFAULT_DEADLINES, stop=0.6, chunk=0.05, step=0.05)


@pytest.fixture
def story() -> Iterator[Story]:
    story = Story()
    yield story
    story.close()


@pytest.fixture
def impatient() -> Iterator[Story]:
    story = Story(deadlines=IMPATIENT)
    yield story
    story.close()


def test_devices_prepare_compute_and_are_released(story: Story) -> None:
    story.begin()
    assert story.devices_of(Prepare) == ["a", "b"]
    assert not story.commands(Run)

    story.prepared("a", "b").finish()

    assert isinstance(story.last, Done)
    assert {d.device: d.share for d in story.last.report.devices} == {"a": 4, "b": 4}
    assert story.devices_of(Release) == ["a", "b"]
    assert not story.commands(Fence)


def test_a_device_that_dies_while_it_prepares_is_left_out_of_the_next_attempt(
    story: Story,
) -> None:
    story.begin().prepared("a").lost("b")
    assert story.devices_of(Fence) == ["a"]
    assert story.plans.planned == [["a", "b"]]

    story.fenced("a")

    assert story.plans.planned == [["a", "b"], ["a"]]


def test_chunks_of_a_device_that_dies_run_elsewhere_and_it_may_come_back(story: Story) -> None:
    story.begin().prepared("a", "b").lost("b").back("b")
    assert story.devices_of(Prepare) == ["a", "b", "b"]

    story.prepared("b").finish()

    assert isinstance(story.last, Done)
    assert sum(device.share for device in story.last.report.devices) == 8
    assert any("its unfinished chunks ran again" in note for note in story.last.report.notes)


def test_a_device_that_dies_three_times_is_no_longer_used(story: Story) -> None:
    story.begin().prepared("a", "b")
    for _ in range(2):
        story.lost("b").back("b").prepared("b")
    story.lost("b").back("b")

    assert story.devices_of(Prepare) == ["a", "b", "b", "b"]
    story.finish()
    assert isinstance(story.last, Done)


def test_a_job_whose_last_device_is_no_longer_used_fails(story: Story) -> None:
    story.begin().prepared("a", "b")
    for device in ("a", "b"):
        for _ in range(2):
            story.lost(device).back(device).prepared(device)
        story.lost(device)

    assert "it failed on every device that it may use" in story.error


def test_after_an_error_of_a_kernel_the_job_ends_once_no_device_works(story: Story) -> None:
    story.begin().prepared("a", "b").failed("a", "kernel", 0)
    assert story.devices_of(Fence) == ["a", "b"]
    sent = len(story.fleet.sent)

    story.fenced("a")
    assert story.last is None
    story.fenced("b")

    assert story.error == "kernel on a"
    assert len(story.fleet.sent) == sent, "nothing follows a fence"


def test_a_plan_that_doesnt_fit_is_made_again_but_not_for_ever(story: Story) -> None:
    story.begin()
    for _ in range(5):
        story.failed("a", "memory").fenced("a", "b")

    assert story.error == "gave up after 5 attempts: memory on a"


def test_answers_to_an_earlier_attempt_count_for_nothing(story: Story) -> None:
    story.begin()
    earlier = story.attempt
    story.failed("a", "memory").fenced("a", "b")
    assert story.attempt != earlier

    for device in ("a", "b"):
        story.runner.on_message(device, Prepared(earlier))
    story.settle()

    assert not story.commands(Run)


def test_a_cancelled_job_ends_once_its_devices_have_stopped(story: Story) -> None:
    story.begin().prepared("a", "b")
    story.runner.abort(Cancelled("cancelled"))
    story.settle()
    assert story.devices_of(Fence) == ["a", "b"]
    assert story.last is None

    story.fenced("a", "b")

    assert story.error == "cancelled"


def test_a_job_is_cancelled_before_it_has_begun(story: Story) -> None:
    story.runner.begin()
    story.runner.abort(Cancelled("cancelled"))
    story.settle()

    assert story.error == "cancelled"
    assert not story.fleet.sent


def test_a_cancellation_while_devices_stop_for_another_attempt_ends_the_job(
    story: Story,
) -> None:
    story.begin().failed("a", "memory")
    story.runner.abort(Cancelled("cancelled"))
    story.settle().fenced("a", "b")

    assert story.error == "cancelled"
    assert len(story.plans.planned) == 1


def test_the_first_of_two_reasons_to_end_counts(story: Story) -> None:
    story.begin().prepared("a", "b")
    story.runner.abort(JobFailed("too slow"))
    story.settle()
    story.runner.abort(Cancelled("cancelled"))
    story.settle().fenced("a", "b")

    assert story.error == "too slow"


def test_nothing_is_sent_after_a_callback_has_cancelled_the_job(story: Story) -> None:
    story.begin().prepared("a", "b")

    def cancel(state: JobState) -> None:
        story.runner.abort(Cancelled("cancelled"))

    story.runner.running.on_state = cancel
    story.runner.running._reported_at = 0.0
    story.chunk("a")
    sent = len(story.fleet.sent)
    story.fenced("a", "b")

    assert story.error == "cancelled"
    assert len(story.fleet.sent) == sent


def test_a_device_that_dies_instead_of_stopping_holds_nobody_up(story: Story) -> None:
    story.begin().prepared("a", "b")
    story.runner.abort(Cancelled("cancelled"))
    story.settle().fenced("a").lost("b")

    assert story.error == "cancelled"


def test_a_device_that_doesnt_stop_is_killed(impatient: Story) -> None:
    impatient.begin().prepared("a", "b")
    impatient.runner.abort(Cancelled("cancelled"))
    impatient.settle().fenced("a").wait_until(lambda: impatient.fleet.killed)
    assert set(impatient.fleet.killed) == {"b"}
    assert impatient.last is None, "it may still write"

    impatient.lost("b")

    assert impatient.error == "cancelled"


def test_a_device_that_takes_too_long_is_killed_and_the_other_does_its_work(
    impatient: Story,
) -> None:
    impatient.begin().prepared("a")
    impatient.wait_until(lambda: impatient.fleet.killed)
    assert set(impatient.fleet.killed) == {"b"}

    impatient.lost("b").fenced("a")

    assert impatient.plans.planned[-1] == ["a"]
    assert impatient.last is None


def test_a_silent_device_is_killed_though_its_step_may_take_longer() -> None:
    story = Story(deadlines=dataclasses.replace(DEFAULT_DEADLINES, chunk=0.05))
    story.fleet.silent.add("b")

    story.begin().wait_until(lambda: story.fleet.killed)

    assert set(story.fleet.killed) == {"b"}
    assert not story.runner.running.failures.overdue, "its kind of job isn't the cause"
    story.lost("b").fenced("a")
    story.close()


def test_an_exception_of_our_own_fails_the_job_only(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    def raises(state: JobState) -> None:
        raise ZeroDivisionError("in a callback")

    story.runner.running.on_state = raises
    story.begin().fenced("a", "b")

    assert isinstance(story.last, Failed)
    assert story.last.error.code == 70
    assert "in a callback" in caplog.text
