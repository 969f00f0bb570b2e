import os
import re
from collections.abc import Iterator

import pytest
import zmq

from hetsched.transport.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


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


def test_an_error_in_a_callback_does_not_end_the_loop(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError("oops")

    loop.call_soon_threadsafe(fail)
    loop.stop()
    loop.run_forever()
    assert "oops" in caplog.text


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


def test_a_slow_callback_is_logged_by_name(
    loop: Loop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetsched.transport.loop.SLOW_CALLBACK_SECONDS", 0.0)

    def ponder() -> None:
        loop.stop()

    loop.call_soon(ponder)
    loop.run_forever()
    assert re.search(r"blocked for \d+ ms by .*ponder", caplog.text)
