"""A socket between coordinator and host: messages, with the bytes of arrays behind them.

One thread serves a socket in both directions, so that a long array never holds up the signs of
life; what can be sent at once, whoever sends it writes itself.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Annotated, Any

import msgspec

import hetsched
from hetsched import errors
from hetsched.cluster import orders
from hetsched.errors import ErrorRecord
from hetsched.hosts.grid_messages import Cells, Close, Copy, Layout, Open, Results

log = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds without a sign of life after which the other end counts as lost."""
MIN_PATIENCE, MAX_PATIENCE = 0.5, 86_400.0
BEATS = 4
"""Signs of life that a silent end sends within its patience."""
HANDSHAKE = 10.0
"""Seconds for the connection, TLS and the first message in each direction."""
MAX_HELLO = 1 << 16
"""Bytes of a first message: whoever sends it isn't known yet."""
MAX_HEADER = 64 << 20
MAX_TURN = 4 << 20
"""Bytes read, or written, before the other direction gets its turn."""
SMALL = 1 << 16
"""Bytes that are written in one piece, and read: a short message wakes its receiver once."""


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The first message in each direction; `patience` is the coordinator's, for both."""

    version: str
    token: str = ""
    patience: Annotated[float, msgspec.Meta(ge=MIN_PATIENCE, le=MAX_PATIENCE)] = PATIENCE


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The connection ends, and why."""

    error: ErrorRecord


class See(msgspec.Struct, frozen=True, tag=True):
    """Ask whether the host sees `text` in the file `path`; `number` is that of the answer."""

    number: int
    path: str
    text: str


class Seen(msgspec.Struct, frozen=True, tag=True):
    number: int
    is_same: bool


class Measure(msgspec.Struct, frozen=True, tag=True):
    """Ask a host to measure its link to another, which listens at `place`."""

    number: int
    host: str
    place: tuple[str, int, str]


class LinkTimes(msgspec.Struct, frozen=True):
    """Seconds there and back without data, bytes a second, how far the other clock is ahead."""

    latency: float
    bandwidth: float
    clock_offset: float
    about: dict[str, str]
    """Versions and encryption."""


class Measured(msgspec.Struct, frozen=True, tag=True):
    number: int
    link: LinkTimes | None = None
    error: ErrorRecord | None = None


class Probe(msgspec.Struct, frozen=True, tag=True):
    """So many bytes follow, which the other end answers and drops."""

    size: int


class Probed(msgspec.Struct, frozen=True, tag=True):
    clock: float
    about: dict[str, str]


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Ask what the host does."""

    number: int


class Status(msgspec.Struct, frozen=True, tag=True):
    """What a host does, for all coordinators; `units` and `busy` seconds since it began."""

    number: int
    doing: tuple[str, ...]
    units: int
    busy: float
    load: float
    """Processes that want to run, as the system says."""


class Mapped(msgspec.Struct, frozen=True, tag=True):
    """How a function is called; its arrays are named by position.

    Blocks have the axis of the units first, with `overlap` more of them on either side; the
    function gets them along `axis`.
    """

    axis: int
    overlap: int
    dtype: str | None


class Keep(msgspec.Struct, frozen=True, tag=True):
    """Arrays that each part of a job needs whole; they follow."""

    epoch: int
    arrays: tuple[Layout, ...]


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where in a file a result's rows of `shape` are: in C order, from `offset` bytes on."""

    path: str
    inode: int
    offset: int
    dtype: str
    shape: tuple[int, ...]


class Part(msgspec.Struct, frozen=True, tag=True):
    """Units of a job; the arrays without a path follow. Results go to `out`, where it can write.

    With `call`, `workload` is a function as ``module:qualname`` and `params` are its keywords.
    """

    epoch: int
    workload: str
    params: dict[str, Any]
    options: dict[str, Any]
    call: Mapped | None = None
    first: int = 0
    count: int = 0
    arrays: tuple[Layout, ...] = ()
    out: dict[str, Place] = {}


class Done(msgspec.Struct, frozen=True, tag=True):
    """Units that were computed; the results follow, but those written to files, with a path."""

    epoch: int
    first: int
    count: int
    seconds: float
    results: tuple[Layout, ...]


class Failed(msgspec.Struct, frozen=True, tag=True):
    epoch: int
    first: int
    count: int
    error: ErrorRecord


class Forget(msgspec.Struct, frozen=True, tag=True):
    """Cancel what runs of this job, and drop its arrays."""

    epoch: int


class Beat(msgspec.Struct, frozen=True, tag=True):
    pass


