"""What a host runs: `python -m hetsched.hosts.host`, a child of the Dask worker's plug-in.

It reads one line of JSON, `Settings`, listens on a socket of its own, prints its port, and serves
coordinators until its standard input ends, as its parent does. Parts are jobs of the host's own
daemon, or of an engine in this process where none runs.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import hetsched
from hetsched import errors
from hetsched.client.client import JobSubmitter
from hetsched.client.job import Job
from hetsched.cluster.coordinator import IN_FLIGHT
from hetsched.functions.named import find_function
from hetsched.hosts import channel
from hetsched.hosts.channel import Channel, Layout, bytes_of

HANDSHAKE = 10.0
"""Seconds for TLS and the first message."""
log = logging.getLogger(__name__)


class Settings(msgspec.Struct, frozen=True):
    """How to listen; the TLS files are Dask's, as paths or texts, all or none."""

    token: str
    interface: str = "127.0.0.1"
    ca: str = ""
    certificate: str = ""
    key: str = ""
    endpoint: str | None = None
    embedded: bool = False
    """Run an engine in this process even if the host has a daemon."""
    config: str | None = None
    """Of the engine in this process."""


class Session:
    """One coordinator's connection: its parts, as jobs, and its arrays."""

    def __init__(self, connection: socket.socket, token: str, jobs: JobSubmitter) -> None:
        self._token, self._submitter = token, jobs
        self._is_known = False
        self._arriving: dict[str, np.ndarray] = {}
        self._kept: dict[int, dict[str, np.ndarray]] = {}
        self._running: dict[Job, int] = {}
        self._forgotten = -1
        """Parts of epochs up to this one aren't begun any more."""
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(IN_FLIGHT, "hetsched-part")
        self._channel = Channel(connection, self)
        self._channel.start()

    def buffers(self, message: Any) -> Sequence[memoryview]:
        if not self._is_known and not isinstance(message, channel.Hello):
            raise errors.NotPermitted("no hello")
        self._arriving = {}
        if isinstance(message, channel.Keep | channel.Part):
            for layout in message.arrays:
                if not layout.path:
                    array = self._submitter.empty(layout.shape, layout.dtype)
                    self._arriving[layout.name] = array
        return [bytes_of(array) for array in self._arriving.values()]

    def take(self, message: Any) -> None:
        match message:
            case channel.Hello(version, token):
                self._greet(version, token)
            case channel.See(path, text):
                self._channel.send(channel.Seen(path, _sees(path, text)))
            case channel.Keep(epoch):
                self._kept[epoch] = self._arriving
            case channel.Part():
                self._pool.submit(self._compute, message, self._arriving)
            case channel.Forget(epoch):
                self._forget(epoch)

    def lost(self, reason: str) -> None:
        self._forget(1 << 62)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _greet(self, version: str, token: str) -> None:
        error: errors.HetschedError | None = None
        if not hmac.compare_digest(token, self._token):
            error = errors.NotPermitted("this host doesn't know you: wrong token")
        elif version != hetsched.__version__:
            error = errors.ProtocolError(
                f"this host runs hetsched {hetsched.__version__}, you run {version}"
            )
        if error is not None:
            self._channel.send(channel.Refused(errors.to_record(error)))
            self._channel.close()
            return
        self._is_known = True
        self._channel.send(channel.Hello(hetsched.__version__))

    def _forget(self, epoch: int) -> None:
        with self._lock:
            self._forgotten = max(self._forgotten, epoch)
            jobs = [job for job, of in self._running.items() if of <= epoch]
        for job in jobs:
            job.cancel()
        for of in [of for of in self._kept if of <= epoch]:
            del self._kept[of]

    def _compute(self, part: channel.Part, arrived: dict[str, np.ndarray]) -> None:
        answer: Any
        results: dict[str, np.ndarray] = {}
        try:
            results, seconds = self._result(part, arrived)
            for name, path in part.out.items():
                rows = np.load(path, mmap_mode="r+", allow_pickle=False)[
                    part.first : part.first + part.count
                ]
                rows[...] = results.pop(name)
                rows.base.flush()
            layouts = tuple(Layout(n, str(a.dtype), a.shape) for n, a in results.items())
            answer = channel.Done(part.epoch, part.first, part.count, seconds, layouts)
        except CancelledError:
            return
        except BaseException as error:
            results = {}
            record = errors.to_record(error)
            answer = channel.Failed(part.epoch, part.first, part.count, record)
        self._channel.send(answer, [bytes_of(array) for array in results.values()])

    def _result(
        self, part: channel.Part, arrived: dict[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], float]:
        arrays = {**self._kept.get(part.epoch, {}), **arrived}
        for layout in part.arrays:
            if layout.path:
                whole = np.load(layout.path, mmap_mode="r", allow_pickle=False)
                if str(whole.dtype) != layout.dtype or whole.shape[1:] != layout.shape[1:]:
                    raise errors.DataError(f"{layout.path} isn't the coordinator's file")
                arrays[layout.name] = whole[layout.first : layout.first + layout.shape[0]]
        if part.call is not None:
            return self._mapped(part, part.call, arrays)
        with self._lock:
            if part.epoch <= self._forgotten:
                raise CancelledError
            job = self._submitter.submit(part.workload, arrays, **part.options, **part.params)
            self._running[job] = part.epoch
        try:
            result = job.result()
        finally:
            with self._lock:
                del self._running[job]
        report = job.report
        named = result if isinstance(result, dict) else {"": result}
        results = {name: np.ascontiguousarray(array) for name, array in named.items()}
        return results, (report.seconds if report else None) or 0.0

    def _mapped(
        self, part: channel.Part, call: channel.Mapped, arrays: dict[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], float]:
        """Map a function over blocks; what lies beyond their ends is cut off: any mode will do."""
        began = time.monotonic()
        kept = self._kept.get(part.epoch, {})
        names = sorted(arrays, key=int)
        blocks = [arrays[n] if n in kept else np.moveaxis(arrays[n], 0, call.axis) for n in names]
        whole = [i for i, name in enumerate(names) if name in kept]
        result = hetsched.map(
            find_function(part.workload), *blocks, axis=call.axis, overlap=call.overlap,
            mode="nearest", dtype=call.dtype, broadcast=whole, **part.params,
        )  # fmt: skip
        several = result if isinstance(result, tuple) else (result,)
        inner = slice(call.overlap, call.overlap + part.count)
        rows = [np.ascontiguousarray(np.moveaxis(y, call.axis, 0)[inner]) for y in several]
        key = "" if not isinstance(result, tuple) else "y"
        named = {f"{key}{i}" if key else "": y for i, y in enumerate(rows)}
        return named, time.monotonic() - began


