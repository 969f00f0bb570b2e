"""Variants that race within a job, and one that fails in the race."""

from __future__ import annotations

from dataclasses import replace

from job_story import DEVICES, Story, info, plan
from msgspec.structs import replace as with_changes

from hetsched.engine.job import commands as do
from hetsched.engine.job.events import PlanReady, ProcessesStarted
from hetsched.errors import ErrorRecord
from hetsched.planner.job_planner import JobPlan
from hetsched.transport.device_messages import VariantFailed


def race_plan() -> JobPlan:
    """Two chunks for each core, the second by the rival."""
    assignments = []
    for planned in plan().assignments:
        chunks = tuple(with_changes(c, kernel=i) for i, c in enumerate(planned.chunks))
        assignments.append(replace(planned, variant="a", rivals=("b",), chunks=chunks))
    return JobPlan(tuple(assignments), 2.0)


def story_preparing() -> Story:
    infos = {device: info(device) for device in DEVICES}
    started = ProcessesStarted(frozenset(DEVICES), infos, False)
    return Story().to_planning().feed(PlanReady(race_plan()), started)


def rejected(story: Story, *devices: str) -> Story:
    error = ErrorRecord(1, "no such library")
    return story.feed(*(story.message(device, VariantFailed, "b", error) for device in devices))


def test_a_rival_that_fails_is_excluded_once_and_the_job_goes_on() -> None:
    story = rejected(story_preparing(), "cpu0")

    assert story.only(do.ExcludeVariant).variant == "b"
    assert rejected(story, "cpu1").commands == []
    assert story.prepared(*DEVICES).only(do.RecordKernels).failed_variants == {"b"}
    assert story.state == "Computing"
    assert story.machine.record.notes == ["cpu0: variant b can't be used: no such library"]


def test_a_rival_that_ends_its_process_is_not_prepared_again() -> None:
    story = story_preparing().prepared(*DEVICES).done("cpu0", 0).done("cpu1", 2)

    story.lost("cpu0", "cpu1")

    assert story.only(do.ExcludeVariant).variant == "b"
    story.joined("cpu0")
    assert story.only(do.PrepareDevice).assignment.variants == ("a", "")
    assert [chunk.kernel for chunk in story.prepared("cpu0").only(do.RunChunks).chunks] == [0]


def test_a_core_without_another_variant_keeps_the_one_that_ended_its_process() -> None:
    (first, second) = race_plan().assignments
    own = tuple(with_changes(chunk, kernel=0) for chunk in second.chunks)
    single = replace(second, variant="b", rivals=(), chunks=own)  # of another type of core
    infos = {device: info(device) for device in DEVICES}
    started = ProcessesStarted(frozenset(DEVICES), infos, False)
    story = Story().to_planning().feed(PlanReady(JobPlan((first, single), 2.0)), started)
    story.prepared(*DEVICES).done("cpu0", 0)

    story.lost(*DEVICES, culprits=["cpu0"])

    assert story.only(do.ExcludeVariant).variant == "b"
    story.joined(*DEVICES)
    prepared = [c.assignment for c in story.commands if isinstance(c, do.PrepareDevice)]
    assert {each.device: each.variants for each in prepared} == {
        "cpu0": ("a", ""),
        "cpu1": ("b",),
    }


def test_it_is_not_blamed_if_a_core_was_running_another_variant() -> None:
    story = story_preparing().prepared(*DEVICES).done("cpu0", 0)

    assert "ExcludeVariant" not in story.lost("cpu0", "cpu1").names


def test_a_variant_without_rivals_is_not_blamed_for_a_death() -> None:
    story = Story().to_computing()

    assert "ExcludeVariant" not in story.lost("cpu0").names
