"""What a host runs: `python -m hetsched.hosts.host`, a child of the Dask worker's plug-in.

It reads one line of JSON, `Settings`, listens on a socket of its own, prints its port, and serves
coordinators until its standard input ends, as its parent does. Parts are jobs of the host's own
daemon, or of an engine in this process where none runs.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import platform
import select
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

import hetsched
from hetsched import errors
from hetsched.cluster import orders
from hetsched.functions.function import find_function
from hetsched.functions.map import make_call
from hetsched.functions.named import function_error
from hetsched.functions.run import run_call
from hetsched.hosts import channel
from hetsched.hosts.grid_messages import Cells, Close, Copy, Open, layouts
from hetsched.hosts.grid_run import GridRun, Runs
from hetsched.hosts.shared_files import RowFile, read_rows, sees
from hetsched.hosts.worker import Settings

PARTS = 2
"""Of one coordinator, computed at once: it sends no more."""
GREETERS = 16
"""Connections of which it isn't known yet whether they are a coordinator's. A later one ends the
oldest, so that those that say nothing lock nobody out."""
RETRY = 0.1
"""Seconds before the next connection is accepted after one couldn't be."""
GRACE = 10.0
"""Seconds for what runs to end."""
log = logging.getLogger(__name__)


class Host:
    """What all coordinators share: whom it lets in, what computes, what has been done."""

    def __init__(self, settings: Settings) -> None:
        self._token = settings.token
        self._context, self.outgoing = _contexts(settings)
        self.jobs, self.grids = _submitter(), Runs()
        self._lock = threading.Lock()
        self._greeters = ThreadPoolExecutor(GREETERS, "hetsched-greeter")
        self._strangers: dict[socket.socket, None] = {}
        """The oldest is the first."""
        self._doing: list[str] = []
        self._units, self._busy = 0, 0.0
        self.is_ending = False

    def accept(self, connection: socket.socket) -> None:
        """Let a coordinator, or a host that measures, in, on another thread. Raises OSError."""
        connection.settimeout(channel.HANDSHAKE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is not None:
            connection = self._context.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        with self._lock:
            if len(self._strangers) == GREETERS:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                with contextlib.suppress(OSError):  # its thread wakes up, and closes it
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)
            self._strangers[connection] = None
        self._greeters.submit(self._greet, connection)

    def _greet(self, connection: socket.socket) -> None:
        try:
            if isinstance(connection, ssl.SSLSocket):
                connection.do_handshake()
            hello = channel.receive_now(connection, channel.HANDSHAKE)
            refusal = self._refusal(hello)
            with self._lock:
                self._strangers.pop(connection, None)
            if refusal is None:
                channel.send_now(connection, channel.Hello(hetsched.__version__))
                Session(connection, hello.patience, self)
                return
            channel.send_now(connection, channel.Refused(errors.to_record(refusal)))
            log.warning("a connection was refused: %s", refusal)
        except Exception as error:  # a stranger may send anything
            log.warning("a connection was refused: %s", error)
        with self._lock:
            self._strangers.pop(connection, None)
            connection.close()

    def _refusal(self, hello: Any) -> errors.HetschedError | None:
        known = self._token.encode()
        is_hello = isinstance(hello, channel.Hello)
        if not is_hello or not hmac.compare_digest(hello.token.encode(), known):
            return errors.NotPermitted("this host doesn't know you: wrong token")
        if hello.version != hetsched.__version__:
            return errors.ProtocolError(
                f"this host runs hetsched {hetsched.__version__}, you run {hello.version}"
            )
        return None

    def about(self) -> dict[str, str]:
        tls = "TLS" if self._context is not None else "none"
        versions = {"python": platform.python_version(), "numpy": np.__version__}
        return {"hetsched": hetsched.__version__, **versions, "encryption": tls}

    @contextlib.contextmanager
    def doing(self, what: str, units: int) -> Iterator[None]:
        """Count units that are computed within this."""
        began = time.monotonic()
        with self._lock:
            self._doing.append(what)
        try:
            yield
        finally:
            with self._lock:
                self._doing.remove(what)
        with self._lock:
            self._units += units
            self._busy += time.monotonic() - began

    def status(self, number: int) -> channel.Status:
        with self._lock:
            doing = tuple(
                dict.fromkeys([*self._doing, *(run.workload for run in list(self.grids))])
            )
            return channel.Status(number, doing, self._units, self._busy, os.getloadavg()[0])


