from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable
from functools import partial

import pytest

from hetsched.device import Chunk, TailCounter, TailPart
from hetsched.dispatch import Dispatcher, Send

MAX_STEPS = 5000
MAX_DEATHS = 6


class RandomMachine:
    """Cores of two groups and a device of its own; `counts` is how often each unit counted.

    Answers to a process that has died may still arrive, even after its restart.
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
                queues[device].append(Chunk(next(ids), first, units))
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
        self.windows = {device: self.random.randint(1, 3) for device in devices}
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
            if self._sent[device] or device in self._open
        ]
        steps += [lambda p=p: self._restart(p) for p in sorted(self._lost)]  # type: ignore[misc]
        if self._answers:
            steps += [self._answer] * 3
        if self.deaths < MAX_DEATHS and self.random.random() < 0.05:
            steps.append(lambda: self._die(self.random.choice(list(self._sent))))
        assert steps, "nobody has anything to do"
        self.random.choice(steps)()

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
        before = self.dispatcher.done_units(device)
        self.dispatcher.finish_chunk(device, chunk.id, self.now)
        units = self.dispatcher.done_units(device) - before
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
