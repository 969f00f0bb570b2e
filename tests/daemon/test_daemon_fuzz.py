"""Requests of every shape, by hypothesis: each is answered or refused, and the daemon lives on."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import daemon_harness
import msgspec
import pytest
import zmq
from daemon_harness import Harness
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hetsched.transport import messages
from hetsched.transport.codec import Decoder, encode
from hetsched.transport.sockets import connect, receive_message
from robustness.malformed_frames import attack

MANY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

TAGS = [msgspec.inspect.type_info(kind).tag for kind in get_args(messages.Request)]  # type: ignore[attr-defined]
FIELDS = ["job", "spec", "follow", "workload", "params", "inputs", "outputs", "type", "segment"]

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=15,
)
requests = st.fixed_dictionaries(
    {"type": st.sampled_from(TAGS) | values}, optional=dict.fromkeys(FIELDS[:-2], values)
)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    with daemon_harness.daemon(tmp_path_factory.mktemp("d")) as harness:
        yield harness


@pytest.fixture
def session(harness: Harness) -> Iterator[socket.socket]:
    with connect(harness.folder / "session.sock") as sock:
        sock.settimeout(10)
        yield sock


@pytest.fixture
def dealer(harness: Harness) -> Iterator[zmq.Socket[bytes]]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as sock:
        sock.set(zmq.LINGER, 0)
        sock.set(zmq.RCVTIMEO, 10_000)
        sock.connect(f"ipc://{harness.folder / 'control.sock'}")
        yield sock


@MANY
@given(number=st.integers(1, 2**62) | values, request=requests | values)
def test_every_request_gets_an_answer(
    harness: Harness,
    session: socket.socket,
    dealer: zmq.Socket[bytes],
    number: Any,
    request: Any,
) -> None:
    token = greet(session)
    dealer.send(encode({"token": token, "number": number, "request": request}))
    dealer.send(encode(messages.Envelope(token, 2**62 + 1, messages.Ping())))
    decode: Decoder[messages.Reply] = Decoder(messages.Reply)
    numbers = []
    while 2**62 + 1 not in numbers:
        numbers.append(decode(dealer.recv()).number)
    assert len(numbers) > 1


@MANY
@given(message=requests | values)
def test_every_session_message_leaves_the_daemon_serving(harness: Harness, message: Any) -> None:
    with connect(harness.folder / "session.sock") as sock:
        sock.settimeout(10)
        greet(sock)
        sock.send(encode(message))
        try:
            sock.send(encode(messages.Map(1)))
            answer, _ = receive_message(sock, 65536)
        except BrokenPipeError:
            answer = b""
        assert answer == b"" or isinstance(decoded(answer), messages.Refused | messages.SegmentFd)


def test_damaged_frames_and_connections_leave_the_daemon_serving(harness: Harness) -> None:
    before = harness.ask(lambda: len(harness.requests.sessions))
    attack(Path(harness.folder), 600, seed=0)
    assert harness.until(lambda: len(harness.requests.sessions) == before)


def greet(sock: socket.socket) -> str:
    sock.send(encode(messages.Hello(messages.PROTOCOL, "test", os.getpid())))
    welcome = decoded(receive_message(sock, 65536)[0])
    assert isinstance(welcome, messages.Welcome)
    return welcome.token


def decoded(payload: bytes) -> messages.SessionAnswer:
    decode: Decoder[messages.SessionAnswer] = Decoder(messages.SessionAnswer)
    return decode(payload)
