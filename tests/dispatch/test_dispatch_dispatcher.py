from collections.abc import Sequence

from dispatch_steps import finish, lose

from hetsched.device import Chunk
from hetsched.dispatch import Dispatcher, Send


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
    assert lose(dispatcher, "a", 1.0) == []
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
