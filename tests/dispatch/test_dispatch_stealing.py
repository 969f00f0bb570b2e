from __future__ import annotations

import heapq
import itertools
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType

import pytest
from dispatch_steps import finish
from hypothesis import given
from hypothesis import strategies as st

from hetsched.device import Chunk, DeviceInfo
from hetsched.dispatch import Dispatcher, ExpectedFinish, Send, units_to_steal
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import Candidate

Pace = Callable[[float], float]
"""Seconds a unit that begins at a time."""


@dataclass
class Device:
    """One at a time; a chunk by itself takes `fill` times as long until its result is there.

    `holds`: a result comes out only once the next chunk has come in, or the chunk is the last.
    """

    pace: Pace
    share: int
    chunks: int
    window: int = 2
    fill: float = 1.0
    holds: bool = False
    free: float = 0.0


def cut(devices: dict[str, Device]) -> dict[str, list[Chunk]]:
    """Each device's share in so many chunks, the whole load in one row."""
    ids, first = itertools.count(), 0
    queues: dict[str, list[Chunk]] = {}
    for name, device in devices.items():
        count = min(device.chunks, device.share)
        ends = [device.share * k // max(count, 1) for k in range(count + 1)]
        queues[name] = []
        for begin, end in itertools.pairwise(ends):
            queues[name].append(Chunk(next(ids), first + begin, end - begin, last=end == ends[-1]))
        first += device.share
    return queues


@dataclass
class Played:
    makespan: float
    units: list[int]
    """Every unit that was computed, as often as it was."""
    by: dict[str, int]
    """Device -> units that it did."""


def play(
    devices: dict[str, Device],
    planned: Mapping[str, float | None] | None,
    queues: dict[str, list[Chunk]] | None = None,
) -> Played:
    """Run to the end. `planned`: seconds a unit as expected; None: without stealing.

    `queues`: each device's chunks, if its share isn't to be cut evenly.
    """
    queues = cut(devices) if queues is None else queues
    limits = {n: max((c.count for c in queues[n]), default=1) for n in devices}
    windows = {name: device.window for name, device in devices.items()}
    dispatcher = Dispatcher(queues, windows, limits, planned)
    events: list[tuple[float, int, str, Chunk]] = []
    number = itertools.count()
    played = Played(0.0, [], dict.fromkeys(devices, 0))
    waiting: dict[str, tuple[float, Chunk] | None] = dict.fromkeys(devices)

    def receive(name: str, chunk: Chunk, now: float) -> None:
        device = devices[name]
        idle = device.free <= now
        begin = max(device.free, now)
        seconds = chunk.count * device.pace(begin)
        device.free = begin + seconds
        ready = device.free + (seconds * (device.fill - 1) if idle else 0.0)
        held_back = waiting[name]
        if held_back is not None:
            heapq.heappush(events, (max(held_back[0], now), next(number), name, held_back[1]))
        waiting[name] = None
        if device.holds and not chunk.last:
            waiting[name] = (ready, chunk)
        else:
            heapq.heappush(events, (ready, next(number), name, chunk))

    def follow(commands: list[Send], now: float) -> None:
        for command in commands:
            for chunk in command.chunks:
                receive(command.device, chunk, now)

    follow(dispatcher.commands(0.0), 0.0)
    while events:
        now, _, name, chunk = heapq.heappop(events)
        played.units.extend(range(chunk.first, chunk.first + chunk.count))
        played.by[name] += chunk.count
        played.makespan = now
        follow(finish(dispatcher, name, chunk.id, now), now)
    assert dispatcher.is_finished, "results are held back for chunks that don't come"
    return played


def steady(seconds: float) -> Pace:
    return lambda now: seconds


def played(truth: list[float], planned: list[float], load: int, steals: bool) -> float:
    """The time of cores of these paces, with chunks and windows as planned for `planned` ones."""
    candidates = [
        Candidate(
            DeviceInfo(name=f"d{index}", kind="cpu", identity=f"kind {index}"),
            MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1),
            {"v": DeviceModel(Affine(0.0, pace), Affine(0.0, pace))},
            {"v": 5},
        )
        for index, pace in enumerate(planned)
    ]
    plan = plan_job(load, candidates).assignments
    paces = {assignment.device: truth[int(assignment.device[1:])] for assignment in plan}
    cores = {
        assignment.device: Device(
            steady(paces[assignment.device]), assignment.plan.share, 1, assignment.window
        )
        for assignment in plan
    }
    expected = {assignment.device: assignment.pace for assignment in plan} if steals else None
    queues = {assignment.device: list(assignment.chunks) for assignment in plan}
    return play(cores, expected, queues).makespan


