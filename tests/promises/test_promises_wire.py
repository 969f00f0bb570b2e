"""What is sent to the daemon's sockets costs its sender alone; strangers get nothing."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq
from served import PLUG_INS, Daemon, refused, serving, until

import hetsched

HELLO = {"type": "hello", "protocol": 1, "version": hetsched.__version__, "pid": os.getpid()}
PING = {"type": "ping"}
MIB = 1 << 20
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode


@dataclass
class Raw:
    """A client's two sockets and its token, without a client."""

    session: socket.socket
    asker: Any
    token: str

    def frame(self, request: Any, number: int = 1) -> bytes:
        return encode({"token": self.token, "number": number, "request": request})

    def answer(self) -> Any:
        assert self.asker.poll(60_000)
        return decode(self.asker.recv())["answer"]


@contextlib.contextmanager
def session(daemon: Daemon) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as session:
        session.settimeout(60)
        session.connect(str(daemon.folder / "run" / "session.sock"))
        yield session


@pytest.fixture
def raw(small: Daemon) -> Iterator[Raw]:
    with session(small) as own, zmq.Context() as context, context.socket(zmq.DEALER) as asker:
        own.send(encode(HELLO))
        welcome = decode(own.recv(1 << 16))
        asker.linger, asker.rcvhwm = 0, 1
        asker.connect(f"ipc://{welcome['endpoint']}")
        yield Raw(own, asker, welcome["token"])


def test_a_client_that_does_not_read_stops_nobody(small: Daemon, raw: Raw) -> None:
    for number in range(3000):
        with contextlib.suppress(zmq.Again):
            raw.asker.send(raw.frame({"type": "metrics"}, number), zmq.NOBLOCK)
    assert small.works()
    assert small.call("ping").code == 0


