"""Hosts reached through a socket each: sends parts of arrays, and receives results in place."""

from __future__ import annotations

import contextlib
import queue
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import hetsched
from hetsched import errors
from hetsched.cluster.coordinator import Added, Done, Event, Failed, Lost, Share
from hetsched.hosts import channel
from hetsched.hosts.channel import PATIENCE, Channel, Layout, bytes_of, connect

HANDSHAKE = 10.0
"""Seconds for the connection, TLS and the first message."""


@dataclass
class ClusterSpec:
    """One job: its arrays here, and where its results go.

    `split` have a row a unit, `whole` are needed in full by every part. `paths`: array -> `.npy`
    file, for those that hosts may read themselves.
    """

    epoch: int
    workload: str
    params: Mapping[str, Any]
    options: Mapping[str, Any]
    load: int
    split: Mapping[str, np.ndarray]
    whole: Mapping[str, np.ndarray]
    paths: Mapping[str, Path]
    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    """Made when the first result comes, unless given."""
    targets: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The caller's own arrays, if results arrive elsewhere."""
    out_paths: Mapping[str, Path] = field(default_factory=dict)
    call: channel.Mapped | None = None
    block: Callable[[Any, int, int], Any] = lambda array, first, end: array[first:end]
    """Return the rows that a part needs of a split array."""

    def output(self, layout: Layout) -> np.ndarray:
        """Return the whole array to which a result's rows belong. Raises DataError."""
        shape = (self.load, *layout.shape[1:])
        given = self.outputs.get(layout.name)
        if given is None:  # first results may come from two hosts at once
            given = self.outputs.setdefault(layout.name, np.empty(shape, layout.dtype))
        if given.shape != shape or str(given.dtype) != layout.dtype:
            raise errors.DataError(
                f"out: {given.shape} {given.dtype}, but the result is {shape} {layout.dtype}"
            )
        return given


class _Link:
    """The connection to one host."""

    def __init__(self, name: str, hosts: TcpHosts, connection: socket.socket, token: str) -> None:
        self.name, self._hosts = name, hosts
        self.is_alive = False
        self.sees: dict[str, bool] = {}
        self.kept = -1
        """The epoch whose whole arrays have been sent."""
        self.answered = threading.Event()
        self.refusal: errors.HetschedError | None = None
        self.channel = Channel(connection, self, hosts.patience)
        self.channel.start()
        self.channel.send(channel.Hello(hetsched.__version__, token))

    def buffers(self, message: Any) -> Sequence[memoryview]:
        if not isinstance(message, channel.Done):
            return ()
        spec, found = self._hosts.spec, []
        for layout in message.results:
            if layout.shape[:1] != (message.count,):
                raise errors.DataError(f"{layout.shape} of {message.count} units")
            if spec is not None and spec.epoch == message.epoch:
                rows = spec.output(layout)[message.first : message.first + message.count]
            else:  # a job that has ended
                rows = np.empty(layout.shape, layout.dtype)
            found.append(bytes_of(rows))
        return found

    def take(self, message: Any) -> None:
        match message:
            case channel.Hello():
                self._hosts.add(self)
                self.answered.set()
            case channel.Refused(error):
                self.refusal = errors.from_record(error)
                self.answered.set()
            case channel.Seen(path, is_same):
                self.sees[path] = is_same
                self.answered.set()
            case channel.Done(epoch, first, count, seconds):
                self._hosts.put(Done(self.name, Share(epoch, first, count), seconds))
            case channel.Failed(epoch, first, count, record):
                failure = errors.from_record(record)
                failure.add_note(f"on {self.name}, units {first} to {first + count - 1}")
                self._hosts.put(Failed(self.name, Share(epoch, first, count), failure))

    def lost(self, reason: str) -> None:
        self._hosts.drop(self, reason)
        self.refusal = self.refusal or errors.Unavailable(f"{self.name}: {reason}")
        self.answered.set()


