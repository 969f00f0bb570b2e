from __future__ import annotations

import heapq
import itertools
import random
import sys
import tracemalloc
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.device import Chunk, DeviceInfo, EvenChunks, TailCounter, TailPart
from hetsched.dispatch import Dispatcher, ExpectedFinish, Send, total_units, units_to_steal
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import Candidate
from hetsched.plans.device_plan import evenly


def queues(**counts: Sequence[int]) -> dict[str, list[Chunk]]:
    """Device -> chunks of so many units, contiguous, ids from 0."""
    by_device: dict[str, list[Chunk]] = {}
    number = first = 0
    for device, sizes in counts.items():
        by_device[device] = []
        for index, count in enumerate(sizes):
            by_device[device].append(Chunk(number, first, count, last=index == len(sizes) - 1))
            number += 1
            first += count
    return by_device


def dispatch(window: int = 2, limit: int = 100, **counts: Sequence[int]) -> Dispatcher:
    devices = list(counts)
    return Dispatcher(
        queues(**counts), dict.fromkeys(devices, window), dict.fromkeys(devices, limit)
    )


def finish(dispatcher: Dispatcher, device: str, chunk: int, now: float) -> list[Send]:
    """What is sent when a chunk has ended."""
    dispatcher.finish_chunk(device, chunk, now)
    return dispatcher.commands(now)


def sent(commands: list[Send]) -> dict[str, list[tuple[int, int]]]:
    """Device -> (first, count) of what it was sent."""
    return {c.device: [(chunk.first, chunk.count) for chunk in c.chunks] for c in commands}


def test_each_device_is_sent_its_window_and_one_chunk_more_for_each_that_ends() -> None:
    dispatcher = dispatch(a=[1, 1, 1], b=[2])
    assert sent(dispatcher.commands(0.0)) == {"a": [(0, 1), (1, 1)], "b": [(3, 2)]}
    assert sent(finish(dispatcher, "a", 0, 1.0)) == {"a": [(2, 1)]}
    assert finish(dispatcher, "a", 1, 2.0) == []


def test_a_lost_device_s_chunks_go_to_those_without_chunks_of_their_own() -> None:
    dispatcher = dispatch(a=[1, 1, 1], b=[1, 1, 1])
    dispatcher.commands(0.0)
    dispatcher.lose("a")
    assert dispatcher.commands(1.0) == []
    assert sent(finish(dispatcher, "b", 3, 2.0)) == {"b": [(5, 1)]}
    assert sent(finish(dispatcher, "b", 4, 3.0)) == {"b": [(0, 1)]}


def test_chunks_reported_together_have_the_pace_of_all_of_them() -> None:
    dispatcher = dispatch(window=6, a=[5] * 6)
    dispatcher.commands(10.0)
    paces = []
    for chunks, now in ((range(4), 12.0), (range(4, 6), 14.0)):
        for number in chunks:
            dispatcher.finish_chunk("a", number, now)
        paces.append(dispatcher.measured_pace("a"))
    assert paces == [0.1, 0.2]


MIB = 1 << 20


@given(st.integers(0, 5), st.integers(0, 9), st.integers(1, 200), st.data())
def test_even_chunks_are_those_of_the_plan(
    first_id: int, first: int, units: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, units))
    chunks = EvenChunks(first_id, first, units, count)
    assert tuple(chunk.count for chunk in chunks) == evenly(units, count)
    ends = [first, *(chunk.first + chunk.count for chunk in chunks)]
    assert [chunk.first for chunk in chunks] == ends[:-1] and ends[-1] == first + units
    assert [chunk.id for chunk in chunks] == list(range(first_id, first_id + count))
    assert [chunk.last for chunk in chunks] == [False] * (count - 1) + [True]
    assert total_units(chunks) == units
    assert chunks[:2] == tuple(chunks)[:2]


def test_an_hour_on_64_cores_takes_little_memory_and_progress_is_cheap() -> None:
    tracemalloc.start()
    try:
        dispatcher = hour_long_run(64)
        dispatcher.commands(0.0)
        finish(dispatcher, "cpu0", 0, 0.1)
        dispatcher.lose("cpu1")
        dispatcher.commands(0.2)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < MIB and peak < 2 * MIB
    progress = {device.device: device for device in dispatcher.progress()}
    assert (progress["cpu0"].done, progress["cpu0"].share) == (10, 360_000)
    assert sum(device.share for device in progress.values()) == 64 * 360_000


def hour_long_run(cores: int) -> Dispatcher:
    queues = {
        f"cpu{core}": EvenChunks(core * 36_000, core * 360_000, 360_000, 36_000)
        for core in range(cores)
    }
    return Dispatcher(queues, dict.fromkeys(queues, 2), dict.fromkeys(queues, 10))


