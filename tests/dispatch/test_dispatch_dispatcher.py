"""Dispatch by script, then at random: every unit is finished exactly once."""

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from hetsched.device import Chunk
from hetsched.dispatch import (
    ChunkFinished,
    Command,
    DeviceJoined,
    DeviceLost,
    Dispatcher,
    Event,
    Finished,
    Send,
    Started,
)
from hetsched.job import DeviceProgress


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


def sent(commands: list[Command]) -> dict[str, list[tuple[int, int]]]:
    """Device -> (first, count) of what it was sent."""
    return {
        c.device: [(chunk.first, chunk.count) for chunk in c.chunks]
        for c in commands
        if isinstance(c, Send)
    }


def test_each_device_is_sent_its_window_and_one_chunk_more_for_each_that_ends() -> None:
    dispatcher = dispatch(a=[1, 1, 1], b=[2])
    assert sent(dispatcher.handle(Started(), 0.0)) == {"a": [(0, 1), (1, 1)], "b": [(3, 2)]}
    assert sent(dispatcher.handle(ChunkFinished("a", 0), 1.0)) == {"a": [(2, 1)]}
    assert dispatcher.handle(ChunkFinished("a", 1), 2.0) == []


def test_the_end_is_said_once_all_units_are_done() -> None:
    dispatcher = dispatch(a=[1], b=[1])
    dispatcher.handle(Started(), 0.0)
    assert dispatcher.handle(ChunkFinished("b", 1), 1.0) == []
    assert dispatcher.handle(ChunkFinished("a", 0), 2.0) == [Finished()]
    assert dispatcher.handle(ChunkFinished("a", 0), 3.0) == []


def test_nothing_is_sent_before_the_start() -> None:
    dispatcher = dispatch(a=[1], b=[1])
    assert dispatcher.handle(DeviceLost("a"), 0.0) == []
    assert sent(dispatcher.handle(Started(), 1.0)) == {"b": [(1, 1), (0, 1)]}


def test_a_lost_device_s_chunks_go_to_those_without_chunks_of_their_own() -> None:
    dispatcher = dispatch(a=[1, 1, 1], b=[1, 1, 1])
    dispatcher.handle(Started(), 0.0)
    assert dispatcher.handle(DeviceLost("a"), 1.0) == []
    assert sent(dispatcher.handle(ChunkFinished("b", 3), 2.0)) == {"b": [(5, 1)]}
    assert sent(dispatcher.handle(ChunkFinished("b", 4), 3.0)) == {"b": [(0, 1)]}


def test_chunks_of_others_are_split_to_what_a_device_takes_and_have_new_ids() -> None:
    dispatcher = Dispatcher(queues(a=[5], b=[]), {"a": 1, "b": 3}, {"a": 5, "b": 2})
    dispatcher.handle(Started(), 0.0)
    (command,) = dispatcher.handle(DeviceLost("a"), 1.0)
    assert isinstance(command, Send)
    assert [(c.first, c.count) for c in command.chunks] == [(0, 2), (2, 2), (4, 1)]
    assert len({0, *(c.id for c in command.chunks)}) == 4
    assert all(c.last and not c.barrier for c in command.chunks)


def test_all_devices_lost_waits_for_one_to_come_back() -> None:
    dispatcher = dispatch(a=[1, 1])
    dispatcher.handle(Started(), 0.0)
    assert dispatcher.handle(DeviceLost("a"), 1.0) == []
    assert sent(dispatcher.handle(DeviceJoined("a"), 2.0)) == {"a": [(0, 1), (1, 1)]}


def test_a_chunk_that_ended_before_its_device_s_loss_was_seen_counts() -> None:
    dispatcher = dispatch(window=2, a=[1, 1])
    dispatcher.handle(Started(), 0.0)
    dispatcher.handle(DeviceLost("a"), 1.0)
    dispatcher.handle(ChunkFinished("a", 0), 1.0)
    assert dispatcher.done_units("a") == 1
    assert sent(dispatcher.handle(DeviceJoined("a"), 2.0)) == {"a": [(1, 1)]}


def test_a_late_answer_for_a_chunk_that_was_sent_again_is_ignored() -> None:
    dispatcher = dispatch(a=[1], b=[1])
    dispatcher.handle(Started(), 0.0)
    dispatcher.handle(DeviceLost("a"), 1.0)
    assert dispatcher.handle(ChunkFinished("a", 0), 2.0) == []
    assert dispatcher.done_units("a") == 0
    assert dispatcher.progress() == (DeviceProgress("a", 0, 0), DeviceProgress("b", 0, 2))


