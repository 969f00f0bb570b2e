"""Hosts reached through a socket each: sends parts of arrays, and receives results."""

from __future__ import annotations

import contextlib
import functools
import itertools
import queue
import ssl
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hetsched import errors
from hetsched.cluster.coordinator import Added, Done, Failed, Lost, Share
from hetsched.hosts import channel
from hetsched.hosts.grid_messages import Layout, Results, layouts
from hetsched.hosts.shared_files import folder_of, read_rows, token_in

Rows = Mapping[str, np.ndarray | Layout]
"""Rows of results by name, a row a unit; a layout stands for those that are in a file."""


@dataclass
class ClusterSpec:
    """One job: what is said of it in each part, its arrays here, and what takes its results.

    `split` have a row a unit, `whole` are needed in full by every part. `paths`: array -> file,
    for those that hosts may read themselves; `out`: result -> file that they may write to, once
    there is one; these are in `folders`.
    """

    part: channel.Part
    load: int
    split: Mapping[str, np.ndarray]
    whole: Mapping[str, np.ndarray]
    store: Callable[[int, int, Rows], None]
    """(first, count, results of these units) in the thread that runs the job; it may raise."""
    paths: Mapping[str, str] = field(default_factory=dict)
    out: Mapping[str, channel.Place] = field(default_factory=dict)
    folders: Collection[Path] = ()
    granule: int = 1
    """Units that are computed together."""
    block: Callable[[Any, int, int], Any] = lambda array, first, end: array[first:end]
    """Return the rows that a part needs of a split array."""

    @property
    def kind(self) -> str:
        """What jobs have in common whose speeds tell each other's."""
        return f"{self.part.workload} {sorted(self.part.params.items())}" + "".join(
            f" {n}{a.shape[1:]}{a.dtype}" for n, a in sorted(self.split.items())
        )

    @property
    def unit_bytes(self) -> int:
        """What a unit takes on the way to a host that sees no file."""
        return sum(array.nbytes for array in self.split.values()) // self.load


class Link(channel.Receiver):
    """The connection to one host, which listens at `place`: interface, port and token."""

    def __init__(
        self, name: str, hosts: TcpHosts, connection: Any, place: tuple[str, int, str]
    ) -> None:
        self.name, self._hosts, self.place = name, hosts, place
        self.kept = -1
        """The epoch whose whole arrays have been sent."""
        self.answer: Any = None
        """The last one, to a question of `TcpHosts.ask`."""
        self._arriving: dict[str, np.ndarray | Layout] = {}
        self.channel = channel.Channel(connection, self, hosts.patience, answers=True)

    def buffers(self, message: Any) -> Sequence[memoryview]:
        # Results go to their place once they are whole: the job may end meanwhile, or the host.
        results = message.results if isinstance(message, channel.Done | Results) else ()
        self._arriving = {x.name: x if x.path else np.empty(x.shape, x.dtype) for x in results}
        return [channel.bytes_of(array) for array in self._sent()]

    def _sent(self) -> list[np.ndarray]:
        return [rows for rows in self._arriving.values() if isinstance(rows, np.ndarray)]

    def take(self, message: Any) -> None:
        grid = self._hosts.grid
        match message:
            case channel.Seen() | channel.Measured() | channel.Status():
                with self._hosts._changed:
                    self.answer = message
                    self._hosts._changed.notify_all()
            case channel.Done(epoch, first, count, seconds):
                done = Done(self.name, Share(epoch, first, count), seconds)
                self._hosts.put(done, self._arriving)
            case channel.Failed(epoch, first, count, record):
                text = " ".join(record.message.splitlines())  # of a plug-in's own exception
                failure = errors.from_record(msgspec.structs.replace(record, message=text))
                units = f", units {first} to {first + count - 1}" if count else ""
                failure.add_note(f"on {self.name}{units}")
                self._hosts.put(Failed(self.name, Share(epoch, first, count), failure))
            case _ if grid is not None:
                grid.take(self, message, self._sent())

    def give_up(self, reason: str) -> None:
        """Count the host as lost."""
        self._hosts.drop(self, reason)
        self.channel.close()

    def lost(self, reason: str) -> None:
        self._hosts.drop(self, reason)