TAIL = TailPart(first=20, units=12, weight=0.5)
OWN = {"cpu0": [Chunk(0, 0, 5), Chunk(1, 5, 5, last=True)], "cpu1": [Chunk(2, 10, 10, last=True)]}


def started(window: int = 1, *, stealing: bool = False) -> tuple[Dispatcher, list[Send]]:
    cores = list(OWN)
    dispatcher = Dispatcher(
        OWN,
        dict.fromkeys(cores, window),
        dict.fromkeys(cores, 10),
        dict.fromkeys(cores, 1.0) if stealing else None,
        dict.fromkeys(cores, TAIL),
    )
    return dispatcher, dispatcher.commands(0.0)


def test_the_tail_is_opened_with_the_last_own_chunk() -> None:
    dispatcher, commands = started()
    assert commands == [
        Send("cpu0", (OWN["cpu0"][0],)),
        Send("cpu1", tuple(OWN["cpu1"]), opens_tail=True),
    ]
    assert finish(dispatcher, "cpu0", 0, 5.0) == [Send("cpu0", (OWN["cpu0"][1],), opens_tail=True)]


def test_several_reports_are_decided_upon_at_once() -> None:
    dispatcher, _ = started(stealing=True)
    finish(dispatcher, "cpu1", 2, 1.0)
    dispatcher.finish_tail_chunk("cpu1", 20, 3, 1.1)
    dispatcher.finish_tail_chunk("cpu1", 23, 9, 1.1)

    dispatcher.leave_tail("cpu1")
    (send,) = dispatcher.commands(1.1)

    assert send.device == "cpu1"  # nothing remains in the tail: it takes a part of cpu0's share


def test_the_largest_possible_chunk_of_a_core_in_the_tail_is_known_for_deadlines() -> None:
    dispatcher, _ = started()
    finish(dispatcher, "cpu1", 2, 5.0)
    assert [(d, c.count, since) for d, c, since in dispatcher.oldest_sent()] == [
        ("cpu0", 5, 0.0),
        ("cpu1", 3, 5.0),
    ]
    dispatcher.leave_tail("cpu1")
    assert [device for device, _, _ in dispatcher.oldest_sent()] == ["cpu0"]


MAX_STEPS = 5000
MAX_DEATHS = 6


