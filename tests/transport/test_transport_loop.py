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