class Session(channel.Receiver):
    """One coordinator's connection: its parts, as jobs, and its arrays."""

    def __init__(self, connection: socket.socket, patience: float, host: Host) -> None:
        self._host = host
        self._grids: dict[int, GridRun] = {}
        """Epoch -> this host's part of a job on a grid."""
        self._arriving: list[tuple[str, np.ndarray]] = []
        self._kept: dict[int, dict[str, np.ndarray]] = {}
        self._running: list[tuple[int, Callable[[], object]]] = []
        """Epoch, and what stops it."""
        self._forgotten = -1
        """Parts of epochs up to this one aren't begun any more."""
        self._lock = threading.Lock()
        self._answering: threading.Thread | None = None
        self._pool = ThreadPoolExecutor(PARTS, "hetsched-part")
        self._channel = channel.Channel(connection, self, patience)
        self._channel.start()

    def buffers(self, message: Any) -> Sequence[memoryview]:
        if isinstance(message, channel.Probe):
            return [memoryview(bytearray(message.size))]
        arrays = getattr(message, "arrays", ())
        self._arriving = [(x.name, np.empty(x.shape, x.dtype)) for x in arrays if not x.path]
        return [channel.bytes_of(array) for _, array in self._arriving]

    def take(self, message: Any) -> None:
        host = self._host
        match message:
            case channel.Probe():
                self._channel.send(channel.Probed(time.time(), host.about()))
            case channel.Ask(number):
                self._channel.send(host.status(number))
            case channel.See() | channel.Measure():
                # In a thread: a folder on a server that is away blocks whoever looks into it.
                if self._answering is None or not self._answering.is_alive():
                    self._answering = threading.Thread(
                        target=self._answer, args=(message,), daemon=True
                    )
                    self._answering.start()
            case channel.Keep(epoch):
                self._kept[epoch] = dict(self._arriving)
            case channel.Part() | Open() if host.is_ending:
                raise errors.TryAgain("the host is stopping")
            case channel.Part():
                self._pool.submit(self._compute, message, dict(self._arriving))
            case channel.Forget(epoch):
                self._forget(epoch)
            case Open(epoch):
                if epoch in self._grids:  # it lost this host meanwhile, and found it again
                    self._grids.pop(epoch).close(keeps=True)
                self._grids[epoch] = GridRun(
                    message, host.jobs, self._channel, host.outgoing, host.grids
                )
            case Close(epoch, keeps) if epoch in self._grids:
                self._grids.pop(epoch).close(keeps=keeps)
            case Cells() | Copy():
                host.grids.take(message, [array for _, array in self._arriving])
            case orders.Cut() | orders.Advance() | orders.Collect() if (
                message.epoch in self._grids
            ):
                self._grids[message.epoch].order(message)

    def lost(self, reason: str) -> None:
        log.info("a coordinator has gone: %s", reason)
        self._forget(1 << 62)
        for run in self._grids.values():
            run.close(keeps=True)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, question: channel.See | channel.Measure) -> None:
        number = question.number
        answer: channel.Seen | channel.Measured
        if isinstance(question, channel.See):
            answer = channel.Seen(number, sees(question.path, question.text))
        else:
            try:
                link = channel.measure(question.host, question.place, self._host.outgoing)
                answer = channel.Measured(number, link)
            except errors.HetschedError as error:
                answer = channel.Measured(number, error=errors.to_record(error))
        self._channel.send(answer)

    def _forget(self, epoch: int) -> None:
        with self._lock:
            self._forgotten = max(self._forgotten, epoch)
            stops = [stop for of, stop in self._running if of <= epoch]
        for stop in stops:
            stop()
        for of in [of for of in self._kept if of <= epoch]:
            del self._kept[of]

    @contextlib.contextmanager
    def _running_part(self, epoch: int, stop: Callable[[], object]) -> Iterator[None]:
        """Within this, `_forget` stops what runs, at once if it came before."""
        entry = (epoch, stop)
        with self._lock:
            self._running.append(entry)
            is_forgotten = epoch <= self._forgotten
        if is_forgotten:
            stop()
        try:
            yield
        finally:
            with self._lock:
                self._running.remove(entry)

    def _compute(self, part: channel.Part, arrived: dict[str, np.ndarray]) -> None:
        answer: Any
        results: dict[str, np.ndarray] = {}
        if part.epoch <= self._forgotten:
            return
        try:
            with contextlib.ExitStack() as closers:
                files: dict[str, RowFile] = {}
                for name, place in part.out.items():
                    with contextlib.suppress(errors.IOFailure):
                        files[name] = closers.enter_context(contextlib.closing(RowFile(place)))
                with self._host.doing(part.workload, part.count):
                    results, seconds = self._result(part, arrived)
                found = {layout.name: layout for layout in layouts(results)}
                for name in files.keys() & results.keys():
                    rows, file = results[name], files[name]
                    with contextlib.suppress(errors.IOFailure):  # what isn't written is sent
                        if file.fits(rows):
                            file.write(part.first, rows)
                            file.close()
                            del results[name]
                            found[name] = replace(found[name], path=part.out[name].path)
            answer = channel.Done(
                part.epoch, part.first, part.count, seconds, tuple(found.values())
            )
        except BaseException as error:
            results = {}
            record = errors.to_record(error)
            # A daemon that stops, or this process: others compute it.
            if self._host.is_ending or isinstance(error, errors.TryAgain):
                self._channel.send(channel.Refused(record))
                self._channel.close()
                return
            answer = channel.Failed(part.epoch, part.first, part.count, record)
        if part.epoch > self._forgotten:
            self._channel.send(answer, [channel.bytes_of(array) for array in results.values()])

    def _result(
        self, part: channel.Part, arrived: dict[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], float]:
        arrays = {**self._kept.get(part.epoch, {}), **arrived}
        for layout in part.arrays:
            if layout.path:
                arrays[layout.name] = read_rows(layout)
        if part.call is not None:
            return self._mapped(part, part.call, arrays)
        job = self._host.jobs.submit(part.workload, arrays, **part.options, **part.params)
        with self._running_part(part.epoch, job.cancel):
            result = job.result()
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
        f = find_function(part.workload)
        with contextlib.ExitStack() as stack:
            run = make_call(
                f, blocks, part.params, stack,
                axis=call.axis, overlap=call.overlap, mode="nearest", broadcast=whole,
                dtype=call.dtype,
            )  # fmt: skip

            def stop() -> None:
                run.is_cancelled = True

            try:
                with self._running_part(part.epoch, stop):
                    result = run_call(run, **part.options)
            except Exception as error:
                raise function_error(part.workload, error) from error
        several = result if isinstance(result, tuple) else (result,)
        inner = slice(call.overlap, call.overlap + part.count)
        rows = [np.ascontiguousarray(np.moveaxis(y, call.axis, 0)[inner]) for y in several]
        names = [f"y{i}" for i in range(len(rows))] if isinstance(result, tuple) else [""]
        return dict(zip(names, rows, strict=True)), time.monotonic() - began


