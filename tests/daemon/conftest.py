"""A daemon in a thread of the test, and sockets that speak to it without a client."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import daemon_harness
import pytest
import zmq
from daemon_harness import Harness

from hetsched.transport import messages
from hetsched.transport.codec import Decoder, encode
from hetsched.transport.sockets import connect, receive_message


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with daemon_harness.daemon(tmp_path) as harness:
        yield harness


class RawClient:
    """Both sockets of a client. It has sent its hello, unless it `is_silent`."""

    def __init__(self, harness: Harness, is_silent: bool = False) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.session = connect(harness.folder / "session.sock")
        self.session.settimeout(10)
        self.token = "" if is_silent else self.greet()
        self.dealer = self._context.socket(zmq.DEALER)
        for option, value in ((zmq.LINGER, 0), (zmq.RCVTIMEO, 10_000), (zmq.RCVHWM, 1)):
            self.dealer.setsockopt(option, value)
        self.dealer.connect(f"ipc://{harness.folder / 'control.sock'}")

    def close(self) -> None:
        self.session.close()
        self.dealer.close()
        self._context.term()

    def greet(self) -> str:
        self.session.send(encode(messages.Hello(messages.PROTOCOL, "test", os.getpid())))
        welcome = self.session_answer()
        assert isinstance(welcome, messages.Welcome)
        return welcome.token

    def session_answer(self) -> messages.SessionAnswer | None:
        """The next message; None: the session has been closed."""
        payload, _ = receive_message(self.session, 65536)
        decode: Decoder[messages.SessionAnswer] = Decoder(messages.SessionAnswer)
        return decode(payload) if payload else None

    def ask(self, number: Any, request: Any) -> None:
        envelope = {"token": self.token, "number": number, "request": request}
        self.dealer.send(encode(envelope))

    def reply(self) -> messages.Reply:
        decode: Decoder[messages.Reply] = Decoder(messages.Reply)
        return decode(self.dealer.recv())


@pytest.fixture
def raw(harness: Harness) -> Iterator[RawClient]:
    client = RawClient(harness)
    yield client
    client.close()


@pytest.fixture
def session(harness: Harness) -> Iterator[socket.socket]:
    """A session that has said nothing yet."""
    with connect(harness.folder / "session.sock") as sock:
        sock.settimeout(10)
        yield sock
