"""The daemon's sockets against clients that misbehave; an engine that only doubles."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from random import Random

import daemon_harness
import numpy as np
import pytest
import zmq
from daemon_harness import Harness
from descriptors import open_descriptors

from hetsched.client import connection
from hetsched.client.client import Client
from hetsched.client.control import Control
from hetsched.client.job import Job
from hetsched.daemon.lists import encode_bounded
from hetsched.daemon.router import MAX_SLOW_CLIENTS
from hetsched.daemon.sessions import MAX_SESSION_REQUEST
from hetsched.errors import ConfigError, ErrorRecord, HetschedError, InternalError
from hetsched.job import DeviceReport, Done, Failed, JobReport
from hetsched.jobs.table import Limits
from hetsched.transport.codec import Decoder, encode
from hetsched.transport.messages import (
    MAX_FRAME,
    Envelope,
    Hello,
    Map,
    Ping,
    Refused,
    Reply,
    SessionAnswer,
    State,
    Status,
    Welcome,
)
from hetsched.transport.sockets import connect, receive_message

decode: Decoder[SessionAnswer] = Decoder(SessionAnswer)
decode_reply: Decoder[Reply] = Decoder(Reply)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with daemon_harness.daemon(tmp_path) as harness:
        yield harness


@pytest.fixture
def session(harness: Harness) -> Iterator[socket.socket]:
    with connect(harness.folder / "session.sock") as sock:
        sock.settimeout(10)
        yield sock


@pytest.fixture
def dealer(harness: Harness) -> Iterator[zmq.Socket[bytes]]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as sock:
        sock.setsockopt(zmq.LINGER, 0)
        sock.setsockopt(zmq.RCVTIMEO, 10_000)
        sock.connect(f"ipc://{harness.folder / 'control.sock'}")
        yield sock


def greet(session: socket.socket) -> str:
    session.send(encode(Hello(1, "test", os.getpid())))
    welcome = decode(receive_message(session, 1000)[0])
    assert isinstance(welcome, Welcome)
    return welcome.token


def still_serves(harness: Harness) -> bool:
    with Control(harness.folder) as client:
        return client.ping().pid == os.getpid()


def test_the_sockets_are_for_their_owner_only(harness: Harness) -> None:
    for name in ("control.sock", "session.sock"):
        assert (harness.folder / name).stat().st_mode & 0o777 == 0o600


def test_the_sockets_are_gone_when_the_server_is_closed(tmp_path: Path) -> None:
    with daemon_harness.daemon(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_a_socket_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "control.sock").write_text("precious")
    with pytest.raises(ConfigError, match="not a socket"), daemon_harness.daemon(tmp_path):
        pass
    assert (tmp_path / "control.sock").read_text() == "precious"


@pytest.mark.parametrize(
    "payload",
    [b"\xc1", b"\x00" * (MAX_SESSION_REQUEST + 1), encode(Map(1)), encode({"type": "hello"})],
    ids=["garbage", "oversized", "before hello", "half a hello"],
)
def test_a_session_with_an_invalid_message_gets_an_error_and_is_closed(
    harness: Harness, session: socket.socket, payload: bytes
) -> None:
    session.send(payload)
    answer = decode(receive_message(session, 1000)[0])
    assert isinstance(answer, Refused) and answer.error.code == 76
    assert receive_message(session, 1000) == (b"", [])
    assert still_serves(harness)


def test_descriptors_that_a_client_sends_are_closed(
    harness: Harness, session: socket.socket
) -> None:
    token = greet(session)
    before = harness.ask(open_descriptors)
    socket.send_fds(session, [encode(Map(1))], [session.fileno()] * 5)
    receive_message(session, 1000)
    assert harness.ask(open_descriptors) <= before
    assert token


def test_an_undecodable_frame_is_answered_and_the_next_request_served(
    harness: Harness, session: socket.socket, dealer: zmq.Socket[bytes]
) -> None:
    token = greet(session)
    dealer.send(b"\xc1\xc1")
    dealer.send(encode(Envelope(token, 5, Ping())))
    answers = [decode_reply(dealer.recv()) for _ in range(2)]
    assert [answer.number for answer in answers] == [0, 5]


def test_messages_of_too_many_frames_are_dropped(
    harness: Harness, session: socket.socket, dealer: zmq.Socket[bytes]
) -> None:
    token = greet(session)
    dealer.send_multipart([b"a", b"b", b"c"])
    dealer.send(encode(Envelope(token, 5, Ping())))
    assert decode_reply(dealer.recv()).number == 5


def test_an_oversized_frame_disconnects_its_sender_only(
    harness: Harness, dealer: zmq.Socket[bytes]
) -> None:
    dealer.send(bytes(MAX_FRAME + 1))
    assert still_serves(harness)


def test_a_client_that_never_reads_neither_blocks_nor_grows_the_daemon(
    harness: Harness, session: socket.socket, dealer: zmq.Socket[bytes]
) -> None:
    token = greet(session)
    dealer.setsockopt(zmq.RCVHWM, 1)
    for number in range(6000):
        dealer.send(encode(Envelope(token, number, Status())))
    assert still_serves(harness)
    assert harness.ask(harness.router.unsent_bytes) <= MAX_SLOW_CLIENTS * Limits().unread


def test_a_client_that_asks_and_never_reads_loses_its_session(
    harness: Harness, session: socket.socket
) -> None:
    greet(session)
    session.setblocking(False)
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        for _ in range(100_000):
            try:
                session.send(encode(Map(1)), socket.MSG_NOSIGNAL)
            except BlockingIOError:
                harness.ask(lambda: None)
    assert still_serves(harness)


def test_a_changed_job_is_answered_with_its_new_state(harness: Harness) -> None:
    with Client(harness.folder, timeout=60) as client:
        job = client.submit("queue", client.empty((10,), "float32"))
        changes = [client.hold(job.id), client.hold(job.id), client.release(job.id)]
    assert [(change.is_changed, change.state.reason) for change in changes] == [  # type: ignore[union-attr]
        (True, "held"),
        (False, "held"),
        (True, "resources"),
    ]


def test_a_dead_clients_segments_are_free(harness: Harness) -> None:
    client = Client(harness.folder, reconnect=0)
    held = client.empty((1 << 20,), "uint8")
    job = client.submit("wait", held)
    assert harness.ask(lambda: harness.arena.used) == held.nbytes
    client._connection.session()._socket.shutdown(socket.SHUT_RDWR)  # as a kill would
    with pytest.raises(HetschedError):
        job.result(60)
    assert harness.ask(lambda: harness.arena.used) == held.nbytes  # the job still needs it
    harness.ask(lambda: harness.engine.cancel(harness.engine.waiting[job.id]))
    assert harness.until(lambda: harness.arena.used == 0)
    client.close()


def test_a_result_without_followers_is_released_in_time(tmp_path: Path) -> None:
    with daemon_harness.daemon(tmp_path, Limits(results_for=0.0)) as harness:
        with Client(harness.folder) as client:
            number = client.submit("wait", client.empty((10,), "float32")).id
        assert harness.until(lambda: not harness.requests.sessions)
        harness.ask(lambda: harness.engine.finish(number))
        assert harness.until(lambda: harness.arena.used == 0)


def test_a_report_with_very_many_chunks_still_fits_a_message() -> None:
    device = DeviceReport(
        device="cpu0", kind="cpu", variant="v", share=1, seconds=1.0, chunks=(1000,) * 600_000
    )
    report = JobReport(job=1, state="done", workload="w", load=1, devices=(device,))
    assert len(encode_bounded(Reply(1, State(Done(1, report))))) < 1000


def test_an_answer_that_would_be_too_long_is_shortened_or_refused() -> None:
    params = {"table": "x" * MAX_FRAME}
    report = JobReport(job=1, state="done", workload="w", load=1, params=params)
    decode = Decoder(Reply)

    shortened = decode(encode_bounded(Reply(1, State(Done(1, report))))).answer
    refused = decode(encode_bounded(Reply(2, Refused(ErrorRecord(75, "x" * MAX_FRAME))))).answer

    assert isinstance(shortened, State)
    assert isinstance(shortened.state, Done)
    assert "left out here" in shortened.state.report.notes[0]
    assert isinstance(refused, Refused)
    assert "the limit is 1048576" in refused.error.message


def test_bytes_that_are_not_zeromq_affect_no_other_client(harness: Harness) -> None:
    random = Random(1)
    for greeting in (b"", b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL"):
        for _ in range(20):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.connect(str(harness.folder / "control.sock"))
                with contextlib.suppress(OSError):  # cut off already
                    raw.sendall(greeting + random.randbytes(1000))
    assert still_serves(harness)


def broken(*given: object, **more: object) -> None:
    raise ValueError("oops")


def test_a_request_that_hits_a_bug_is_answered(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness.engine, "devices", broken)
    monkeypatch.setattr(harness.engine, "submit", broken)
    monkeypatch.setattr(harness.arena, "allocate", broken)
    with Client(harness.folder, timeout=60) as client:
        for ask in (client.devices, lambda: client.submit("wait"), lambda: client.empty(3)):
            with pytest.raises(InternalError, match="ValueError: oops"):
                ask()
        assert client.status() == ()


def test_the_last_replies_arrive_before_the_session_ends(tmp_path: Path) -> None:
    with daemon_harness.daemon(tmp_path) as harness:
        client = Client(harness.folder, timeout=60)
        jobs = [client.submit("wait", np.ones(3)) for _ in range(300)]
        harness.ask(
            lambda: [harness.engine.cancel(harness.engine.waiting[job.id]) for job in jobs]
        )
    assert all(cancelled(job) for job in jobs)
    client.close()


def test_a_reply_that_comes_after_the_sessions_end_still_counts(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZeroMQ's threads deliver both in any order."""
    monkeypatch.setattr(connection, "LAST_REPLIES_SECONDS", 30.0)
    client = Client(harness.folder, timeout=60)
    job = client.submit("wait", np.ones(3))

    def end() -> None:
        (follower,) = harness.requests._table.jobs[job.id].followers
        over = Failed(job.id, daemon_harness.report(job.id, "cancelled"), ErrorRecord(130, "over"))
        harness.requests.sessions.end_all()
        harness.loop.call_later(0.02, lambda: follower.deliver(over, False))

    harness.ask(end)
    assert cancelled(job)
    client.close()


def cancelled(job: Job) -> bool:
    """Whether the job ended as the daemon said."""
    with contextlib.suppress(CancelledError):
        job.exception(60)
    return job.cancelled()