def test_a_session_that_asks_and_never_reads_is_ended(small: Daemon, raw: Raw) -> None:
    raw.session.setblocking(False)

    def is_ended() -> bool:
        try:
            raw.session.send(encode({"type": "map", "segment": 1}), socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return False

    for _ in range(100_000):
        if is_ended():
            break
    until(is_ended)
    assert small.works()


def test_nonsense_on_the_wire_is_dropped(small: Daemon, raw: Raw) -> None:
    chance = random.Random(1)
    ping = raw.frame(PING)
    for _ in range(500):
        raw.asker.send(chance.randbytes(chance.randrange(200)))
        raw.asker.send_multipart([chance.randbytes(20) for _ in range(chance.randrange(1, 4))])
        cut = bytearray(ping)
        cut[chance.randrange(len(cut))] ^= 1 << chance.randrange(8)
        raw.asker.send(bytes(cut))
    raw.asker.send(ping)
    until(lambda: raw.asker.poll(1000) and b"pong" in raw.asker.recv())
    assert small.works()


def test_a_message_beyond_the_limit_costs_its_client_the_connection_alone(
    small: Daemon, raw: Raw
) -> None:
    raw.asker.send(raw.frame(PING))
    assert raw.answer()["type"] == "pong"
    with raw.asker.get_monitor_socket(zmq.EVENT_DISCONNECTED) as monitor:
        raw.asker.send(bytes(MIB + 1))
        assert monitor.poll(60_000), "the daemon has read it"
        raw.asker.disable_monitor()
    assert small.works()
    raw.asker.send(raw.frame(PING))
    assert raw.answer()["type"] == "pong"


FLOOD = """
import socket, sys
frame = b"\\x03" + (1 << 20).to_bytes(8, "big") + bytes(1 << 20)
with socket.socket(socket.AF_UNIX) as flood:
    flood.connect(sys.argv[1] + "/control.sock")
    flood.sendall(b"\\xff" + bytes(8) + b"\\x7f\\x03\\0NULL" + bytes(48))
    flood.sendall(b"\\x04\\x1c\\x05READY\\x0bSocket-Type\\0\\0\\0\\x06DEALER")
    for _ in range(400):
        flood.sendall(frame)
"""
"""One message of 400 MiB, without a session, by the letters of ZMTP 3.0."""


def test_a_flood_without_a_session_is_refused_before_it_is_read(small: Daemon) -> None:
    assert small.works()
    before = resident_mib(small)
    flood = small.script(FLOOD)
    flood.communicate(timeout=60)
    assert flood.returncode != 0
    assert resident_mib(small) < before + 20
    assert small.works()


def resident_mib(daemon: Daemon) -> float:
    pages = Path(f"/proc/{daemon.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / MIB


def test_nonsense_instead_of_a_hello_is_refused(small: Daemon) -> None:
    chance = random.Random(2)
    random_bytes = [chance.randbytes(chance.randrange(1, 300)) for _ in range(50)]
    early = [encode({"type": "map", "segment": 1}), encode({"type": "hello"}), bytes(5000)]
    for payload in (*random_bytes, *early):
        with session(small) as own:
            own.send(payload)
            assert decode(own.recv(1 << 16))["error"]["code"] == 76
            with contextlib.suppress(ConnectionError):
                assert own.recv(1 << 16) == b""
    assert small.works()


def test_a_client_of_another_version_is_told_so(small: Daemon) -> None:
    with session(small) as own:
        own.send(encode(HELLO | {"protocol": 999, "version": "99.0"}))
        error = decode(own.recv(1 << 16))["error"]
    assert (error["code"], hetsched.__version__ in error["message"]) == (76, True)


ASK = """
import os, socket, sys, msgspec, zmq
folder, uid, has_session, payload = sys.argv[1:]
uid, has_session = int(uid), has_session == "True"
if uid != os.getuid():
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
session = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if has_session:
    session.connect(f"{folder}/session.sock")
    hello = {"type": "hello", "protocol": 1, "version": "test", "pid": os.getpid()}
    session.send(msgspec.msgpack.encode(hello))
    session.recv(1000)
asker = zmq.Context().socket(zmq.DEALER)
asker.linger = 0
asker.connect(f"ipc://{folder}/control.sock")
asker.send(bytes.fromhex(payload))
print(asker.recv().hex() if asker.poll(60_000 if has_session else 500) else "", flush=True)
os._exit(0)
"""


def asked(daemon: Daemon, raw: Raw, uid: int, has_session: bool) -> Any:
    """The answer to a ping with the token of `raw` from a process of `uid`; None: it gets none."""
    process = daemon.script(ASK, str(uid), str(has_session), raw.frame(PING).hex())
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return decode(bytes.fromhex(out))["answer"] if out.strip() else None


def test_a_token_is_worth_nothing_in_another_process(small: Daemon, raw: Raw) -> None:
    assert asked(small, raw, os.getuid(), True)["error"]["code"] == 77
    assert asked(small, raw, os.getuid(), False) is None
    raw.asker.send(raw.frame(PING))
    assert raw.answer()["type"] == "pong"


@pytest.mark.root
@needs_root
def test_another_user_gets_no_reply_even_with_a_token(small: Daemon, raw: Raw) -> None:
    with contextlib.ExitStack() as stack:  # undo the protection by modes: credentials are left
        run = small.folder / "run"
        for path in (small.folder, run, run / "control.sock", run / "session.sock"):
            stack.callback(path.chmod, stat.S_IMODE(path.stat().st_mode))
            path.chmod(0o777)
        assert asked(small, raw, 65533, False) is None
    assert small.works()


STRANGER = """
import os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as session:
    session.bind(sys.argv[1])
    os.setuid(65534)
    session.listen()
    print("listening", flush=True)
    print(session.accept()[0].recv(100))
"""


@pytest.mark.root
@needs_root
def test_a_client_sends_nothing_to_the_daemon_of_another_user(tmp_path: Path) -> None:
    path = tmp_path / "session.sock"
    with subprocess.Popen(
        [sys.executable, "-c", STRANGER, str(path)], stdout=subprocess.PIPE, text=True
    ) as stranger:
        assert stranger.stdout is not None and stranger.stdout.readline() == "listening\n"
        with refused(77, "it belongs to user 65534"):
            hetsched.Client(tmp_path)
        assert stranger.stdout.read() == "b''\n"


def test_answers_that_would_be_too_long_are_shortened(small: Daemon) -> None:
    with small.client() as client:
        x = np.ones((1, 4))
        job = client.submit("toys:Toy", x, units=1, name="x" * (MIB - 600))
        assert (job.result(60) == 3).all()
        assert (job.report.params, "left out here" in job.report.notes[0]) == ({}, True)
        held = [client.submit("toys:Toy", units=1, name="x" * 300_000, hold=True) for _ in "1234"]
        assert [line.job for line in client.status(("held",))] == [one.id for one in held]
        client.cancel_all()


def test_a_daemon_that_does_not_answer_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "session.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(str(path))
        path.chmod(0o600)
        silent.listen()
        with refused(75, "hasn't answered"):
            hetsched.Client(tmp_path, timeout=0.01)


def test_a_request_that_hits_a_bug_is_answered(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import prometheus_client\n"
        "def broken(*arguments): raise ValueError('oops')\n"
        "prometheus_client.generate_latest = broken\n"
    )
    with serving(PYTHONPATH=f"{PLUG_INS}:{tmp_path}") as daemon, daemon.client() as client:
        with refused(70, "ValueError: oops"):
            client.metrics()
        assert daemon.works()
