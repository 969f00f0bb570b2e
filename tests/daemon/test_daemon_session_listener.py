"""Connections that can't be sessions: refused with the reason, and never in a busy loop."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hetsched.daemon.sockets import session_listener
from hetsched.daemon.sockets.session_listener import SessionListener
from hetsched.errors import TryAgain
from hetsched.transport.codec import Decoder
from hetsched.transport.loop import Loop
from hetsched.transport.messages import Refused, SessionAnswer
from hetsched.transport.sockets import connect, receive_message


class NoDescriptors:
    """A listening socket whose accept fails `times` times."""

    def __init__(self, listening: socket.socket, times: int) -> None:
        self._listening = listening
        self._times = times
        self.fileno, self.close = listening.fileno, listening.close

    def accept(self) -> Any:
        if self._times > 0:
            self._times -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._listening.accept()


class Bench:
    def __init__(self, folder: Path) -> None:
        self.loop = Loop()
        self.path = folder / "session.sock"
        self.refusal: TryAgain | None = None
        self.accepted: list[socket.socket] = []
        self.listener = SessionListener(self.loop, self.check, self.accept)
        self.listener.open(self.path, None)

    def check(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def accept(self, connection: socket.socket) -> None:
        self.accepted.append(connection)
        self.loop.stop()

    def fail_accept(self, times: int) -> None:
        listening: Any = self.listener._socket
        self.listener._socket = NoDescriptors(listening, times)  # type: ignore[assignment]

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.loop.run_until_complete(asyncio.sleep(0))

    def answer(self, client: socket.socket) -> SessionAnswer:
        decode: Decoder[SessionAnswer] = Decoder(SessionAnswer)
        return decode(receive_message(client, 4096)[0])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.listener.close()
    bench.loop.close()
    for connection in bench.accepted:
        connection.close()


def test_a_connection_is_accepted(bench: Bench) -> None:
    with connect(bench.path):
        bench.loop.run()
    assert len(bench.accepted) == 1


def test_a_client_beyond_the_budget_gets_the_reason(bench: Bench) -> None:
    bench.refusal = TryAgain("no more sessions")
    with connect(bench.path) as client:
        bench.rounds(2)
        answer = bench.answer(client)
    assert isinstance(answer, Refused)
    assert answer.error.message == "no more sessions"
    assert bench.accepted == []


def test_a_client_that_has_already_said_hello_gets_the_reason(bench: Bench) -> None:
    bench.refusal = TryAgain("no more sessions")
    with connect(bench.path) as client:
        client.send(b"hello")
        bench.rounds(2)
        assert isinstance(bench.answer(client), Refused)


def test_without_descriptors_the_spare_one_serves_to_refuse(bench: Bench) -> None:
    bench.fail_accept(times=1)
    with connect(bench.path) as client:
        bench.rounds(2)
        answer = bench.answer(client)
    assert isinstance(answer, Refused)
    assert "no descriptors left (Too many open files)" in answer.error.message
    assert bench.listener._spare >= 0


def test_when_even_that_fails_the_listener_pauses(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session_listener, "PAUSE_SECONDS", 0.02)
    bench.fail_accept(times=2)
    with connect(bench.path):
        bench.rounds(1)
        assert bench.listener._socket is not None
        assert not bench.loop.remove_reader(bench.listener._socket.fileno())
        bench.loop.run()
    assert len(bench.accepted) == 1
    assert caplog.text.count("no sessions are accepted for") == 1


def test_refusals_are_logged_once_in_a_while(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.refusal = TryAgain("no more sessions")
    for _ in range(50):
        with connect(bench.path):
            bench.rounds(1)
    assert caplog.text.count("refused a session") == 1