@pytest.mark.parametrize(("seconds", "max_ratio"), [(0.16, 1.6), (4.0, 1.15)])
@pytest.mark.parametrize("seed", range(8))
def test_a_core_twice_as_slow_costs_little_with_chunks_as_the_planner_cuts_them(
    seed: int, seconds: float, max_ratio: float
) -> None:
    """Few chunks leave little to be stolen: what was sent ahead is done by the slow one."""
    rng = random.Random(seed)
    paces = [10 ** rng.uniform(-3.5, -2.5) for _ in range(rng.randint(2, 16))]
    load, slow = round(seconds * sum(1 / pace for pace in paces)), rng.randrange(len(paces))
    truth = [pace * (2 if index == slow else 1) for index, pace in enumerate(paces)]
    ideal = played(truth, truth, load, steals=False)
    stolen = played(truth, paces, load, steals=True)
    assert stolen <= max_ratio * ideal
    assert stolen < played(truth, paces, load, steals=False)
    assert played(paces, paces, load, True) <= 1.01 * played(paces, paces, load, False)


machines = st.lists(
    st.builds(
        Device,
        st.floats(0.001, 1.0).map(steady),
        st.integers(0, 60),
        st.integers(1, 12),
        st.integers(2, 4),
        st.sampled_from([1.0, 1.0, 3.0]),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@given(machines, st.lists(st.floats(0.001, 1.0), min_size=5, max_size=5))
def test_whatever_is_stolen_every_unit_is_done_once(
    drawn: list[Device], paces: list[float]
) -> None:
    """Whatever the models say, and though one copy engine holds results back."""
    named = {f"d{index}": device for index, device in enumerate(drawn)}
    planned = dict(zip(named, paces, strict=False))
    played = play(named, planned)
    assert sorted(played.units) == list(range(sum(device.share for device in drawn)))


def test_that_many_are_idle_beside_many_chunks_costs_little_at_each_event() -> None:
    """At the end of a job all cores look on while a GPU is sent a chunk each millisecond."""
    cores = [f"c{index}" for index in range(64)]
    chunks = {core: [Chunk(index, index, 1)] for index, core in enumerate(cores)}
    chunks["g"] = [Chunk(index, index, 1) for index in range(64, 1064)]
    dispatcher = Dispatcher(
        chunks,
        dict.fromkeys(chunks, 3),
        dict.fromkeys(chunks, 1),
        {**dict.fromkeys(cores, 10.0), "g": 0.001},
    )
    dispatcher.commands(0.0)
    for index, core in enumerate(cores):
        finish(dispatcher, core, index, 0.5)
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        finish(dispatcher, "g", 64, 0.5)
    finally:
        sys.setprofile(before)
    assert calls < 40 * len(chunks)


def test_nothing_is_taken_for_a_gain_that_noise_could_hide() -> None:
    assert units_to_steal(0.0, ExpectedFinish(95.0, 1.0), ExpectedFinish(100.0, 1.0)) == 0
    assert units_to_steal(0.0, ExpectedFinish(10.0, 1.0), ExpectedFinish(30.0, 1.0)) == 10
