from dispatch_steps import finish, leave

from hetsched.device import Chunk, TailPart
from hetsched.dispatch import Dispatcher, Send

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

    (send,) = leave(dispatcher, "cpu1", 1.1)

    assert send.device == "cpu1"  # nothing remains in the tail: it takes a part of cpu0's share


def test_the_largest_possible_chunk_of_a_core_in_the_tail_is_known_for_deadlines() -> None:
    dispatcher, _ = started()
    finish(dispatcher, "cpu1", 2, 5.0)
    assert [(d, c.count, since) for d, c, since in dispatcher.oldest_sent()] == [
        ("cpu0", 5, 0.0),
        ("cpu1", 3, 5.0),
    ]
    leave(dispatcher, "cpu1", 6.0)
    assert [device for device, _, _ in dispatcher.oldest_sent()] == ["cpu0"]
