"""When replies are sent."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import zmq

from hetsched.daemon.requests import ClientSession
from hetsched.daemon.router import MAX_HELD_REPLIES, Router
from hetsched.errors import ErrorRecord
from hetsched.transport.codec import Decoder
from hetsched.transport.large_messages import MARKER
from hetsched.transport.loop import Loop
from hetsched.transport.messages import Pong, Refused, Reply
from hetsched.transport.sockets import Peer

decode_reply: Decoder[Reply] = Decoder(Reply)


@dataclass
class Client:
    """A client of the router past ZeroMQ, and what it has received."""

    identity: bytes
    requests: socket.socket
    received: list[int] = field(default_factory=list)

    def numbers(self) -> list[int]:
        while True:
            try:
                payload = self.requests.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return self.received
            if not payload:  # the router has closed it
                return self.received
            if payload != MARKER:
                self.received.append(decode_reply(payload).number)


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def router(loop: Loop) -> Iterator[Router]:
    with zmq.Context() as context:
        router = Router(context, loop, lambda *frame: None, lambda identity: None, 1 << 20)
        yield router
        router.close()


@pytest.fixture
def client(router: Router) -> Iterator[Client]:
    session = ClientSession(
        1, "token", Peer(os.getuid(), os.getpid()), lambda *given: None, lambda: None, (0, 0)
    )
    with router.sockets.opened(session) as (fd,):
        requests = socket.socket(fileno=os.dup(fd))
    with requests:
        yield Client(session.request_identity, requests)


def pong(number: int) -> Reply:
    return Reply(number, Pong(os.getpid(), "", 0.0))


def finish_round(loop: Loop) -> None:
    loop.call_last(loop.stop)
    loop.run()


def test_other_replies_are_sent_at_once(router: Router, client: Client) -> None:
    with router.holding():
        pass
    router.send(client.identity, pong(1))
    assert client.numbers() == [1]


def test_held_replies_are_bounded(router: Router, client: Client) -> None:
    with router.holding():
        for number in range(MAX_HELD_REPLIES):
            router.send(client.identity, pong(number))
        assert client.numbers() == list(range(MAX_HELD_REPLIES))


def test_a_large_reply_is_not_held(router: Router, client: Client) -> None:
    long = ErrorRecord(1, "x" * (1 << 17))
    with router.holding():
        router.send(client.identity, pong(1))
        router.send(client.identity, Reply(2, Refused(long)))
        assert client.numbers() == [1]  # and the marker of the large one


def test_an_error_of_one_reply_does_not_lose_the_next(
    loop: Loop, router: Router, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = router.sockets.try_send

    def fails_once(identity: bytes, payload: bytes) -> bool:
        monkeypatch.setattr(router.sockets, "try_send", sent)
        raise zmq.ZMQError(zmq.ENOTSUP)

    monkeypatch.setattr(router.sockets, "try_send", fails_once)
    with router.holding():
        router.send(client.identity, pong(1))
        router.send(client.identity, pong(2))
    finish_round(loop)
    finish_round(loop)
    assert client.numbers() == [2]


def test_the_end_sends_what_is_held(router: Router, client: Client) -> None:
    with router.holding():
        router.send(client.identity, pong(1))
    router.close()
    assert client.numbers() == [1]
