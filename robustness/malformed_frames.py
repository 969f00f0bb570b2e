"""Malformed input on both sockets: the daemon lives, and neither memory nor descriptors grow.

Frames over ZeroMQ (random bytes, valid messages with bytes changed, cut or repeated, messages of
several frames), messages on session sockets (the same, with and without descriptors), and raw
bytes in place of ZMTP (no greeting, a broken one, wrong lengths, an end in the middle).
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zmq

from benchmarks.results import Bar, Result
from hetsched.job import FileRef, JobSpec
from hetsched.transport import messages
from robustness.daemon import Daemon, daemon
from robustness.scale import Scale

ONE_CORE = """
[[device]]
kind = "cpu"
count = 1

[arena]
warm_for = "0s"
"""
"""Without warm segments: some damaged messages are valid and leave a free one."""
WARM_UP_FRAMES = 2000
BATCH = 200
"""Frames on one ZeroMQ connection before a valid request checks that the daemon still answers."""
RAW_SHARE, SESSION_SHARE = 0.02, 0.02
"""Shares of inputs that take a connection of their own: raw ZMTP, and session messages."""
MAX_GROWTH_MIB = 10
SETTLE_SECONDS = 20.0
ANSWER_MS = 30_000

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"


def measure(scale: Scale) -> Result:
    figures = run(scale.of(4000, 200_000, 1_000_000), scale.seed)
    result = Result(
        "malformed_frames",
        "Malformed frames, messages and connections",
        ("inputs", "per second", "daemon died", "memory grew by", "descriptors grew by"),
    )
    result.rows.append(
        (
            f"{figures['frames']:.0f}",
            f"{figures['frames'] / figures['seconds']:.0f}",
            "yes" if figures["died"] else "no",
            f"{figures['growth_mib']:.1f} MiB",
            f"{figures['descriptors']:.0f}",
        )
    )
    result.data.append(figures)
    result.bars += [
        Bar("deaths of the daemon", figures["died"], 0, at_least=False),
        Bar("memory growth, MiB", figures["growth_mib"], MAX_GROWTH_MIB, at_least=False),
        Bar("descriptors left over", figures["descriptors"], 0, at_least=False),
    ]
    return result


def run(frames: int, seed: int) -> dict[str, float]:
    """Send `frames` malformed inputs to a daemon; return what became of it."""
    with daemon(ONE_CORE) as served:
        with served.client() as client:  # from then on the device process is there, too
            client.submit("fft", np.ones((1, 4, 4), "complex64"), direction="forward").result(60)
        attack(served.folder, WARM_UP_FRAMES, seed + 1)
        before = _settle(served, None)
        begin = time.monotonic()
        with contextlib.suppress(ConnectionError):
            attack(served.folder, frames, seed)
        seconds = time.monotonic() - begin
        died = not served.is_alive
        after = before if died else _settle(served, before["descriptors"])
    return {
        "frames": frames,
        "seconds": seconds,
        "died": float(died),
        "growth_mib": (after["rss_bytes"] - before["rss_bytes"]) / (1 << 20),
        "descriptors": after["descriptors"] - before["descriptors"],
    }


def attack(folder: Path, frames: int, seed: int) -> None:
    """Send malformed inputs. Raises ConnectionError if valid requests are no longer answered."""
    rng = random.Random(seed)
    sent = 0
    while sent < frames:
        count = min(BATCH, frames - sent)
        raw, session = round(count * RAW_SHARE), round(count * SESSION_SHARE)
        for _ in range(raw):
            send_raw(folder / "control.sock", rng)
        for _ in range(session):
            send_session_message(folder / "session.sock", rng)
        _send_frames(folder, max(0, count - raw - session), rng)
        sent += count


@dataclass
class Fuzzer:
    """Makes malformed frames from valid ones; `token` is that of a session."""

    rng: random.Random
    valid: list[bytes]

    def frame(self) -> bytes:
        """Return one frame. A few are valid after all."""
        change = self.rng.choice(CHANGES)
        return change(self.rng, self.rng.choice(self.valid))


def _noise(rng: random.Random, valid: bytes) -> bytes:
    return rng.randbytes(rng.randrange(200))


def _flip(rng: random.Random, valid: bytes) -> bytes:
    changed = bytearray(valid)
    for _ in range(rng.randint(1, 5)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _cut(rng: random.Random, valid: bytes) -> bytes:
    return valid[: rng.randrange(len(valid))]


def _repeat(rng: random.Random, valid: bytes) -> bytes:
    start = rng.randrange(len(valid))
    return valid[:start] + valid[start:] * rng.randint(2, 4)


def _lengthen(rng: random.Random, valid: bytes) -> bytes:
    """Insert a header that announces up to 4 GiB of text, bytes, list or map."""
    start = rng.randrange(len(valid))
    header = bytes([rng.choice([0xC6, 0xDB, 0xDD, 0xDF])]) + rng.randbytes(4)
    return valid[:start] + header + valid[start:]


def _nest(rng: random.Random, valid: bytes) -> bytes:
    start = rng.randrange(len(valid))
    return valid[:start] + bytes([rng.choice([0x91, 0x81])]) * rng.choice([10, 1000, 100_000])


CHANGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _noise,
    *(_flip,) * 4,
    *(_cut,) * 2,
    *(_repeat,) * 2,
    _lengthen,
    _nest,
)


def valid_frames(token: str) -> list[bytes]:
    """Return one valid envelope of each kind; the submission is refused, so that no job runs."""
    spec = JobSpec(
        workload="none",
        params={"batch": "4x16x16", "list": [1, 2.5, None, {"a": "b"}]},
        inputs={"x": FileRef("/nowhere/x.npy")},
        devices=("cpu0",),
    )
    requests: list[messages.Request] = [
        messages.Ping(),
        messages.Submit(spec),
        messages.Status(),
        messages.Show(1),
        messages.Follow(1),
        messages.Cancel(1),
        messages.Explain(1),
        messages.Devices(),
    ]
    return [
        messages.encode(messages.Envelope(token, number, request))
        for number, request in enumerate(requests, 1)
    ]


def _send_frames(folder: Path, count: int, rng: random.Random) -> None:
    with _session(folder / "session.sock") as session:
        token = _greet(session)
        fuzzer = Fuzzer(rng, valid_frames(token))
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.set(zmq.LINGER, 0)
            dealer.set(zmq.SNDTIMEO, ANSWER_MS)
            dealer.connect(f"ipc://{folder / 'control.sock'}")
            for _ in range(count):
                frames = [fuzzer.frame() for _ in range(1 if rng.random() < 0.95 else 3)]
                dealer.send_multipart(frames)
                _read_all(dealer)
            _expect_pong(dealer, token)


def _read_all(dealer: zmq.Socket[bytes]) -> None:
    with contextlib.suppress(zmq.Again):
        while True:
            dealer.recv(zmq.NOBLOCK)


def _expect_pong(dealer: zmq.Socket[bytes], token: str) -> None:
    number = 1 << 40
    dealer.send(messages.encode(messages.Envelope(token, number, messages.Ping())))
    decode: messages.Decoder[messages.Reply] = messages.Decoder(messages.Reply)
    deadline = time.monotonic() + ANSWER_MS / 1000
    while time.monotonic() < deadline and dealer.poll(ANSWER_MS):
        if decode(dealer.recv()).number == number:
            return
    raise ConnectionError("the daemon doesn't answer")


def send_session_message(path: Path, rng: random.Random) -> None:
    """Send one malformed message, some with descriptors, on a session of its own."""
    valid = [
        messages.encode(messages.Hello(messages.PROTOCOL, "fuzz", os.getpid())),
        messages.encode(messages.Allocate(1 << 16)),
        messages.encode(messages.Map(1)),
        messages.encode(messages.Drop(1)),
    ]
    with _session(path) as sock, contextlib.suppress(OSError):
        if rng.random() < 0.5:
            _greet(sock)
        payload = Fuzzer(rng, valid).frame()
        if rng.random() < 0.2:
            payload = rng.randbytes(rng.choice([4097, 60_000]))
        fds = [sock.fileno()] * (rng.choice([1, 16, 100]) if rng.random() < 0.3 else 0)
        if fds:
            socket.send_fds(sock, [payload or b"x"], fds)
        else:
            sock.send(payload or b"x")


def send_raw(path: Path, rng: random.Random) -> None:
    """Send bytes that aren't ZMTP, or that break it at some point, and disconnect."""
    parts = [GREETING, READY, _frame_header(rng), rng.randbytes(rng.randrange(300))]
    parts = parts[: rng.randint(0, len(parts))]
    raw = b"".join(parts) + rng.randbytes(rng.randrange(100))
    if rng.random() < 0.3:
        raw = _flip(rng, raw + b"\0")
    with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
        sock.connect(str(path))
        sock.sendall(raw)
        if rng.random() < 0.3:
            sock.settimeout(0.01)
            sock.recv(100)


