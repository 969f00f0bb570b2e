"""A client without a background thread, which keeps many requests in flight."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import zmq

from hetsched import __version__
from hetsched.transport.messages import (
    PROTOCOL,
    Answer,
    Decoder,
    Envelope,
    Hello,
    Reply,
    Request,
    SessionAnswer,
    Welcome,
    encode,
)
from hetsched.transport.sockets import connect, receive_message, send_message

ANSWER_SECONDS = 60.0


class RawClient:
    """A session and a ZeroMQ socket of the daemon in `folder`. A context manager."""

    def __init__(self, folder: Path) -> None:
        self.session = connect(folder / "session.sock")
        self.session.settimeout(ANSWER_SECONDS)
        send_message(self.session, encode(Hello(PROTOCOL, __version__, os.getpid())))
        welcome = Decoder(SessionAnswer)(receive_message(self.session, 1 << 16)[0])
        assert isinstance(welcome, Welcome), welcome
        self.token = welcome.token
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.SNDHWM, 0)
        self.socket.setsockopt(zmq.RCVHWM, 0)
        self.socket.connect(f"ipc://{welcome.endpoint}")
        self.requests = 0
        self._decode: Decoder[Reply] = Decoder(Reply)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close(linger=0)
        self.context.term()
        self.session.close()

    def send(self, request: Request) -> int:
        """Send a request; return its number."""
        self.requests += 1
        self.socket.send(encode(Envelope(self.token, self.requests, request)))
        return self.requests

    def receive(self, seconds: float = ANSWER_SECONDS) -> Reply:
        """Return the next reply. Raises TimeoutError."""
        if not self.socket.poll(seconds * 1000):
            raise TimeoutError(f"no reply for {seconds:g} s")
        return self._decode(self.socket.recv())

    def ask(self, request: Request) -> Answer:
        """Return the answer to `request`, which must be the only one in flight."""
        self.send(request)
        return self.receive().answer

    def pipeline(
        self, make_request: Callable[[int], Request], count: int, in_flight: int
    ) -> list[Answer]:
        """Send `count` requests, at most `in_flight` unanswered; return their answers."""
        answers = []
        for index in range(count):
            self.send(make_request(index))
            if index >= in_flight:
                answers.append(self.receive().answer)
        answers += [self.receive().answer for _ in range(count - len(answers))]
        return answers