Message = (
    Hello | Refused | Beat | See | Seen | Measure | Measured | Probe | Probed | Ask | Status
    | Keep | Part | Done | Failed | Forget
    | Open | Close | Cells | Copy | Results | orders.Order | orders.Notice
)  # fmt: skip
_decode = msgspec.msgpack.Decoder(Message).decode
_encode = msgspec.msgpack.encode


class Receiver:
    """What is told of a channel's messages, on its thread; it must not block."""

    def buffers(self, message: Any) -> Sequence[memoryview]:
        """Return where the bytes that follow `message` go."""
        return ()

    def take(self, message: Any) -> None:
        """Take a message whose bytes have all arrived."""

    def lost(self, reason: str) -> None:
        """The connection has ended, once. What was sent and not answered is lost."""


class Channel:
    """Serves `connection` from a thread between `start` and `close`, or its end.

    One end `answers`: it gives signs of life when the other's come, and wakes once for both.
    """

    def __init__(
        self,
        connection: socket.socket,
        receiver: Receiver,
        patience: float = PATIENCE,
        *,
        answers: bool = False,
    ) -> None:
        self._socket, self._receiver, self.patience = connection, receiver, patience
        self._socket.setblocking(False)
        self._beat = patience / BEATS * (1.25 if answers else 1.0)
        self._incoming = self._messages()
        self._into = next(self._incoming)
        """What is to be filled next."""
        self._small = memoryview(bytearray(SMALL))
        self._out: deque[memoryview] = deque()
        self._lock = threading.Lock()
        """For `_out` and the socket: a TLS connection can't have two users at a time."""
        self._said = time.monotonic()
        self._is_closing = False
        self._waker, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="hetsched-channel", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_open(self) -> bool:
        return self._thread.is_alive() and not self._is_closing

    def send(self, message: Any, buffers: Sequence[memoryview] = ()) -> None:
        """Queue a message and bytes; `buffers` must not change until the other end answers."""
        header = _encode(message)
        pieces = [memoryview(len(header).to_bytes(4, "big") + header)]
        pieces += [buffer for buffer in buffers if buffer.nbytes]
        if sum(piece.nbytes for piece in pieces) <= SMALL:
            pieces = [memoryview(b"".join(pieces))]
        with self._lock:
            self._out.extend(pieces)
        with contextlib.suppress(OSError):  # of which the thread finds out, too
            self._write()
        if self._out:
            self._wake()

    def close(self) -> None:
        """Send what is queued, as far as that is possible at once, and end the thread."""
        self._is_closing = True
        self._wake()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def _wake(self) -> None:
        if threading.current_thread() is not self._thread:  # that looks before it sleeps
            with contextlib.suppress(OSError):
                self._waker.send(b"x")

    def _run(self) -> None:
        reason = "closed"
        try:
            self._serve()
        except (OSError, EOFError, msgspec.MsgspecError, errors.HetschedError) as error:
            reason = str(error) or type(error).__name__
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            log.exception("a connection ends")
            if not self._out:
                self.send(Refused(errors.to_record(error)))
        finally:
            self._is_closing = True  # whoever finds it open from now on hears of its end
            with self._lock:
                for each in (self._socket, self._waker, self._woken):
                    with contextlib.suppress(OSError):
                        each.close()
                self._out.clear()
            self._receiver.lost(reason)

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        heard = time.monotonic()
        while True:
            now = time.monotonic()
            if now - self._said >= self._beat / 2 and not self._out:
                self.send(Beat())
            wrote = self._write()
            if self._is_closing and wrote < MAX_TURN:
                return
            poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._out else 0))
            due = heard + self.patience
            if not self._out:  # else what waits there comes before a beat
                due = min(due, self._said + self._beat)
            ready = {fd for fd, _ in poll.poll(max(due - now, 0.0) * 1000)}
            if self._woken.fileno() in ready:
                self._woken.recv(4096)
            if self._socket.fileno() in ready and self._read():
                heard = time.monotonic()
            elif now - heard >= self.patience:
                raise EOFError(f"no sign of life for {self.patience:g} s")

    def _read(self) -> int:
        """Read what has come, or about `MAX_TURN`; return its number of bytes."""
        read = 0
        while True:
            is_large = self._into.nbytes >= SMALL
            try:
                target = self._into[:MAX_TURN] if is_large else self._small
                with self._lock:
                    count = self._socket.recv_into(target)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return read
            if not count:
                raise EOFError("the other end has closed the connection")
            read += count
            if is_large:
                self._advance(count)
            else:
                self._copy(self._small[:count])
            is_all = read >= MAX_TURN or (not is_large and count < SMALL)
            # What TLS has decrypted no poll reports.
            if is_all and not (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
                return read

    def _copy(self, data: memoryview) -> None:
        while data.nbytes:
            count = min(data.nbytes, self._into.nbytes)
            self._into[:count] = data[:count]
            self._advance(count)
            data = data[count:]

    def _advance(self, count: int) -> None:
        self._into = self._into[count:]
        while not self._into.nbytes:
            self._into = next(self._incoming)

    def _write(self) -> int:
        """Write what can be written at once, or about `MAX_TURN`; return its number of bytes."""
        wrote = 0
        with self._lock:
            while self._out and wrote < MAX_TURN:
                head = self._out[0]
                try:
                    count = self._socket.send(head[:MAX_TURN])
                except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    break
                wrote += count
                if count == head.nbytes:
                    self._out.popleft()
                else:
                    self._out[0] = head[count:]
            if wrote:
                self._said = time.monotonic()
        return wrote

    def _messages(self) -> Iterator[memoryview]:
        """Yield what is to be filled next, message by message."""
        while True:
            length = bytearray(4)
            yield memoryview(length)
            size = int.from_bytes(length, "big")
            if size > MAX_HEADER:
                raise EOFError(f"a message of {size} bytes: not one of hetsched's")
            header = bytearray(size)
            yield memoryview(header)
            message = _decode(header)
            if isinstance(message, Refused):
                raise errors.from_record(message.error)
            if not isinstance(message, Beat):
                yield from self._receiver.buffers(message)
                self._receiver.take(message)


def send_now(connection: socket.socket, message: Any) -> None:
    header = _encode(message)
    connection.sendall(len(header).to_bytes(4, "big") + header)


def receive_now(connection: socket.socket, seconds: float) -> Any:
    """Receive a message without bytes behind it. Raises OSError, EOFError or MsgspecError."""
    until = time.monotonic() + seconds

    def receive(size: int) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        while rest.nbytes:
            connection.settimeout(max(until - time.monotonic(), 1e-3))
            count = connection.recv_into(rest)
            if not count:
                raise EOFError("the other end has closed the connection")
            rest = rest[count:]
        return data

    size = int.from_bytes(receive(4), "big")
    if size > MAX_HELLO:
        raise EOFError(f"a first message of {size} bytes: not one of hetsched's")
    return _decode(receive(size))


def greet(
    name: str,
    address: tuple[str, int],
    token: str,
    context: ssl.SSLContext | None,
    patience: float,
) -> socket.socket:
    """Connect to a host, with TLS if `context` is given, by a blocking socket.

    Raises Unavailable, NotPermitted or ProtocolError.
    """
    try:
        connection = socket.create_connection(address, HANDSHAKE)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                connection = context.wrap_socket(connection)
            send_now(connection, Hello(hetsched.__version__, token, patience))
            answer = receive_now(connection, HANDSHAKE)
            if isinstance(answer, Refused):
                raise errors.from_record(answer.error)
            if not isinstance(answer, Hello):
                raise EOFError(f"answers with {type(answer).__name__}")
            return connection
        except BaseException:
            connection.close()
            raise
    except ssl.SSLError as error:
        raise errors.NotPermitted(f"{name}: TLS refused: {error.reason or error}") from None
    except (OSError, EOFError, msgspec.MsgspecError) as error:
        raise errors.Unavailable(f"{name}: {error}") from None


def bytes_of(array: Any) -> memoryview:
    return memoryview(array.reshape(-1).view("uint8"))


# ---- latency and bandwidth of the link to a host, and the difference of the clocks

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
        raise errors.Unavailable(f"{host}: {error}") from None
    finally:
        connection.close()
    latency, long = (median(seconds for seconds, *_ in times) for times in (empty, large))
    bandwidth = LARGE / max(long - latency, 1e-9)
    _, offset, answer = min(empty, key=lambda exchange: exchange[0])
    return LinkTimes(latency, bandwidth, offset, answer.about)


def _exchange(connection: socket.socket, size: int) -> tuple[float, float, Probed]:
    """Return (seconds, by which the other clock is ahead, answer)."""
    data = bytes(size)
    connection.settimeout(SECONDS)
    began, clock = time.perf_counter(), time.time()
    send_now(connection, Probe(size))
    connection.sendall(data)
    answer = receive_now(connection, SECONDS)
    while isinstance(answer, Beat):
        answer = receive_now(connection, SECONDS)
    seconds = time.perf_counter() - began
    if not isinstance(answer, Probed):
        raise EOFError(f"answers with {type(answer).__name__}")
    return seconds, answer.clock - (clock + seconds / 2), answer