def _sees(path: str, text: str) -> bool:
    try:
        with Path(path).open("rb") as file:
            return file.read(len(text) + 1) == text.encode()
    except OSError:
        return False


def _context(settings: Settings) -> ssl.SSLContext | None:
    if not settings.ca:
        return None
    import distributed.security

    security: Any = distributed.security.Security(
        tls_ca_file=settings.ca,
        tls_worker_cert=settings.certificate,
        tls_worker_key=settings.key,
        require_encryption=True,
    )
    context: ssl.SSLContext = security.get_listen_args("worker")["ssl_context"]
    return context


def _submitter(settings: Settings) -> JobSubmitter:
    if not settings.embedded:
        with contextlib.suppress(errors.Unavailable):
            return hetsched.Client(settings.endpoint)
    return hetsched.Local(settings.config)


def _accept(
    connection: socket.socket, context: ssl.SSLContext | None, token: str, jobs: JobSubmitter
) -> None:
    try:
        connection.settimeout(HANDSHAKE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            connection = context.wrap_socket(connection, server_side=True)
        Session(connection, token, jobs)
    except OSError as error:
        log.warning("a connection was refused: %s", error)
        connection.close()


def main() -> int:
    """Serve until standard input ends."""
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=Settings)
    context, jobs = _context(settings), _submitter(settings)
    listener = socket.create_server((settings.interface, 0), backlog=16)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()

    def wait_for_parent() -> None:
        with contextlib.suppress(OSError):
            sys.stdin.buffer.read()
        listener.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=wait_for_parent, daemon=True).start()
    with contextlib.closing(jobs):  # type: ignore[type-var]
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return 0
            threading.Thread(
                target=_accept, args=(connection, context, settings.token, jobs), daemon=True
            ).start()


if __name__ == "__main__":
    sys.exit(main())