def _frame_header(rng: random.Random) -> bytes:
    """Return the header of a long frame, often with an absurd length or unknown flags."""
    length = rng.choice([0, 1, 255, 1 << 20, (1 << 20) + 1, 1 << 40, (1 << 64) - 1])
    return bytes([rng.choice([0, 1, 2, 3, 4, 6, 0x80, 0xFF])]) + length.to_bytes(8, "big")


def _session(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(ANSWER_MS / 1000)
    sock.connect(str(path))
    return sock


def _greet(sock: socket.socket) -> str:
    sock.send(messages.encode(messages.Hello(messages.PROTOCOL, "fuzz", os.getpid())))
    decode: messages.Decoder[messages.SessionAnswer] = messages.Decoder(messages.SessionAnswer)
    answer = decode(sock.recv(65536))
    assert isinstance(answer, messages.Welcome)
    return answer.token


def _settle(served: Daemon, descriptors: int | None) -> dict[str, int]:
    """Wait until closed connections are gone (or as many as `descriptors` remain)."""
    deadline = time.monotonic() + SETTLE_SECONDS
    previous = served.usage()
    while time.monotonic() < deadline:
        time.sleep(0.2)
        usage = served.usage()
        if usage["descriptors"] == (
            previous["descriptors"] if descriptors is None else descriptors
        ):
            return usage
        previous = usage
    return previous
