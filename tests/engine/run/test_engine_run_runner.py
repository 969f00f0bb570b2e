"""A job's run, whatever its devices do and whenever it is cancelled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scripted_fleet import Story

from hetsched.config import DeadlinesConfig, Seconds
from hetsched.engine.run.attempt import Message
from hetsched.errors import Cancelled
from hetsched.job import Done, JobState
from hetsched.transport.device_messages import Prepare, Prepared, Release, Run

IMPATIENT = DeadlinesConfig(stop=Seconds(0.6), chunk=Seconds(0.05), step=Seconds(0.05))


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


def test_a_device_that_dies_three_times_is_no_longer_used(story: Story) -> None:
    story.begin().prepared("a", "b")
    for _ in range(2):
        story.lost("b").back("b").prepared("b")
    story.lost("b").back("b")

    assert story.devices_of(Prepare) == ["a", "b", "b", "b"]
    story.finish()
    assert isinstance(story.last, Done)


def test_after_an_error_of_a_kernel_the_job_ends_once_no_device_works(story: Story) -> None:
    story.begin().prepared("a", "b").failed("a", "kernel", 0)
    assert story.devices_of(Release) == ["a", "b"]
    sent = len(story.fleet.sent)

    story.fenced("a")
    assert story.last is None
    story.fenced("b")

    assert story.error == "kernel on a"
    assert len(story.fleet.sent) == sent, "nothing follows a fence"


def test_answers_to_an_earlier_attempt_count_for_nothing(story: Story) -> None:
    story.begin()
    earlier = story.attempt
    story.failed("a", "memory").fenced("a", "b")
    assert story.attempt != earlier

    for device in ("a", "b"):
        story.runner.tell(Message(device, Prepared(earlier)))
    story.settle()

    assert not story.commands(Run)


def test_a_cancellation_while_devices_stop_for_another_attempt_ends_the_job(
    story: Story,
) -> None:
    story.begin().failed("a", "memory")
    story.runner.abort(Cancelled("cancelled"))
    story.settle().fenced("a", "b")

    assert story.error == "cancelled"
    assert len(story.plans.planned) == 1


def test_nothing_is_sent_after_a_callback_has_cancelled_the_job(story: Story) -> None:
    story.begin().prepared("a", "b")

    def cancel(state: JobState) -> None:
        story.runner.abort(Cancelled("cancelled"))

    story.runner.on_state = cancel
    story.runner._reported_at = 0.0
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


def test_a_silent_device_is_killed_though_its_step_may_take_longer() -> None:
    story = Story(deadlines=DeadlinesConfig(chunk=Seconds(0.05)))
    story.fleet.silent.add("b")

    story.begin().wait_until(lambda: story.fleet.killed)

    assert set(story.fleet.killed) == {"b"}
    assert not story.runner.failures.overdue, "its kind of job isn't the cause"
    story.lost("b").fenced("a")
    story.close()
