"""Latency and bandwidth of the link to a host, and the difference of the clocks."""

from __future__ import annotations

import socket
import ssl
import time
from statistics import median

import msgspec
import numpy as np

from hetsched.errors import Unavailable
from hetsched.hosts.channel import (
    PATIENCE,
    Beat,
    LinkTimes,
    Probe,
    Probed,
    bytes_of,
    greet,
    receive_now,
    send_now,
)

EMPTY_COUNT = 20
LARGE, LARGE_COUNT = 8 << 20, 3
"""Bytes of a message, and messages."""
SECONDS = 60.0
"""For one message and its answer."""


def measure(host: str, place: tuple[str, int, str], context: ssl.SSLContext | None) -> LinkTimes:
    """Measure the link from here to a host at (interface, port, token). Raises as `greet`."""
    interface, port, token = place
    connection = greet(host, (interface, port), token, context, PATIENCE)
    try:
        empty = [_exchange(connection, 0) for _ in range(EMPTY_COUNT)]
        large = [_exchange(connection, LARGE) for _ in range(LARGE_COUNT)]
    except (OSError, EOFError, msgspec.MsgspecError) as error:
        raise Unavailable(f"{host}: {error}") from None
    finally:
        connection.close()
    latency, long = (median(seconds for seconds, *_ in times) for times in (empty, large))
    bandwidth = LARGE / max(long - latency, 1e-9)
    _, offset, answer = min(empty, key=lambda exchange: exchange[0])
    return LinkTimes(latency, bandwidth, offset, answer.about)


def _exchange(connection: socket.socket, size: int) -> tuple[float, float, Probed]:
    """Return (seconds, by which the other clock is ahead, answer)."""
    data = np.zeros(size, np.uint8)
    connection.settimeout(SECONDS)
    began, clock = time.perf_counter(), time.time()
    send_now(connection, Probe(size))
    connection.sendall(bytes_of(data))
    answer = receive_now(connection, SECONDS)
    while isinstance(answer, Beat):
        answer = receive_now(connection, SECONDS)
    seconds = time.perf_counter() - began
    if not isinstance(answer, Probed):
        raise EOFError(f"answers with {type(answer).__name__}")
    return seconds, answer.clock - (clock + seconds / 2), answer