class RandomMachine:
    """Cores of two groups and a device of its own; `counts` is how often each unit counted.

    Answers to a process that has died may still arrive, even after its restart. The device of its
    own holds a result back until the next chunk has come in, or the chunk is the last.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.groups = {"cpu": ["cpu0", "cpu1", "cpu2"], "big": ["big0", "big1"], "gpu": ["gpu"]}
        devices = [device for group in self.groups.values() for device in group]
        self.load = self.random.randint(len(devices), 60)
        self.now = 0.0
        self.deaths = 0
        self.counts = [0] * self.load
        self._dead: set[str] = set()
        self._lost: set[str] = set()
        """Devices whose loss was reported."""
        self._sent: dict[str, deque[Chunk]] = {device: deque() for device in devices}
        self._open: set[str] = set()
        self._answers: deque[Callable[[], None]] = deque()
        self._ids: set[int] = set()
        self._plan(devices)

    def _plan(self, devices: list[str]) -> None:
        cuts = sorted(self.random.sample(range(1, self.load), len(devices) - 1))
        shares = [b - a for a, b in itertools.pairwise([0, *cuts, self.load])]
        pooled = {
            device: self.random.randint(0, share - 1) if device != "gpu" else 0
            for device, share in zip(devices, shares, strict=True)
        }
        ids, first, queues = itertools.count(), 0, dict[str, list[Chunk]]()
        for device, share in zip(devices, shares, strict=True):
            end = first + share - pooled[device]
            queues[device] = []
            while first < end:
                units = self.random.randint(1, end - first)
                is_last = first + units == end
                queues[device].append(Chunk(next(ids), first, units, last=is_last))
                first += units
        self.parts: dict[str, TailPart] = {}
        self._counters: dict[str, TailCounter] = {}
        for name, group in self.groups.items():
            units = sum(pooled[device] for device in group)
            if units:
                weight = 1 / len(group)
                self.parts |= {d: TailPart(first, units, weight, 1, 4) for d in group}
                self._counters[name] = TailCounter(first, units)
                first += units
        self.windows = {d: self.random.randint(1 + (d == "gpu"), 3) for d in devices}
        self.limits = {
            device: max(self.random.randint(1, 8), *(c.count for c in queues[device]))
            for device in devices
        }
        paces = {device: self.random.choice([None, 0.1, 1.0, 5.0]) for device in devices}
        stealing = paces if self.random.random() < 0.7 else None
        self.dispatcher = Dispatcher(queues, self.windows, self.limits, stealing, self.parts)

    def run(self) -> None:
        self._follow()
        for _ in range(MAX_STEPS):
            if self.dispatcher.is_finished:
                return
            self._step()
            self._follow()
        raise AssertionError("the run doesn't end")

    def _step(self) -> None:
        self.now += self.random.random()
        steps: list[Callable[[], None]] = [
            lambda d=device: self._work(d)  # type: ignore[misc]
            for device in self._sent
            if self._can_work(device)
        ]
        steps += [lambda p=p: self._restart(p) for p in sorted(self._lost)]  # type: ignore[misc]
        if self._answers:
            steps += [self._answer] * 3
        if self.deaths < MAX_DEATHS and self.random.random() < 0.05:
            steps.append(lambda: self._die(self.random.choice(list(self._sent))))
        assert steps, "nobody has anything to do"
        self.random.choice(steps)()

    def _can_work(self, device: str) -> bool:
        chunks = self._sent[device]
        if device == "gpu":
            return len(chunks) > 1 or (len(chunks) == 1 and chunks[0].last)
        return bool(chunks) or device in self._open

    def _work(self, device: str) -> None:
        if self._sent[device]:
            chunk = self._sent[device].popleft()
            self._answers.append(partial(self._finish, device, chunk))
            return
        name = next(g for g, group in self.groups.items() if device in group)
        taken = self._counters[name].take(self.parts[device])
        if taken is None:
            self._open.discard(device)
            self._answers.append(partial(self.dispatcher.leave_tail, device))
        else:
            self._answers.append(partial(self._take, device, *taken))

    def _die(self, device: str) -> None:
        if device in self._lost:
            return
        self.deaths += 1
        self._lost.add(device)
        self._sent[device].clear()
        self._open.discard(device)
        self.dispatcher.lose(device)

    def _restart(self, device: str) -> None:
        self._lost.discard(device)
        self.dispatcher.join(device)

    def _answer(self) -> None:
        self._answers.popleft()()

    def _finish(self, device: str, chunk: Chunk) -> None:
        before = sum(each.done for each in self.dispatcher.progress())
        self.dispatcher.finish_chunk(device, chunk.id, self.now)
        units = sum(each.done for each in self.dispatcher.progress()) - before
        assert units in (0, chunk.count)
        self._count(chunk.first, units)

    def _take(self, device: str, first: int, count: int) -> None:
        if self.dispatcher.finish_tail_chunk(device, first, count, self.now):
            self._count(first, count)

    def _count(self, first: int, units: int) -> None:
        for unit in range(first, first + units):
            self.counts[unit] += 1

    def _follow(self) -> None:
        for command in self.dispatcher.commands(self.now):
            self._receive(command)
        progress = self.dispatcher.progress()
        assert sum(device.share for device in progress) == self.load, progress
        assert all(0 <= device.done <= device.share for device in progress)

    def _receive(self, command: Send) -> None:
        device = command.device
        assert device not in self._lost
        self._sent[device].extend(command.chunks)
        assert len(self._sent[device]) <= self.windows[device]
        assert self._ids.isdisjoint(chunk.id for chunk in command.chunks)
        self._ids.update(chunk.id for chunk in command.chunks)
        assert all(1 <= chunk.count <= self.limits[device] for chunk in command.chunks)
        if command.opens_tail:
            assert device in self.parts
            self._open.add(device)


@pytest.mark.parametrize("seeds", [100, pytest.param(3000, marks=pytest.mark.stress)])
def test_each_unit_counts_once_whatever_happens(seeds: int) -> None:
    for seed in range(seeds):
        machine = RandomMachine(seed)

        machine.run()

        assert machine.counts == [1] * machine.load, f"seed {seed}"


def time_of(truth: Sequence[float], planned: Sequence[float], load: int, steals: bool) -> float:
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
    plan = {each.device: each for each in plan_job(load, candidates).assignments}
    paces = {device: truth[int(device[1:])] for device in plan}
    dispatcher = Dispatcher(
        {device: each.chunks for device, each in plan.items()},
        {device: each.window for device, each in plan.items()},
        {device: each.max_chunk for device, each in plan.items()},
        {device: each.pace for device, each in plan.items()} if steals else None,
    )
    free, now = dict.fromkeys(plan, 0.0), 0.0
    events: list[tuple[float, str, int]] = []
    commands = dispatcher.commands(now)
    while True:
        for command in commands:
            for chunk in command.chunks:
                device = command.device
                free[device] = max(free[device], now) + chunk.count * paces[device]
                heapq.heappush(events, (free[device], device, chunk.id))
        if not events:
            assert dispatcher.is_finished
            return now
        now, device, number = heapq.heappop(events)
        commands = finish(dispatcher, device, number, now)


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
    ideal = time_of(truth, truth, load, steals=False)
    stolen = time_of(truth, paces, load, steals=True)
    assert stolen <= max_ratio * ideal
    assert stolen < time_of(truth, paces, load, steals=False)
    assert time_of(paces, paces, load, True) <= 1.01 * time_of(paces, paces, load, False)


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
