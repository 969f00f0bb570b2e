from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from served import open_descriptors

from hetsched.errors import ConfigError, ProtocolError
from hetsched.job import JobSpec
from hetsched.transport import device_messages, sockets
from hetsched.transport.messages import (
    Decoder,
    Envelope,
    Submit,
    encode,
)

decode: Decoder[Envelope] = Decoder(Envelope)


def test_a_large_message_of_a_device_over_the_limit_is_refused_unread() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    memfd = os.memfd_create("a large message")
    with ours, theirs, open(memfd, "wb") as file:
        file.truncate(device_messages.MAX_LARGE + 1)
        sockets.send_message(theirs, device_messages.MARKER, [memfd, memfd])
        descriptors = open_descriptors()

        with pytest.raises(ProtocolError, match="the limit is"):
            device_messages.Channel(ours, device_messages.DeviceEvent).receive()

        assert open_descriptors() <= descriptors


def test_an_error_does_not_repeat_a_long_message() -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(encode({"token": "t", "number": 1, "request": {"type": "x" * 500_000}}))
    assert len(str(caught.value)) < 1000


@given(st.data())
def test_a_damaged_message_decodes_or_raises_protocol_error(data: st.DataObject) -> None:
    payload = bytearray(encode(Envelope("token", 1, Submit(JobSpec(workload="f", params={})))))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        assert isinstance(decode(bytes(payload)), msgspec.Struct)


Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with left, right:
        yield left, right


def test_descriptors_arrive_beside_their_message_closed_on_exec(pair: Pair) -> None:
    fd = os.memfd_create("test")
    os.write(fd, b"hello")
    sockets.send_message(pair[0], b"here", [fd])
    payload, (received,) = sockets.receive_message(pair[1], 100)
    assert payload == b"here"
    assert os.pread(received, 10, 0) == b"hello"
    assert fcntl.fcntl(received, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    sockets.close_all([fd, received, received])


def test_an_end_with_messages_unread_is_an_end_too(pair: Pair) -> None:
    sockets.send_message(pair[1], b"nobody reads this")
    pair[0].close()
    assert sockets.receive_message(pair[1], 100) == (b"", [])


@pytest.mark.parametrize(
    ("nbytes", "count", "words"),
    [(101, 3, "100 bytes"), (1, sockets.MAX_FDS + 5, "16 descriptors")],
)
def test_a_message_over_the_limits_is_refused_and_its_descriptors_closed(
    pair: Pair, nbytes: int, count: int, words: str
) -> None:
    before = open_descriptors()
    sockets.send_message(pair[0], bytes(nbytes), [pair[0].fileno()] * count)
    with pytest.raises(ProtocolError, match=words):
        sockets.receive_message(pair[1], 100)
    assert open_descriptors() <= before


def test_probe_says_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    assert sockets.unreachable_reason(path) == "no such file"
    listener = sockets.listen(path)
    assert sockets.unreachable_reason(path) is None
    listener.close()
    assert sockets.unreachable_reason(path) == "stale socket: its daemon has died"


def test_listen_is_for_the_owner_and_replaces_a_stale_socket_but_nothing_else(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.sock"
    sockets.listen(path).close()
    with sockets.listen(path):
        assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    path.write_text("precious")
    with pytest.raises(ConfigError, match="not a socket"):
        sockets.listen(path)
    assert path.read_text() == "precious"


@pytest.mark.parametrize(
    "address",
    ["", "127.0.0.1", "127.0.0.1:5555", "localhost:0:0", "localhost:0:0:1:2", "localhost:-1:0:1",
     "localhost:0:0:x", "localhost:٣:0:1", "evil:0:0:1"],
)  # fmt: skip
def test_an_address_of_another_form_identifies_no_peer(address: str) -> None:
    assert sockets.address_peer(address) == sockets.NOBODY
