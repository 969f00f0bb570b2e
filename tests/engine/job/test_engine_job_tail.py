"""A job whose cores share a tail, through its state machine."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from job_story import DEVICES, TIMES, Story, assignment, info

from hetsched.device import TailPart
from hetsched.engine.deadlines import DEFAULT_DEADLINES
from hetsched.engine.job import commands as do
from hetsched.engine.job.chunk_records import MAX_RANGES, ComputedRanges
from hetsched.engine.job.events import PlanReady, ProcessesStarted
from hetsched.planner.records import JobPlan
from hetsched.plans.device_plan import DevicePlan
from hetsched.transport.device_messages import OwnChunk, TailChunksDone, TakenChunk

TAIL = TailPart(first=2, units=2, weight=0.5)
"""Of a load of four units: each core has one of its own."""


def tail_plan() -> JobPlan:
    assignments = []
    for number, device in enumerate(DEVICES):
        plain = assignment(device, number, number)
        own = (plain.chunks[0],)
        assignments.append(
            replace(plain, plan=DevicePlan(((1, 1),)), chunks=own, tail=TAIL, pooled=1)
        )
    return JobPlan(tuple(assignments), 2.0)


def computing(*, verify: bool = False) -> Story:
    story = Story(verify=verify).to_planning()
    story.feed(PlanReady(tail_plan()))
    infos = {device: info(device) for device in DEVICES}
    story.feed(ProcessesStarted(frozenset(DEVICES), infos, True))
    if verify:  # outputs are poisoned
        story.prepared(*DEVICES).filled(*DEVICES)
    return story


def taken(story: Story, device: str, first: int) -> Story:
    times = msgspec.structs.replace(TIMES, taken=True)
    return story.feed(story.message(device, TailChunksDone, (TakenChunk(first, 1, times),)))


def test_cores_are_prepared_for_the_tail_and_may_take_it_after_their_own_chunks() -> None:
    story = computing()
    runs = [command for command in story.commands if isinstance(command, do.RunChunks)]
    assert [(run.device, len(run.chunks), run.opens_tail) for run in runs] == [
        ("cpu0", 1, True),
        ("cpu1", 1, True),
    ]


def test_the_report_names_the_units_that_each_core_has_computed() -> None:
    story = computing().done("cpu1", 1)
    taken(taken(story, "cpu1", 2), "cpu1", 3)
    story.feed(story.message("cpu1", TailChunksDone, (), True))
    finish = story.done("cpu0", 0).only(do.FinishJob)
    assert [device.share for device in finish.report.devices] == [1, 3]
    assert [device.chunks for device in finish.report.devices] == [(1,), (1, 1, 1)]
    assert finish.runs is not None


def test_a_report_of_the_tail_also_answers_for_chunks_that_were_sent() -> None:
    story = computing().done("cpu0", 0)
    both = tuple(TakenChunk(first, 1, TIMES) for first in (2, 3))
    story.feed(story.message("cpu1", TailChunksDone, both, True, (OwnChunk(1, TIMES),)))
    finish = story.only(do.FinishJob)
    assert [device.share for device in finish.report.devices] == [1, 3]
    assert [device.chunks for device in finish.report.devices] == [(1,), (1, 1, 1)]


def test_the_edges_of_what_was_really_computed_are_verified() -> None:
    story = computing(verify=True).done("cpu0", 0).done("cpu1", 1)
    taken(taken(story, "cpu1", 2), "cpu0", 3)
    assert story.state == "Verifying"
    orders = [c.order for c in story.commands if isinstance(c, do.CheckUnits)]
    assert sorted(unit for order in orders for unit in order.samples) == [0, 1, 2, 3]


def test_a_death_lets_the_unfinished_units_of_the_tail_run_again() -> None:
    story = taken(computing().done("cpu0", 0).done("cpu1", 1), "cpu0", 2)
    story.lost(*DEVICES)
    taken(story, "cpu1", 3)  # too late: it will run again
    story.joined(*DEVICES).prepared("cpu0")
    (chunk,) = story.only(do.RunChunks).chunks
    assert (chunk.first, chunk.count) == (3, 1)
    finish = story.done("cpu0", chunk.id).only(do.FinishJob)
    assert [device.share for device in finish.report.devices] == [3, 1]
    assert finish.runs is None


def test_a_core_that_hangs_in_the_tail_is_killed_and_an_idle_one_is_not() -> None:
    story = computing().done("cpu0", 0).done("cpu1", 1)
    taken(story, "cpu0", 2)
    story.feed(story.message("cpu0", TailChunksDone, (), True))
    story.pass_time(4 * DEFAULT_DEADLINES.chunk)
    assert {c.device for c in story.commands if isinstance(c, do.KillDevice)} == {"cpu1"}


def test_few_ranges_are_kept_per_device() -> None:
    ranges = ComputedRanges()
    for first in range(0, 100, 10):
        ranges.add("cpu0", first, 5)
    ranges.add("cpu0", 95, 3)
    edges = ranges.edges()
    assert len(edges) == 2 * MAX_RANGES
    assert (edges[:2], edges[-2:]) == ([0, 4], [90, 97])