class TcpHosts:
    """Hosts that `join` connected to. One job at a time: `spec`."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self.patience = patience
        self.spec: ClusterSpec | None = None
        self._links: dict[str, _Link] = {}
        self._changed = threading.Condition()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def put(self, event: Event) -> None:
        self._events.put(event)

    def begin(self, spec: ClusterSpec) -> None:
        """Make `spec` the present job; what was reported before doesn't concern it."""
        with self._changed, contextlib.suppress(queue.Empty):
            self.spec = spec
            while True:
                self._events.get_nowait()

    def add(self, link: _Link) -> None:
        with self._changed:
            link.is_alive = True
            self._links[link.name] = link
            self.put(Added(link.name))
            self._changed.notify_all()

    def drop(self, link: _Link, reason: str) -> None:
        with self._changed:
            if link.is_alive:
                link.is_alive = False
                self.put(Lost(link.name, reason))

    def join(
        self, name: str, address: tuple[str, int], token: str, context: ssl.SSLContext | None
    ) -> None:
        """Connect to a host. Raises Unavailable, NotPermitted or ProtocolError."""
        try:
            connection = connect(address, context, HANDSHAKE)
        except ssl.SSLError as error:
            raise errors.NotPermitted(f"{name}: TLS refused: {error.reason}") from None
        except OSError as error:
            raise errors.Unavailable(f"{name}: {error}") from None
        link = _Link(name, self, connection, token)
        if not link.answered.wait(HANDSHAKE) or not link.is_alive:
            link.channel.close()
            raise link.refusal or errors.Unavailable(f"{name}: no answer for {HANDSHAKE:g} s")

    def wait(self, count: int, seconds: float) -> bool:
        """Wait until there are `count` hosts; return whether there are."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.hosts()) >= count, seconds)

    def hosts(self) -> Sequence[str]:
        return [name for name, link in self._links.copy().items() if link.is_alive]

    def now(self) -> float:
        return time.monotonic()

    def event(self, seconds: float) -> Event | None:
        try:
            return self._events.get(timeout=seconds)
        except queue.Empty:
            return None

    def send(self, host: str, share: Share) -> None:
        link, spec = self._links[host], self.spec
        assert spec is not None
        if spec.whole and link.kept != spec.epoch:
            link.kept = spec.epoch
            whole = {name: np.ascontiguousarray(a) for name, a in spec.whole.items()}
            layouts = tuple(Layout(n, str(a.dtype), a.shape) for n, a in whole.items())
            link.channel.send(
                channel.Keep(spec.epoch, layouts), [bytes_of(a) for a in whole.values()]
            )
        end = share.first + share.count
        arrays, sent = [], []
        for name, array in spec.split.items():
            path = spec.paths.get(name)
            if path is not None and link.sees.get(str(path)):
                shape = (share.count, *array.shape[1:])
                arrays.append(Layout(name, str(array.dtype), shape, str(path), share.first))
            else:
                rows = np.ascontiguousarray(spec.block(array, share.first, end))
                arrays.append(Layout(name, str(rows.dtype), rows.shape))
                sent.append(bytes_of(rows))
        out = {n: str(path) for n, path in spec.out_paths.items() if link.sees.get(str(path))}
        part = channel.Part(
            share.epoch, share.first, share.count, spec.workload, dict(spec.params),
            dict(spec.options), tuple(arrays), out, spec.call,
        )  # fmt: skip
        link.channel.send(part, sent)

    def forget(self) -> None:
        """End the present job: hosts cancel what is left of it."""
        spec, self.spec = self.spec, None
        if spec is not None:
            for link in list(self._links.values()):
                if link.is_alive:
                    link.channel.send(channel.Forget(spec.epoch))

    def find_shared(self, paths: Sequence[Path]) -> None:
        """Find out which hosts see the folders of `paths`, by a token in a file there."""
        for folder in {path.parent for path in paths}:
            text = secrets.token_hex(16)
            token = folder / f".hetsched-{text[:16]}"
            try:
                token.write_text(text, "utf-8")
            except OSError:  # may be read only: then its files are sent
                continue
            try:
                links = [link for link in list(self._links.values()) if link.is_alive]
                for link in links:
                    link.answered.clear()
                    link.channel.send(channel.See(str(token), text))
                for link in links:
                    link.answered.wait(self.patience)
                    seen = link.sees.pop(str(token), False)
                    link.sees |= {str(p): seen for p in paths if p.parent == folder}
            finally:
                with contextlib.suppress(OSError):
                    token.unlink()

    def close(self) -> None:
        for link in list(self._links.values()):
            link.channel.close()