def _contexts(settings: Settings) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """Return those of connections to this host, and from it to others."""
    if not settings.ca:
        return None, None
    import distributed.security

    security: Any = distributed.security.Security(
        tls_ca_file=settings.ca,
        tls_worker_cert=settings.certificate,
        tls_worker_key=settings.key,
        require_encryption=True,
    )
    incoming, outgoing = security.get_listen_args("worker"), security.get_connection_args("worker")
    return incoming["ssl_context"], outgoing["ssl_context"]


def _submitter() -> hetsched.Client | hetsched.Local:
    with contextlib.suppress(errors.Unavailable):
        return hetsched.Client()
    return hetsched.Local()


def _accept_all(listener: socket.socket, host: Host) -> None:
    """Accept connections until standard input ends."""
    poll = select.poll()
    poll.register(sys.stdin, select.POLLIN)
    poll.register(listener, select.POLLIN)
    while not any(fd == sys.stdin.fileno() for fd, _ in poll.poll()):
        try:
            host.accept(listener.accept()[0])
        except OSError as error:  # such as no descriptors left, or whoever called has gone
            log.warning("a connection was lost: %s", error)
            time.sleep(RETRY)


def _tell_worker(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # it has gone meanwhile
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def main() -> int:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, and ends this, too
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=Settings)
    try:
        host = Host(settings)
        listener = socket.create_server((settings.interface, 0), backlog=16)
    except (errors.HetschedError, OSError) as error:
        _tell_worker(" ".join(str(error).split()))
        return errors.to_record(error).code
    _tell_worker(str(listener.getsockname()[1]))
    _accept_all(listener, host)
    # A function may never return, and no thread that runs one can be ended.
    late = threading.Timer(GRACE, os._exit, (1,))
    late.daemon = True
    late.start()
    host.is_ending = host.grids.is_ending = True
    host.jobs.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
