"""Malformed frames, messages and connections: the daemon lives, and nothing of it grows.

Frames over ZeroMQ (random bytes, valid messages with bytes changed, cut or repeated, messages of
several frames), messages on session sockets (the same, with and without descriptors), and raw
bytes in place of ZMTP (no greeting, a broken one, wrong lengths, an end in the middle).
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import zmq
from served import PATIENCE, Daemon, serving, until

from hetsched.job import FileRef, JobSpec
from hetsched.transport import messages

pytestmark = pytest.mark.stress
CONFIG = '[[device]]\nkind = "cpu"\ncount = 1\n[arena]\nwarm_for = "0s"\n'
"""Without warm segments: some damaged messages are valid and leave a free one."""
BATCH = 200
"""Frames on one connection, and connections of their own, before a valid request."""
RAW, SESSIONS = 4, 4
MAX_GROWTH_MIB = 10
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
LENGTHS = (0, 1, 255, 1 << 20, (1 << 20) + 1, 1 << 40, (1 << 64) - 1)
SPEC = JobSpec(
    workload="none",
    params={"batch": "4x16x16", "list": [1, 2.5, None, {"a": "b"}]},
    inputs={"x": FileRef("/nowhere/x.npy")},
    devices=("cpu0",),
)
"""It is refused, so that no job runs."""
REQUESTS: tuple[messages.Request, ...] = (
    messages.Ping(),
    messages.Submit(SPEC),
    messages.Status(),
    messages.Show(1),
    messages.Follow(1),
    messages.Cancel(1),
    messages.Explain(1),
    messages.Devices(),
)
HELLO = messages.encode(messages.Hello(messages.PROTOCOL, "fuzz", os.getpid()))
SESSION_MESSAGES = [
    HELLO,
    *map(messages.encode, (messages.Allocate(1 << 16), messages.Map(1), messages.Drop(1))),
]


def flip(rng: random.Random, valid: bytes) -> bytes:
    changed = bytearray(valid)
    for _ in range(rng.randint(1, 5)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def repeat(rng: random.Random, valid: bytes) -> bytes:
    start = rng.randrange(len(valid))
    return valid[:start] + valid[start:] * rng.randint(2, 4)


def lengthen(rng: random.Random, valid: bytes) -> bytes:
    """Insert a header that announces up to 4 GiB of text, bytes, list or map."""
    start = rng.randrange(len(valid))
    header = bytes([rng.choice([0xC6, 0xDB, 0xDD, 0xDF])]) + rng.randbytes(4)
    return valid[:start] + header + valid[start:]


def nest(rng: random.Random, valid: bytes) -> bytes:
    start = rng.randrange(len(valid))
    return valid[:start] + bytes([rng.choice([0x91, 0x81])]) * rng.choice([10, 1000, 100_000])


CHANGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    lambda rng, valid: rng.randbytes(rng.randrange(200)),
    lambda rng, valid: valid[: rng.randrange(len(valid))],
    *(flip, flip, flip),
    *(repeat, lengthen, nest),
)


def damaged(rng: random.Random, valid: list[bytes]) -> bytes:
    """Return a changed message; a few are valid after all."""
    return rng.choice(CHANGES)(rng, rng.choice(valid))


@contextlib.contextmanager
def session(folder: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(PATIENCE)
        sock.connect(str(folder / "session.sock"))
        yield sock


def greet(sock: socket.socket) -> str:
    sock.send(HELLO)
    answer: Any = messages.Decoder(messages.SessionAnswer)(sock.recv(65536))
    return str(answer.token)


def send_session_message(folder: Path, rng: random.Random) -> None:
    """Send one damaged message, some with descriptors, on a session of its own."""
    payload = damaged(rng, SESSION_MESSAGES) or b"x"
    if rng.random() < 0.2:
        payload = rng.randbytes(rng.choice([4097, 60_000]))
    with session(folder) as sock, contextlib.suppress(OSError):
        if rng.random() < 0.5:
            greet(sock)
        descriptors = rng.choice([1, 16, 100]) if rng.random() < 0.3 else 0
        socket.send_fds(sock, [payload], [sock.fileno()] * descriptors)


def send_raw(folder: Path, rng: random.Random) -> None:
    """Send bytes that aren't ZMTP, or that break it at some point, and disconnect."""
    header = bytes([rng.choice([0, 1, 2, 3, 4, 6, 0x80, 0xFF])])
    header += rng.choice(LENGTHS).to_bytes(8, "big")
    parts = [GREETING, READY, header, rng.randbytes(rng.randrange(300))]
    raw = b"".join(parts[: rng.randint(0, len(parts))]) + rng.randbytes(rng.randrange(100))
    if rng.random() < 0.3:
        raw = flip(rng, raw + b"\0")
    with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
        sock.connect(str(folder / "control.sock"))
        sock.sendall(raw)
        if rng.random() < 0.3:
            sock.settimeout(0.01)
            sock.recv(100)


def send_frames(folder: Path, count: int, rng: random.Random) -> None:
    """Send damaged requests on one connection, and a valid one, which must be answered."""
    with session(folder) as sock, zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        token, last = greet(sock), 1 << 40
        valid = [messages.encode(messages.Envelope(token, n, r)) for n, r in enumerate(REQUESTS)]
        dealer.set(zmq.LINGER, 0)
        dealer.set(zmq.SNDTIMEO, int(1e3 * PATIENCE))
        dealer.set(zmq.RCVTIMEO, int(1e3 * PATIENCE))
        dealer.connect(f"ipc://{folder / 'control.sock'}")
        for _ in range(count):
            frames = 1 if rng.random() < 0.95 else 3
            dealer.send_multipart([damaged(rng, valid) for _ in range(frames)])
            with contextlib.suppress(zmq.Again):
                while True:
                    dealer.recv(zmq.NOBLOCK)
        dealer.send(messages.encode(messages.Envelope(token, last, messages.Ping())))
        decode: Any = messages.Decoder(messages.Reply)
        while decode(dealer.recv()).number != last:
            pass


def attack(daemon: Daemon, inputs: int, seed: int) -> None:
    rng, folder = random.Random(seed), daemon.folder / "run"
    for _ in range(0, inputs, BATCH):
        for _ in range(RAW):
            send_raw(folder, rng)
        for _ in range(SESSIONS):
            send_session_message(folder, rng)
        send_frames(folder, BATCH - RAW - SESSIONS, rng)


def test_malformed_input_neither_stops_the_daemon_nor_makes_it_grow(stress: Any) -> None:
    inputs = stress.scaled(100_000)
    with serving(CONFIG) as daemon:
        with daemon.client() as client:  # from then on the device process is there, too
            client.submit("fft", np.ones((1, 4, 4), "complex64")).result(60)
        process = psutil.Process(daemon.process.pid)
        attack(daemon, 2000, seed=1)
        descriptors, before = settled(process), process.memory_info().rss
        attack(daemon, inputs, seed=0)
        until(lambda: process.num_fds() <= descriptors)
        growth = (process.memory_info().rss - before) / 2**20
        assert daemon.stop() == 0
    stress.record("inputs", inputs)
    stress.record("MiB of growth", growth)
    assert growth <= MAX_GROWTH_MIB


def settled(process: psutil.Process) -> int:
    """Return the descriptors once closed connections are gone."""
    counts = [process.num_fds()]
    until(lambda: counts.append(process.num_fds()) or counts[-20:] == 20 * counts[-1:])
    return counts[-1]