class Devices(RuleBasedStateMachine):
    """Devices that finish, die and come back in any order."""

    @initialize(
        chunks=st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=4),
        data=st.data(),
    )
    def begin(self, chunks: list[list[int]], data: st.DataObject) -> None:
        by_device = queues(**{f"d{index}": sizes for index, sizes in enumerate(chunks)})
        self.load = sum(map(sum, chunks))
        self.names = list(by_device)
        self.windows = {name: data.draw(st.integers(1, 3)) for name in by_device}
        self.limits = {name: data.draw(st.integers(1, 9)) for name in by_device}
        self.own = {chunk.id for queue in by_device.values() for chunk in queue}
        paces = {name: data.draw(st.sampled_from([None, 0.1, 1.0, 5.0])) for name in by_device}
        steals = data.draw(st.booleans())
        self.dispatcher = Dispatcher(
            by_device, self.windows, self.limits, paces if steals else None
        )
        self.now = 0.0
        self.running: dict[str, dict[int, Chunk]] = {name: {} for name in by_device}
        self.stale: list[tuple[str, int]] = []
        self.lost: set[str] = set()
        self.done: list[int] = []
        self.ids: set[int] = set()
        self.over = False
        self.tell(Started())

    def tell(self, event: Event) -> None:
        self.now += 1.0
        for command in self.dispatcher.handle(event, self.now):
            assert not self.over
            if isinstance(command, Send):
                self.receive(command)
            else:
                assert isinstance(command, Finished)
                self.over = True

    def receive(self, command: Send) -> None:
        assert command.device not in self.lost
        for chunk in command.chunks:
            assert chunk.id not in self.ids
            assert chunk.id in self.own or chunk.count <= self.limits[command.device]
            self.ids.add(chunk.id)
            self.running[command.device][chunk.id] = chunk

    @precondition(lambda self: any(self.running.values()))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        busy = [(name, number) for name in self.names for number in self.running[name]]
        name, number = data.draw(st.sampled_from(busy))
        chunk = self.running[name].pop(number)
        self.done.extend(range(chunk.first, chunk.first + chunk.count))
        self.tell(ChunkFinished(name, number))

    @precondition(lambda self: len(self.lost) < len(self.names))
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([n for n in self.names if n not in self.lost]))
        self.lost.add(name)
        self.stale += [(name, number) for number in self.running[name]]
        self.running[name].clear()
        self.tell(DeviceLost(name))

    @precondition(lambda self: self.lost)
    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.lost)))
        self.lost.remove(name)
        self.tell(DeviceJoined(name))

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def answer_late(self, data: st.DataObject) -> None:
        """Counts only if the chunk wasn't sent again: seen by what the device has done."""
        name, number = data.draw(st.sampled_from(self.stale))
        self.stale.remove((name, number))
        before = self.dispatcher.done_units(name)
        self.tell(ChunkFinished(name, number))
        self.done.extend([-1] * (self.dispatcher.done_units(name) - before))

    @invariant()
    def no_unit_is_done_twice_and_none_is_forgotten(self) -> None:
        finished = [unit for unit in self.done if unit >= 0]
        assert len(finished) == len(set(finished))
        progress = self.dispatcher.progress()
        assert sum(device.share for device in progress) == self.load
        assert sum(device.done for device in progress) == len(self.done)
        assert self.over == (len(self.done) == self.load)

    @invariant()
    def windows_are_kept_and_no_device_idles_beside_work(self) -> None:
        assert all(len(self.running[name]) <= self.windows[name] for name in self.names)
        if self.over:
            return
        alive = [name for name in self.names if name not in self.lost]
        running = sum(c.count for name in self.names for c in self.running[name].values())
        if alive and running == 0:
            assert self.over

    def teardown(self) -> None:
        """Whatever happened: with all devices back, the run comes to its end."""
        if not hasattr(self, "dispatcher"):
            return
        for name in sorted(self.lost):
            self.lost.remove(name)
            self.tell(DeviceJoined(name))
        while any(self.running.values()):
            name = next(n for n in self.names if self.running[n])
            number, chunk = next(iter(self.running[name].items()))
            del self.running[name][number]
            self.done.extend(range(chunk.first, chunk.first + chunk.count))
            self.tell(ChunkFinished(name, number))
        assert self.over
        assert len(self.done) == self.load


TestDevices = Devices.TestCase
TestDevices.settings = settings(stateful_step_count=40)


def test_a_run_of_no_units_is_over_at_once() -> None:
    assert Dispatcher({}, {}, {}).handle(Started(), 0.0) == [Finished()]


def test_a_device_that_was_never_announced_is_our_own_mistake() -> None:
    with pytest.raises(KeyError):
        dispatch(a=[1]).handle(DeviceLost("b"), 0.0)
