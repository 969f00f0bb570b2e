"""Aborts and exceptions, in each stage: the job ends with its error, and devices stop first."""

from __future__ import annotations

import pytest
from job_story import DEVICES, FACTORS, Story, X, info, plan

from hetsched.engine.job import commands as do
from hetsched.engine.job.events import (
    AbortRequested,
    PlanFailed,
    PlanReady,
    ProcessesSettled,
    Published,
    PublishFailed,
    StageFailed,
)
from hetsched.errors import Cancelled, CantCreate, DataError, TryAgain, Unavailable

CANCEL = AbortRequested(Cancelled("job 7 was cancelled"))
BUG = StageFailed(ZeroDivisionError("by zero"))
AT_ONCE = ["New", "WaitingForProcesses", "StartingProcesses"]
AFTER_FENCES = ["Preparing", "Filling", "ReloadingResidents", "Computing", "Verifying"]


def story_at(state: str) -> Story:
    generated = {"Filling": [X], "ReloadingResidents": [FACTORS]}.get(state, [])
    output = "/y.npy" if state == "Publishing" else ""
    story = Story(verify=state == "Verifying", generated=generated, output=output)
    return story if state == "New" else story.to_stage(state)


@pytest.mark.parametrize("state", AT_ONCE)
def test_before_devices_know_of_it_a_job_is_cancelled_at_once(state: str) -> None:
    finish = story_at(state).feed(CANCEL).only(do.FinishJob)

    assert (finish.error.code, finish.report.state) == (130, "cancelled")


@pytest.mark.parametrize("state", AFTER_FENCES)
def test_later_it_is_cancelled_when_devices_have_stopped(state: str) -> None:
    story = story_at(state).feed(CANCEL)

    assert story.state == "Stopping"
    assert story.commands == [do.FenceDevice(41, "cpu0"), do.FenceDevice(41, "cpu1")]
    finish = story.fenced(*DEVICES).only(do.FinishJob)
    assert (story.state, finish.report.state, finish.report.verified) == (
        "Ended", "cancelled", None,
    )  # fmt: skip
    assert (finish.attempt_id, finish.devices) == (41, DEVICES)


@pytest.mark.parametrize("answer", [PlanReady(plan()), PlanFailed(DataError("too big"))])
def test_a_job_that_is_being_planned_is_cancelled_when_the_planner_answers(
    answer: PlanReady | PlanFailed,
) -> None:
    story = story_at("Planning").feed(CANCEL)
    assert (story.state, story.commands) == ("DiscardingPlan", [])

    assert story.feed(answer).only(do.FinishJob).report.state == "cancelled"


def test_it_is_too_late_to_cancel_a_job_that_is_being_published() -> None:
    story = story_at("Publishing").feed(CANCEL)

    assert (story.state, story.commands) == ("Publishing", [])
    assert story.feed(Published()).only(do.FinishJob).report.state == "done"


def test_a_job_that_is_cancelled_while_it_starts_over_does_not_start_over() -> None:
    story = story_at("Preparing").failed("cpu0", "memory").feed(CANCEL).fenced(*DEVICES)

    assert story.only(do.FinishJob).report.state == "cancelled"


def test_the_first_reason_to_end_is_kept() -> None:
    story = story_at("Computing").feed(CANCEL, AbortRequested(TryAgain("stopping")))

    assert story.fenced(*DEVICES).only(do.FinishJob).error.code == 130


def test_after_its_end_nothing_has_an_effect() -> None:
    story = story_at("WaitingForProcesses").feed(CANCEL)

    story.feed(CANCEL)
    assert story.commands == []
    assert story.lost("cpu0").commands == []


def test_a_plan_that_cannot_be_made_fails_the_job() -> None:
    finish = story_at("Planning").feed(PlanFailed(DataError("too big"))).only(do.FinishJob)

    assert (finish.error.code, finish.error.message) == (65, "too big")


def test_a_file_that_cannot_be_published_fails_the_job() -> None:
    error = CantCreate("no space left")
    finish = story_at("Publishing").feed(PublishFailed(error)).only(do.FinishJob)

    assert (finish.error.code, finish.report.state) == (73, "failed")
    assert finish.runs is None


@pytest.mark.parametrize("state", [*AT_ONCE, "Planning", "Publishing"])
def test_an_exception_fails_the_job_and_is_logged(state: str) -> None:
    story = story_at(state).feed(BUG)

    log, finish = story.only(do.LogMessage), story.only(do.FinishJob)
    assert (finish.error.code, finish.error.message) == (70, "ZeroDivisionError: by zero")
    assert (log.level, log.error) == ("error", BUG.error)
    assert story.state == "Ended"


@pytest.mark.parametrize("state", AFTER_FENCES)
def test_an_exception_while_devices_work_fails_the_job_when_they_have_stopped(state: str) -> None:
    story = story_at(state).feed(BUG)
    assert story.names == ["FenceDevice", "FenceDevice"]

    story.fenced(*DEVICES)

    assert story.only(do.LogMessage).error is BUG.error
    assert story.only(do.FinishJob).error.code == 70


def test_an_exception_while_a_plan_is_discarded_ends_the_job() -> None:
    story = story_at("Planning").feed(CANCEL, BUG)

    assert story.only(do.FinishJob).error.code == 70


def test_an_error_on_purpose_is_not_logged_as_a_bug() -> None:
    story = story_at("WaitingForProcesses").feed(StageFailed(TryAgain("the arena is full")))

    assert story.names == ["FinishJob"]
    assert story.only(do.FinishJob).error.code == 75


def test_an_exception_while_a_job_starts_over_fails_it() -> None:
    story = story_at("Preparing").failed("cpu0", "memory").feed(BUG)
    assert story.commands == []

    assert story.fenced(*DEVICES).only(do.FinishJob).error.code == 70


def test_an_exception_while_a_job_fails_is_logged_and_the_jobs_error_is_kept() -> None:
    story = story_at("Computing").feed(CANCEL, BUG)
    assert story.names == ["LogMessage"]

    assert story.fenced(*DEVICES).only(do.FinishJob).error.code == 130


def test_a_fence_that_cannot_be_sent_is_not_waited_for() -> None:
    story = story_at("Computing").feed(CANCEL)
    first, second = story.commands

    story.feed(StageFailed(OSError("no buffer"), first))
    assert story.names == ["LogMessage"]
    story.feed(StageFailed(OSError("no buffer"), second))

    assert story.names == ["LogMessage", "FinishJob"]
    assert story.only(do.FinishJob).error.code == 130


def test_an_exception_after_the_end_is_only_logged() -> None:
    story = story_at("WaitingForProcesses").feed(CANCEL, BUG)

    assert story.names == ["LogMessage"]


def test_even_a_job_whose_failure_cannot_be_reported_ends() -> None:
    story = story_at("Computing")

    (finish,) = story.machine.give_up(ZeroDivisionError("by zero"))

    assert isinstance(finish, do.FinishJob)
    assert finish.error is not None
    assert (finish.error.code, finish.report.state, story.state) == (70, "failed", "Ended")
    assert (finish.attempt_id, finish.devices) == (41, DEVICES)


def test_without_a_variant_for_the_others_the_error_names_devices_that_failed_to_start() -> None:
    absent = {"cpu0": "its process failed to start 3 times: killed by SIGKILL"}
    settled = ProcessesSettled(41, (info("cpu1"),), absent)

    story = Story().to_waiting().feed(settled, PlanFailed(Unavailable("no working variant")))

    message = story.only(do.FinishJob).error.message
    assert message.startswith("no working variant; devices not available: cpu0: its process")
