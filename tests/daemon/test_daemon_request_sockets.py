"""Requests past ZeroMQ: sockets that the daemon passes with its welcome."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import daemon_harness
import pytest
from daemon_harness import Harness

from hetsched.client.client import Client
from hetsched.client.control import Control
from hetsched.daemon.requests import ClientSession
from hetsched.daemon.sockets import request_sockets
from hetsched.daemon.sockets.request_sockets import RequestSockets
from hetsched.jobs.table import Limits
from hetsched.transport.codec import Decoder, encode
from hetsched.transport.large_messages import MAX_INLINE
from hetsched.transport.loop import Loop
from hetsched.transport.messages import PROTOCOL, Envelope, Hello, Ping, Pong, Reply, Welcome
from hetsched.transport.sockets import Peer, close_all, connect, receive_message

decode_reply: Decoder[Reply] = Decoder(Reply)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with daemon_harness.daemon(tmp_path, Limits(unread=1 << 16)) as harness:
        yield harness


@pytest.fixture
def session(harness: Harness) -> Iterator[socket.socket]:
    with connect(harness.folder / "session.sock") as sock:
        sock.settimeout(30)
        yield sock


def greet(session: socket.socket) -> tuple[str, socket.socket]:
    """The session's token, and its socket for requests."""
    session.send(encode(Hello(PROTOCOL, "test", os.getpid(), wants_socket=True)))
    payload, (fd,) = receive_message(session, 1000)
    welcome: Welcome = Decoder[Welcome](Welcome)(payload)
    requests = socket.socket(fileno=fd)
    requests.settimeout(30)
    return welcome.token, requests


def identities(harness: Harness) -> tuple[bytes, bytes]:
    """Of the only session: over ZeroMQ, past it."""
    (session,) = harness.requests.sessions.values()
    return session.identities


def test_without_descriptors_zeromq_serves_the_client(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_sockets, "socketpair", no_descriptors)
    with Client(harness.folder, timeout=60) as client:
        assert client.ping().pid == os.getpid()
        over_zeromq, past_it = identities(harness)
    assert over_zeromq and not past_it


def no_descriptors(*given: object) -> tuple[socket.socket, socket.socket]:
    raise OSError("too many open files")


def test_a_client_whose_socket_is_closed_goes_on_over_zeromq(harness: Harness) -> None:
    with Control(harness.folder, timeout=60) as client:
        harness.ask(harness.server._router.sockets.close_all)
        assert client.ping().pid == os.getpid()


def test_a_second_hello_brings_no_second_socket(harness: Harness, session: socket.socket) -> None:
    token, requests = greet(session)
    session.send(encode(Hello(PROTOCOL, "test", os.getpid(), wants_socket=True)))
    assert receive_message(session, 1000)[1] == []
    with requests:
        requests.send(encode(Envelope(token, 5, Ping())))
        reply = decode_reply(requests.recv(1000))
    assert reply.number == 5 and isinstance(reply.answer, Pong)


@pytest.mark.parametrize("size", [1, MAX_INLINE + 1])
def test_what_is_no_request_stops_nothing(
    harness: Harness, session: socket.socket, size: int
) -> None:
    _token, requests = greet(session)
    with requests, Control(harness.folder, timeout=60) as other:
        requests.send(b"\xc1" * size)
        assert decode_reply(requests.recv(1000)).number == 0 if size == 1 else ended(session)
        assert other.ping().pid == os.getpid()


def test_a_token_of_another_session_counts_as_its_process(
    harness: Harness, session: socket.socket
) -> None:
    _, requests = greet(session)
    with requests:
        requests.send(encode(Envelope("guessed", 1, Ping())))
        assert "unknown token" in str(decode_reply(requests.recv(1000)).answer)


def test_a_client_that_does_not_read_loses_its_session(
    harness: Harness, session: socket.socket
) -> None:
    token, requests = greet(session)
    request = encode(Envelope(token, 1, Ping()))
    with requests:
        while True:
            try:
                requests.send(request)
            except OSError:  # closed
                break
    assert ended(session)


def ended(session: socket.socket) -> bool:
    return receive_message(session, 1000) == (b"", [])


def test_replies_beyond_a_full_socket_wait_and_the_end_closes_it() -> None:
    peer = Peer(os.getuid(), os.getpid())
    session = ClientSession(1, "token", peer, lambda *given: None, lambda: None, (0, 0))
    loop = Loop()
    sockets = RequestSockets(loop, lambda *frame: None, lambda identity: None)
    with sockets.opened(session) as (fd,), socket.socket(fileno=os.dup(fd)) as other:
        identity, count = session.request_identity, 0
        while sockets.try_send(identity, b"%d" % count):
            count += 1
        assert [other.recv(100) for _ in range(count)] == [b"%d" % n for n in range(count)]
        assert sockets.try_send(identity, b"y" * (MAX_INLINE + 1))
        _marker, large = receive_message(other, 100)
        assert os.fstat(large[0]).st_size == MAX_INLINE + 1
        close_all(large)
        sockets.close(identity)
        assert identity not in sockets and other.recv(100) == b""
    loop.close()
