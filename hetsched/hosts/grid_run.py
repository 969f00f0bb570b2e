"""A host's part of a grid: its rectangles, advanced by jobs of its own engine, and their frames.

A rectangle has its arrays with the frame around it, and one job for all steps up to the next cut.
After each sweep the job is held, until the cells of other rectangles have come into the frame.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from hetsched import errors
from hetsched.client.client import JobSubmitter
from hetsched.client.job import Job
from hetsched.cluster import orders
from hetsched.cluster.regions import Box, Held, Transfer, cut, shape_with, transfers
from hetsched.hosts import channel
from hetsched.hosts.channel import Channel, bytes_of, greet
from hetsched.hosts.checkpoints import Checkpoints, Unreadable
from hetsched.hosts.grid_messages import Cells, Copy, Open, Results, layouts

LOOKING = 20.0
"""Seconds to find earlier checkpoints; then a host takes part without them."""
READING = 300.0
"""Seconds to read a checkpoint; then it counts as damaged."""
log = logging.getLogger(__name__)

Parcels = dict[tuple[int, str], list[Transfer]]
Place = tuple[str, int, str]
"""Interface, port and token of a host."""


class _Outdated(Exception):
    """Something else has been ordered meanwhile."""


class Rectangle:
    """`box` of the grid and a frame: views of `arrays`, each with two axes of the grid."""

    def __init__(self, box: Box, framed: Box, axes: Mapping[str, tuple[int, int]]) -> None:
        self.box, self.framed, self._axes = box, framed, axes
        self.arrays: dict[str, np.ndarray] = {}

    def view(self, name: str, part: Box) -> np.ndarray:
        return cut(
            self.arrays[name], self._axes[name], part.moved(-self.framed.top, -self.framed.left)
        )


class GridRun:
    """One job's part on this host, in a thread of its own up to `close`.

    `coordinator` is the channel to it; `context` is for those to other hosts; `runs` are all of
    this host.
    """

    def __init__(
        self,
        opening: Open,
        submitter: JobSubmitter,
        coordinator: Channel,
        context: ssl.SSLContext | None,
        runs: Runs,
    ) -> None:
        self.job, self.workload = opening.job, opening.workload
        self._job, self._submitter, self._tell = opening, submitter, coordinator.send
        self._context, self._patience, self._runs = context, coordinator.patience, runs
        self._checkpoints = Checkpoints(
            opening.key, lambda job: any(run.job == job for run in list(runs))
        )
        self._orders: deque[orders.Order] = deque()
        self._changed = threading.Condition()
        self._arrived: dict[tuple[int, int, str, int], Sequence[np.ndarray]] = {}
        self._newest = 0
        """The generation of the last cut that was ordered."""
        self._is_closed = False
        self._jobs: dict[int, Job] = {}
        """By the rectangle that they advance."""
        self._seconds: dict[int, float] = {}
        """Of their iterations so far."""
        self._peers: dict[Place, Channel] = {}
        """By place: a name may be another host's by now."""
        self._places: dict[str, Place] = {}
        self._copies: dict[tuple[str, str], int] = {}
        self._keep = ""
        """The checkpoint that others were dropped for."""
        self._generation = self._iteration = self._width = 0
        self._held: tuple[Held, ...] = ()
        self._rectangles: dict[int, Rectangle] = {}
        self._frames = Parcels()
        self._thread = threading.Thread(target=self._run, name="hetsched-grid", daemon=True)
        runs.append(self)
        self._thread.start()

    def order(self, order: orders.Order) -> None:
        """Do this after what has been ordered before; a cut replaces all of that."""
        with self._changed:
            if isinstance(order, orders.Cut):
                self._newest = order.generation
                self._arrived = {k: v for k, v in self._arrived.items() if k[0] >= self._newest}
            self._orders.append(order)
            self._changed.notify_all()

    def take(self, message: Cells | Copy, arrays: Sequence[np.ndarray]) -> None:
        if isinstance(message, Copy):
            with contextlib.suppress(_Outdated):
                self._file(self._write_copy, message, arrays)
            return
        with self._changed:
            if message.generation >= self._newest:
                key = (message.generation, message.iteration, message.host, message.source)
                self._arrived[key] = arrays
                self._changed.notify_all()

    def close(self, *, keeps: bool) -> None:
        """Stop; without `keeps` the checkpoints go. Returns at once."""
        self._runs.remove(self)
        with self._changed:
            if not keeps:
                self._file(self._checkpoints.drop_job, self.job)
            self._is_closed = True
            self._changed.notify_all()
        self._stop_jobs()

        def end() -> None:
            self._thread.join()
            self._stop_jobs()  # what it has submitted meanwhile
            for peer in self._peers.values():
                peer.close()

        threading.Thread(target=end, daemon=True).start()

    # ---- the thread

    def _run(self) -> None:
        self._do(self._open)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._orders or self._is_closed)
                if self._is_closed:
                    return
                order = self._orders.popleft()
            if order.generation < self._newest:
                continue
            match order:
                case orders.Cut():
                    self._do(self._cut, order)
                case orders.Advance():
                    self._do(self._advance, order)
                case orders.Collect():
                    self._do(self._collect)

    def _do(self, what: Callable[..., None], *order: orders.Order) -> None:
        epoch = self._job.epoch
        generation = order[0].generation if order else self._generation
        try:
            what(*order)
        except _Outdated:
            pass
        except Unreadable as error:
            self._tell(orders.Unreadable(epoch, generation, str(error)))
        except BaseException as error:
            if self._is_closed or generation < self._newest:
                return
            # A daemon that stops, or this process: others go on.
            if self._runs.is_ending or isinstance(error, errors.TryAgain):
                self._tell(orders.Unusable(epoch, generation, self._job.me, str(error)))
            else:
                self._tell(channel.Failed(epoch, 0, 0, errors.to_record(error)))

    def _open(self) -> None:
        savings = self._filed(LOOKING, self._checkpoints.savings)
        self._tell(orders.Opened(self._job.epoch, savings or ()))

    def _check(self) -> None:
        if self._is_outdated:
            raise _Outdated

    @property
    def _is_outdated(self) -> bool:
        return self._is_closed or self._newest > self._generation

    def _file(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        with self._changed:
            if self._is_closed:
                raise _Outdated
            return self._runs.files.submit(function, *arguments)

    def _filed(self, seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function does in the thread for files; None if it takes too long."""

        def wake(_: object) -> None:
            with self._changed:
                self._changed.notify_all()

        future = self._file(function, *arguments)
        future.add_done_callback(wake)
        with self._changed:
            self._changed.wait_for(lambda: future.done() or self._is_outdated, seconds)
        self._check()
        if not future.done():
            log.warning("the state folder hasn't answered for %g s", seconds)
            return None
        return future.result()

    # ---- cuts

    def _cut(self, order: orders.Cut) -> None:
        began, job = time.monotonic(), self._job
        old = self._rectangles
        self._stop_jobs()
        self._generation, self._iteration = order.generation, order.iteration
        self._width, self._held = order.width // job.reach, order.targets
        self._places = order.peers
        for place in self._peers.keys() - set(order.peers.values()):
            self._peers.pop(place).close()
        self._rectangles = {
            index: self._rectangle(held.box, order.width)
            for index, held in enumerate(order.targets)
            if held.host == job.me
        }
        if order.saved:
            own = {i: box for i, (host, box) in enumerate(order.sources) if host == job.me}
            found = self._filed(READING, self._read, order.saved, own)
            if found is None:
                raise Unreadable(f"{order.saved}: the state folder doesn't answer")
            old = found
        grid = (order.width, job.shape, job.periodic)
        parcels = self._parcels(transfers(order.sources, order.targets, *grid), order.sources)
        self._exchange(parcels, order.sources, old)
        constants = sorted(x.name for x in job.inputs if x.name not in job.state)
        if constants and self._rectangles:
            plan = transfers([Held("", Box.whole(job.shape))], order.targets, *grid)
            here = [each for each in plan if each.target in self._rectangles]
            self._install(here, constants, self._wait_for("", -1))
        frames = transfers(order.targets, order.targets, *grid, frames=True)
        self._frames = self._parcels(frames, order.targets)
        if self._rectangles:
            self._tell(orders.Ready(job.epoch, self._generation, time.monotonic() - began))

    def _rectangle(self, box: Box, width: int) -> Rectangle:
        job = self._job
        framed = box.framed(width, job.shape, job.periodic)
        rectangle = Rectangle(box, framed, job.axes)
        for layout in job.inputs:
            shape = shape_with(layout.shape, job.axes[layout.name], framed)
            rectangle.arrays[layout.name] = self._submitter.empty(shape, layout.dtype)
        return rectangle

    # ---- between rectangles

    def _parcels(self, plan: Iterable[Transfer], sources: Sequence[Held]) -> Parcels:
        """Return (source, host that gets it) -> transfers, of what this host sends or gets."""
        me, parcels = self._job.me, Parcels()
        for each in plan:
            host = self._held[each.target].host
            if me in (host, sources[each.source].host):
                parcels.setdefault((each.source, host), []).append(each)
        return parcels

    def _exchange(
        self, parcels: Parcels, sources: Sequence[Held], have: Mapping[int, Rectangle]
    ) -> None:
        """Send what others need of what this host has, and take what it needs itself."""
        job, me, names = self._job, self._job.me, sorted(self._job.state)
        for (source, host), parcel in parcels.items():
            if host != me:
                arrays = [
                    (name, np.ascontiguousarray(have[source].view(name, each.here)))
                    for each, name in itertools.product(parcel, names)
                ]
                now = self._generation, self._iteration
                self._send(host, Cells(job.job, *now, me, source, layouts(arrays)), arrays)
        for (source, host), parcel in parcels.items():
            if host != me:
                continue
            giver = sources[source].host
            if giver != me:
                self._install(parcel, names, self._wait_for(giver, source))
                continue
            for each, name in itertools.product(parcel, names):
                target = self._rectangles[each.target].view(name, each.there)
                target[...] = have[source].view(name, each.here)

    def _send(
        self, host: str, message: Cells | Copy, arrays: Iterable[tuple[str, np.ndarray]]
    ) -> None:
        self._peer(host).send(message, [bytes_of(array) for _, array in arrays])

    def _install(
        self, parcel: Sequence[Transfer], names: Sequence[str], arrays: Sequence[np.ndarray]
    ) -> None:
        for (each, name), array in zip(itertools.product(parcel, names), arrays, strict=True):
            self._rectangles[each.target].view(name, each.there)[...] = array

    def _wait_for(self, host: str, source: int) -> Sequence[np.ndarray]:
        """Return what a host has sent; a new cut is ordered if it's lost, which ends the wait."""
        key = (self._generation, self._iteration, host, source)
        with self._changed:
            self._changed.wait_for(lambda: key in self._arrived or self._is_outdated)
            self._check()
            return self._arrived.pop(key)

    def _peer(self, host: str) -> Channel:
        place = self._places.get(host)
        peer = None if place is None else self._peers.get(place)
        if peer is not None and peer.is_open:
            return peer
        try:
            if place is None:
                raise errors.Unavailable(f"{host}: it has gone")
            interface, port, token = place
            connection = greet(host, (interface, port), token, self._context, self._patience)
            self._peers[place] = peer = Channel(connection, _Peer(self, host), self._patience)
            peer.start()
        except errors.HetschedError as error:
            self._lost(host, str(error))
            raise _Outdated from None
        return peer

    def _lost(self, host: str, reason: str) -> None:
        if not self._is_closed:
            reason = f"{self._job.me} can't reach it: {reason}"
            self._tell(orders.Unusable(self._job.epoch, self._generation, host, reason))

    # ---- sweeps

    def _advance(self, order: orders.Advance) -> None:
        if order.keep not in ("", self._keep):
            self._keep = order.keep
            self._file(self._checkpoints.drop_before, order.keep)
        while self._iteration < order.until:
            self._check()
            began = time.monotonic()
            computing = self._sweep()
            swept = time.monotonic()
            self._exchange(self._frames, self._held, self._rectangles)
            done = time.monotonic()
            self._tell(
                orders.Swept(
                    self._job.epoch, self._generation, self._iteration,
                    swept - began, computing, done - swept,
                )
            )  # fmt: skip
        if order.save:
            self._save(order)

    def _sweep(self) -> float:
        """Advance all rectangles; return the seconds of their iterations, without what a sweep
        takes besides: that is less with longer sweeps.
        """
        left, seconds = self._job.steps - self._iteration, self._seconds.copy()
        for index, rectangle in self._rectangles.items():
            job = self._jobs.get(index) or self._begin(index, rectangle, left)
            if (held := job.next_hold()) is not None:
                results, self._seconds[index] = held.arrays, held.seconds
            else:
                results, devices = job.result(), job.report.devices if job.report else ()
                phases = (device.phases.total for device in devices if device.phases)
                self._seconds[index] = max(phases, default=0.0)
            rectangle.arrays |= {self._name(k): v for k, v in results.items()}
            self._check()
        self._iteration += min(self._width, left)
        return sum(self._seconds.values()) - sum(seconds.values())

    def _begin(self, index: int, rectangle: Rectangle, steps: int) -> Job:
        """Begin the job that does all steps; it is held after each sweep."""
        job = self._job
        given = {layout.name: rectangle.arrays[layout.name] for layout in job.inputs}
        params = {**job.params, job.limit: steps}
        self._jobs[index] = begun = self._submitter.submit(
            job.workload, given, hold_every=self._width, **job.options, **params
        )
        return begun

    def _stop_jobs(self) -> None:
        jobs, self._jobs, self._seconds = list(self._jobs.values()), {}, {}
        for job in jobs:
            job.cancel()

    def _name(self, output: str) -> str:
        """Return the input that an output is from now on; else its own name."""
        now = {after: before for before, after in self._job.state.items()}
        return now.get(output, output)

    def _collect(self) -> None:
        job = self._job
        for rectangle in self._rectangles.values():
            arrays = {
                layout.name: np.ascontiguousarray(
                    rectangle.view(self._name(layout.name), rectangle.box)
                )
                for layout in job.outputs
            }
            message = Results(job.epoch, self._generation, rectangle.box, layouts(arrays))
            self._tell(message, [bytes_of(array) for array in arrays.values()])
        self._tell(orders.Collected(job.epoch, self._generation))

    # ---- checkpoints

    def _save(self, order: orders.Advance) -> None:
        """Have what this host holds written by itself and sent to another; sweeps go on."""
        began, job = time.monotonic(), self._job
        pieces = [
            (r.box, {name: r.view(name, r.box).copy() for name in sorted(job.state)})
            for r in self._rectangles.values()
        ]
        self._file(self._write, order, pieces, began)
        for box, arrays in pieces if order.keeper else ():
            message = Copy(job.job, order.save, job.me, len(pieces), box, layouts(arrays))
            self._send(order.keeper, message, arrays.items())

    def _write(
        self,
        order: orders.Advance,
        pieces: Sequence[tuple[Box, Mapping[str, np.ndarray]]],
        began: float,
    ) -> None:
        self._checkpoints.drop_failed(order.save, order.keep)
        error = ""
        for box, arrays in pieces:
            error = error or self._checkpoints.write(order.save, box, arrays)
        self._saved(order.save, self._job.me, began, error)

    def _write_copy(self, copy: Copy, arrays: Sequence[np.ndarray]) -> None:
        began, key = time.monotonic(), (copy.name, copy.owner)
        named = {layout.name: array for layout, array in zip(copy.arrays, arrays, strict=True)}
        error = self._checkpoints.write(copy.name, copy.box, named)
        self._copies = {k: n for k, n in self._copies.items() if k[0] == copy.name}
        self._copies[key] = self._copies.get(key, 0) + 1
        if error or self._copies[key] == copy.count:
            self._saved(copy.name, copy.owner, began, error)

    def _saved(self, name: str, owner: str, began: float, error: str) -> None:
        seconds = time.monotonic() - began
        self._tell(orders.Saved(self._job.epoch, name, owner, seconds, error))

    def _read(self, name: str, boxes: Mapping[int, Box]) -> dict[int, Rectangle]:
        found = {}
        for index, box in boxes.items():
            found[index] = Rectangle(box, box, self._job.axes)
            found[index].arrays = self._checkpoints.read(name, box, self._job.state)
        return found


class _Peer(channel.Receiver):
    """What hears from another host: nothing but that it's lost."""

    def __init__(self, run: GridRun, host: str) -> None:
        self._run, self._host = run, host

    def lost(self, reason: str) -> None:
        self._run._lost(self._host, reason)


class Runs(list[GridRun]):
    """The jobs on grids of this host, whichever coordinator's, and its thread for files.

    A job may be here twice for a while, if its coordinator has lost the host and found it again:
    all get what other hosts send, as nothing tells which of them reads its orders last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.files = ThreadPoolExecutor(1, "hetsched-checkpoint")
        self.is_ending = False
        """What runs ends with this process."""

    def take(self, message: Cells | Copy, arrays: Sequence[np.ndarray]) -> None:
        for run in list(self):
            if run.job == message.job:
                run.take(message, arrays)