class TcpHosts:
    """Hosts that `join` connected to. One job at a time: `spec`."""

    def __init__(self, patience: float = channel.PATIENCE) -> None:
        self.patience = patience
        self.spec: ClusterSpec | None = None
        self.grid: Any = None
        """The present job's `GridHosts`, if it's on a grid."""
        self._links: dict[str, Link] = {}
        self._seen: dict[str, set[Path]] = {}
        """Host -> folders of the present job's files that it sees."""
        self.context: ssl.SSLContext | None = None
        """Of the connections to hosts."""
        self._asking, self._numbers = threading.Lock(), itertools.count(1)
        self._changed = threading.Condition()
        self._has_ended = threading.Event()
        self._events: queue.SimpleQueue[tuple[Any, Rows]] = queue.SimpleQueue()

    def put(self, event: Any, rows: Rows | None = None) -> None:
        self._events.put((event, rows or {}))

    def begin(self, spec: ClusterSpec | None, grid: Any = None) -> None:
        """Begin a job; what was reported before doesn't concern it."""
        self._seen = {}
        shared = {*map(folder_of, spec.paths.values()), *spec.folders} if spec is not None else ()
        for folder in shared:
            with contextlib.suppress(OSError), token_in(folder) as (path, text):
                # Else it is read only: its files are sent.
                question = functools.partial(channel.See, path=path, text=text)
                answers = self.ask(dict.fromkeys(self.hosts(), question), self.patience)
                for host, answer in answers.items():
                    if answer.is_same:
                        self._seen.setdefault(host, set()).add(folder)
        with self._changed, contextlib.suppress(queue.Empty):
            self.spec, self.grid = spec, grid
            while True:
                self._events.get_nowait()

    def drop(self, link: Link, reason: str) -> None:
        with self._changed:
            if self._links.get(link.name) is link:
                del self._links[link.name]
                self._seen.pop(link.name, None)
                self.put(Lost(link.name, reason))
                self._changed.notify_all()

    def ask(self, questions: Mapping[str, Callable[[int], Any]], seconds: float) -> dict[str, Any]:
        """Return the answers of hosts that give one in time, to messages made of a number."""
        with self._asking:
            number = next(self._numbers)
            with self._changed:
                links = [self._links[host] for host in questions if host in self._links]
                for link in links:
                    link.channel.send(questions[link.name](number))

                def are_answered() -> bool:
                    return all(
                        (link.answer is not None and link.answer.number == number)
                        or self._links.get(link.name) is not link
                        for link in links
                    )

                self._changed.wait_for(are_answered, seconds)
                answers = {link.name: link.answer for link in links}
        return {h: a for h, a in answers.items() if a is not None and a.number == number}

    def join(
        self, machine: str, address: tuple[str, int], token: str, context: ssl.SSLContext | None
    ) -> Link:
        """Connect to a host; its name is that of its machine, numbered if this has several.

        Raises as `greet`.
        """
        connection = channel.greet(machine, address, token, context, self.patience)
        with self._changed:
            if self._has_ended.is_set():
                connection.close()
                raise errors.Unavailable(f"{machine}: the client is closed")
            numbered = (f"{machine}#{i}" for i in itertools.count(2))
            names = itertools.chain([machine], numbered)
            name = next(name for name in names if name not in self._links)
            link = Link(name, self, connection, (*address, token))
            self._links[name] = link
            self.context = context
            self.put(Added(name))
            link.channel.start()
            self._changed.notify_all()
        return link

    def refusals(self) -> list[errors.HetschedError]:
        return []

    def wait(self, count: int, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: len(self._links) >= count, seconds)

    def links(self) -> dict[str, Link]:
        with self._changed:
            return dict(self._links)

    def hosts(self) -> Sequence[str]:
        with self._changed:
            return list(self._links)

    def now(self) -> float:
        return time.monotonic()

    def event(self, seconds: float) -> Any:
        try:
            event, rows = self._events.get(timeout=seconds)
        except queue.Empty:
            return None
        spec = self.spec
        if isinstance(event, Done) and spec is not None and event.share.epoch == spec.part.epoch:
            spec.store(event.share.first, event.share.count, rows)
        return event

    def send(self, host: str, share: Share) -> None:
        link, spec = self._links.get(host), self.spec
        assert spec is not None
        if link is None:
            return
        if spec.whole and link.kept != share.epoch:
            link.kept = share.epoch
            whole = {name: np.ascontiguousarray(a) for name, a in spec.whole.items()}
            keep = channel.Keep(share.epoch, layouts(whole))
            link.channel.send(keep, [channel.bytes_of(a) for a in whole.values()])
        end, seen = share.first + share.count, self._seen.get(host, set())
        arrays, sent = [], []
        for name, array in spec.split.items():
            path = spec.paths.get(name)
            if path is None:
                rows = np.ascontiguousarray(spec.block(array, share.first, end))
                layout = Layout(name, str(rows.dtype), rows.shape)
            else:
                shape = (share.count, *array.shape[1:])
                layout = Layout(name, str(array.dtype), shape, path, share.first)
                if folder_of(path) not in seen:
                    rows = read_rows(layout)
                    layout = Layout(name, layout.dtype, shape)
            arrays.append(layout)
            if not layout.path:
                sent.append(channel.bytes_of(rows))
        out = {name: place for name, place in spec.out.items() if folder_of(place.path) in seen}
        part = msgspec.structs.replace(
            spec.part, first=share.first, count=share.count, arrays=tuple(arrays), out=out
        )
        link.channel.send(part, sent)

    def end(self, *, is_done: bool) -> None:
        """End the present job: hosts cancel what is left of it."""
        with self._changed:
            spec, self.spec = self.spec, None
            grid, self.grid = self.grid, None  # or its arrays would stay as long as the client
            links = dict(self._links)
        if grid is not None:
            grid.close(links, keeps=not is_done)
        if spec is not None:
            for link in links.values():
                link.channel.send(channel.Forget(spec.part.epoch))

    def close(self) -> None:
        self._has_ended.set()
        with self._changed:
            links = list(self._links.values())
        for link in links:
            link.channel.close()
