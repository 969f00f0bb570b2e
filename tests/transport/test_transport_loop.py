import asyncio
import os
import re
import threading
from collections.abc import Iterator

import pytest
import zmq

from hetsched.transport.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def test_calls_come_in_order(loop: Loop) -> None:
    calls: list[int] = []
    for number in range(5):
        loop.call_soon_threadsafe(lambda number=number: calls.append(number))  # type: ignore[misc]
    loop.stop()
    loop.run_forever()
    assert calls == [0, 1, 2, 3, 4]


def test_timers_come_in_the_order_in_which_they_are_due(loop: Loop) -> None:
    calls: list[str] = []
    loop.call_later(0.002, lambda: (calls.append("late"), loop.stop()))  # type: ignore[func-returns-value]
    loop.call_later(0.0, lambda: calls.append("early"))
    loop.run_forever()
    assert calls == ["early", "late"]


def test_descriptors_and_zeromq_sockets_are_served_alike(loop: Loop) -> None:
    calls: list[bytes] = []
    reading, writing = os.pipe()
    with (
        zmq.Context() as context,
        context.socket(zmq.PAIR) as near,
        context.socket(zmq.PAIR) as far,
    ):
        near.bind("inproc://x")
        far.connect("inproc://x")
        loop.add_reader(near, lambda: (calls.append(near.recv()), os.write(writing, b"go")))  # type: ignore[func-returns-value]
        loop.add_reader(reading, lambda: (calls.append(os.read(reading, 9)), loop.stop()))  # type: ignore[func-returns-value]
        far.send(b"ready")
        loop.run_forever()
    os.close(reading)
    os.close(writing)
    assert calls == [b"ready", b"go"]


def test_another_thread_wakes_the_loop(loop: Loop) -> None:
    threading.Timer(0.0, loop.stop).start()
    loop.run_forever()


def test_an_error_in_a_callback_does_not_end_the_loop(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError("oops")

    loop.call_soon_threadsafe(fail)
    loop.stop()
    loop.run_forever()
    assert "oops" in caplog.text


def test_what_is_forgotten_is_not_called_again(loop: Loop) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"x")
    calls: list[int] = []
    loop.add_reader(reading, lambda: (calls.append(1), loop.remove_reader(reading), loop.stop()))  # type: ignore[func-returns-value]
    loop.run_forever()
    loop.remove_reader(reading)
    os.close(reading)
    os.close(writing)
    assert calls == [1]


def test_a_call_after_the_end_is_ignored() -> None:
    loop = Loop()
    loop.close()
    loop.call_soon_threadsafe(lambda: None)
    loop.close()


def test_a_zeromq_socket_is_read_to_the_end_and_after_a_send(loop: Loop) -> None:
    """Its descriptor tells of the first message only, and a send may take that away, too."""
    calls: list[bytes] = []
    with (
        zmq.Context() as context,
        context.socket(zmq.PAIR) as near,
        context.socket(zmq.PAIR) as far,
    ):
        near.bind("inproc://x")
        far.connect("inproc://x")

        def read() -> None:
            calls.append(near.recv())
            if calls == [b"0", b"1", b"2"]:
                loop.call_soon(send)
            elif calls[-1] == b"last":
                loop.stop()

        def send() -> None:
            far.send(b"last")
            near.send(b"answer")
            loop.recheck(near)

        loop.add_reader(near, read)
        for number in range(3):
            far.send(b"%d" % number)
        loop.run_forever()
    assert calls == [b"0", b"1", b"2", b"last"]


def test_coroutines_run_on_the_loop(loop: Loop) -> None:
    async def work() -> int:
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        return 7

    assert loop.run_until_complete(work()) == 7


def test_a_cancelled_timer_is_not_called(loop: Loop) -> None:
    calls: list[str] = []
    timer = loop.call_later(0.0, lambda: calls.append("cancelled"))
    loop.call_later(0.001, loop.stop)
    timer.cancel()
    loop.run_forever()
    assert calls == []


def test_a_slow_callback_is_logged_by_name(
    loop: Loop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetsched.transport.loop.SLOW_CALLBACK_SECONDS", 0.0)

    def ponder() -> None:
        loop.stop()

    loop.call_soon(ponder)
    loop.run_forever()
    assert re.search(r"blocked for \d+ ms by .*ponder", caplog.text)
