import contextlib
import os
import socket

import msgspec
import pytest
from descriptors import open_descriptors
from hypothesis import example, given
from hypothesis import strategies as st

from hetsched.errors import ProtocolError
from hetsched.job import ArenaRef, JobSpec
from hetsched.transport import device_messages, sockets
from hetsched.transport.messages import (
    MAX_FRAME,
    Decoder,
    Envelope,
    SessionRequest,
    Submit,
    encode,
)

decode: Decoder[Envelope] = Decoder(Envelope)


def test_a_message_comes_out_as_it_went_in() -> None:
    spec = JobSpec(workload="fft", params={"batch": "4x8x8"}, inputs={"": ArenaRef(3, (4,), "i4")})
    envelope = Envelope("token", 7, Submit(spec))
    assert decode(encode(envelope)) == envelope


def test_a_message_over_the_limit_is_refused_unread() -> None:
    with pytest.raises(ProtocolError, match=f"the limit is {MAX_FRAME}"):
        decode(bytes(MAX_FRAME + 1))


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


def test_deep_nesting_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        Decoder(JobSpec)(b"\x82\xa8workload\xa1a\xa6params\x81\xa1a" + b"\x91" * 100_000)


def test_an_error_does_not_repeat_a_long_message() -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(encode({"token": "t", "number": 1, "request": {"type": "x" * 500_000}}))
    assert len(str(caught.value)) < 1000


@given(st.binary(max_size=200))
@example(b"")
@example(b"\xc1")
def test_any_bytes_decode_or_raise_protocol_error(payload: bytes) -> None:
    for decoder in (decode, Decoder(SessionRequest)):
        try:
            decoder(payload)
        except ProtocolError:
            continue


@given(st.data())
def test_a_damaged_message_decodes_or_raises_protocol_error(data: st.DataObject) -> None:
    payload = bytearray(encode(Envelope("token", 1, Submit(JobSpec(workload="f", params={})))))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        assert isinstance(decode(bytes(payload)), msgspec.Struct)
