"""Clients that die, don't read, or send nonsense trouble nobody but themselves."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq
from served import CORES, Daemon, Gate, await_state, computes, refused, serving, until

import hetsched

TOY = "toys:Toy"
SMALL = (
    '[arena]\nlimit = "256MiB"\nresults_for = "0s"\nwarm_for = "0s"\n'
    '[limits]\nunread = "1MiB"\n' + CORES
)
FIFTY = """
import sys
import numpy as np
import hetsched
seed, folder = sys.argv[2:]
rng = np.random.default_rng(int(seed))
with hetsched.Client(sys.argv[1], timeout=60) as client:
    jobs = []
    for number in range(50):
        x = rng.random((rng.integers(1, 9), 16, 16)).astype("complex64")
        source, out = (f"{folder}/{seed}-{number}{what}.npy" for what in ("", "-out"))
        np.save(source, x)
        files = {"arrays": source, "out": out}
        jobs.append((x, client.submit("fft", **files if number % 2 else {"arrays": x})))
    for x, job in jobs:
        y = job.result(60)
        y = y if isinstance(y, np.ndarray) else np.load(y)
        assert np.allclose(y, np.fft.fft2(x), atol=1e-3), job
print("right")
"""
DIES = """
import os, sys
import hetsched
client = hetsched.Client(sys.argv[1], timeout=60)
x = client.empty((40, 4), "float64")
x[...] = 1
job = client.submit("toys:Toy", x, units=40, gate=sys.argv[2], log=sys.argv[3], name="ran")
print(job.id, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def small() -> Iterator[Daemon]:
    with serving(SMALL) as daemon:
        yield daemon


def script(daemon: Daemon, code: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(daemon.folder / "run"), *words],
        env=daemon.environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def works(daemon: Daemon) -> bool:
    with daemon.client() as client:
        return bool((client.submit(TOY, np.ones((4, 4)), units=4).result(60) == 3).all())


def segments(daemon: Daemon) -> int:
    """Shared arrays that the daemon has open."""
    count = 0
    for descriptor in Path(f"/proc/{daemon.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += "memfd:hetsched " in os.readlink(descriptor)
    return count


def test_jobs_of_four_clients_beside_a_large_one_are_right_and_leave_nothing(
    small: Daemon, tmp_path: Path
) -> None:
    assert works(small)
    with small.client() as client:
        large = client.submit("toys:Slow", np.ones((1000, 4)), units=1000, milliseconds=10)
        clients = [script(small, FIFTY, str(seed), str(tmp_path)) for seed in range(4)]
        assert [client.communicate(timeout=120)[0] for client in clients] == ["right\n"] * 4
        assert (large.result(60) == 3).all()
        del large
    assert works(small)
    until(lambda: segments(small) == 0)


def test_a_dead_clients_job_ends_and_its_memory_is_free(
    small: Daemon, gate: Gate, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    client = script(small, DIES, str(gate.path), str(log))
    number = int(client.communicate(timeout=60)[0])
    assert client.returncode == -signal.SIGKILL
    gate.open()
    assert small.call("wait", str(number)).code in (0, 130)
    assert works(small)
    until(lambda: segments(small) == 0)


def test_a_forked_child_cannot_use_its_parents_client(small: Daemon) -> None:
    code = (
        "import os, sys, hetsched\n"
        "with hetsched.Client(sys.argv[1], timeout=60) as client:\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        try:\n"
        "            client.ping()\n"
        "        except Exception as error:\n"
        "            os._exit(error.code)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), client.ping().pid)\n"
    )
    out, _ = script(small, code).communicate(timeout=60)
    assert out.split() == ["2", str(small.process.pid)]


def test_a_client_that_does_not_read_stops_nobody(small: Daemon) -> None:
    with raw(small) as (asker, token):
        asker.setsockopt(zmq.RCVHWM, 1)
        for number in range(3000):
            frame = {"token": token, "number": number, "request": {"type": "metrics"}}
            with contextlib.suppress(zmq.Again):
                asker.send(msgspec.msgpack.encode(frame), zmq.NOBLOCK)
        assert works(small)
        assert small.call("ping").code == 0


@contextlib.contextmanager
def raw(daemon: Daemon) -> Iterator[tuple[Any, str]]:
    """A session's ZeroMQ socket and token, without a client."""
    hello = {"type": "hello", "protocol": 1, "version": hetsched.__version__, "pid": os.getpid()}
    with (
        zmq.Context() as context,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as session,
        context.socket(zmq.DEALER) as asker,
    ):
        session.settimeout(60)
        session.connect(str(daemon.folder / "run" / "session.sock"))
        session.send(msgspec.msgpack.encode(hello))
        welcome = msgspec.msgpack.decode(session.recv(1 << 16))
        asker.linger = 0
        asker.connect(f"ipc://{welcome['endpoint']}")
        yield asker, welcome["token"]


def test_nonsense_on_the_wire_is_dropped(small: Daemon) -> None:
    chance = random.Random(1)
    with raw(small) as (asker, token):
        ping = msgspec.msgpack.encode({"token": token, "number": 1, "request": {"type": "ping"}})
        for _ in range(500):
            asker.send(chance.randbytes(chance.randrange(200)))
            asker.send_multipart([chance.randbytes(20) for _ in range(chance.randrange(1, 4))])
            cut = bytearray(ping)
            cut[chance.randrange(len(cut))] ^= 1 << chance.randrange(8)
            asker.send(bytes(cut))
        asker.send(ping)
        until(lambda: asker.poll(1000) and b"pong" in asker.recv())
    assert works(small)


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
    assert works(small)
    before = resident_mib(small)
    flood = script(small, FLOOD)
    flood.communicate(timeout=60)
    assert flood.returncode != 0
    assert resident_mib(small) < before + 20
    assert works(small)


def resident_mib(daemon: Daemon) -> float:
    pages = Path(f"/proc/{daemon.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def test_nonsense_instead_of_a_hello_is_refused(small: Daemon) -> None:
    chance = random.Random(2)
    for _ in range(100):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as session:
            session.settimeout(60)
            session.connect(str(small.folder / "run" / "session.sock"))
            session.send(chance.randbytes(chance.randrange(1, 300)))
            with contextlib.suppress(ConnectionError):
                session.recv(1 << 16)
    assert works(small)


def test_a_client_of_another_version_is_told_so(small: Daemon) -> None:
    hello = {"type": "hello", "protocol": 999, "version": "99.0", "pid": os.getpid()}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as session:
        session.settimeout(60)
        session.connect(str(small.folder / "run" / "session.sock"))
        session.send(msgspec.msgpack.encode(hello))
        answer = msgspec.msgpack.decode(session.recv(1 << 16))
    assert answer["error"]["code"] == 76
    assert hetsched.__version__ in answer["error"]["message"]


def test_without_a_daemon_a_client_says_where_it_looked(tmp_path: Path) -> None:
    with refused(69, str(tmp_path)):
        hetsched.Client(tmp_path)


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
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_client_sends_nothing_to_the_daemon_of_another_user(tmp_path: Path) -> None:
    path = tmp_path / "session.sock"
    with subprocess.Popen(
        [sys.executable, "-c", STRANGER, str(path)], stdout=subprocess.PIPE, text=True
    ) as stranger:
        assert stranger.stdout is not None and stranger.stdout.readline() == "listening\n"
        with refused(77, "it belongs to user 65534"):
            hetsched.Client(tmp_path)
        assert stranger.stdout.read() == "b''\n"


def test_shared_memory_in_use_is_75_and_free_again_later(small: Daemon) -> None:
    with small.client() as client:
        arrays = [client.empty(1 << 23, "float64") for _ in range(3)]
        with refused(75):
            client.empty(1 << 24, "float64")
        del arrays
        with refused(65):
            client.empty(1 << 30, "float64")
        assert until(lambda: fits(client))


def fits(client: hetsched.Client) -> bool:
    try:
        return client.empty(1 << 24, "float64").shape == (1 << 24,)
    except Exception:
        return False


def test_any_client_may_follow_and_cancel_another_ones_job(small: Daemon, gate: Gate) -> None:
    with small.client() as client, small.client() as other:
        job = client.submit(TOY, units=4, gate=str(gate.path))
        same = other.job(job.id)
        computes(same)
        other.cancel(job.id)
        gate.open()
        await_state(job, lambda state: type(state).__name__ == "Failed")
        assert job.cancelled()
        until(same.cancelled)


def test_few_descriptors_refuse_or_delay_clients_and_it_recovers() -> None:
    with serving(prefix=("prlimit", "--nofile=64")) as daemon:
        with contextlib.ExitStack() as stack, pytest.raises(Exception) as caught:
            for _ in range(64):
                stack.enter_context(daemon.client(timeout=5))
        refusal: Any = caught.value
        assert refusal.code in (69, 75)
        assert until(lambda: works(daemon))
        assert daemon.stop() == 0
