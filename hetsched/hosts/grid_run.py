"""A host's part of a grid: its rectangles, advanced by jobs of its own engine, and their frames.

A rectangle has its arrays with the frame around it, and two of each that goes on: a job reads one
and writes the other, then they change places, and the cells of other rectangles come into the
frame. Nothing else is copied.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shutil
import threading
import time
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from hetsched import errors, paths
from hetsched.client.client import JobSubmitter
from hetsched.client.job import Job
from hetsched.cluster import orders
from hetsched.cluster.regions import Box, Held, Transfer, cut, shape_with, transfers
from hetsched.hosts import channel
from hetsched.hosts.channel import Channel, bytes_of
from hetsched.hosts.grid_messages import Cells, Copy, Layout, Open, Results

KEPT = 8
"""Kinds of jobs whose checkpoints a host keeps, the latest."""
log = logging.getLogger(__name__)


Parcels = dict[tuple[int, str], list[Transfer]]


class _Unreadable(Exception):
    """A checkpoint is gone or damaged."""


class _Outdated(Exception):
    """Something else has been ordered meanwhile."""


class Rectangle:
    """`box` of the grid and a frame: views of `arrays`, each with two axes of the grid."""

    def __init__(self, box: Box, framed: Box, axes: Mapping[str, tuple[int, int]]) -> None:
        self.box, self.framed, self._axes = box, framed, axes
        self.arrays: dict[str, np.ndarray] = {}

    def view(self, name: str, part: Box) -> np.ndarray:
        """Return the cells `part`, which may be in the frame."""
        return cut(
            self.arrays[name],
            self._axes[name],
            part.moved(-self.framed.top, -self.framed.left),
        )


def layouts(arrays: Mapping[str, np.ndarray] | Iterable[tuple[str, np.ndarray]]) -> Any:
    items = arrays.items() if isinstance(arrays, Mapping) else arrays
    return tuple(Layout(name, str(array.dtype), array.shape) for name, array in items)


class GridRun:
    """One job's part on this host, in a thread of its own between `start` and `close`.

    `tell` sends a message to the coordinator, `reach` connects to another host, `is_running` says
    whether a job is on this host.
    """

    def __init__(
        self,
        opening: Open,
        submitter: JobSubmitter,
        tell: Callable[..., None],
        reach: Callable[[str, tuple[str, int, str], channel.Receiver], Channel],
        is_running: Callable[[str], bool],
    ) -> None:
        self.workload = opening.workload
        self._job, self._submitter, self._tell, self._reach = opening, submitter, tell, reach
        self._is_running = is_running
        self._folder = paths.state_dir() / "cluster" / opening.key
        self._orders: deque[orders.Order] = deque()
        self._changed = threading.Condition()
        self._arrived: dict[tuple[int, int, str, int], Sequence[np.ndarray]] = {}
        self._newest = 0
        """The generation of the last cut that was ordered."""
        self._is_closed = False
        self._running: list[Job] = []
        self._peers: dict[str, Channel] = {}
        self._places: dict[str, tuple[str, int, str]] = {}
        self._copies: dict[tuple[str, str], int] = {}
        self._writer = ThreadPoolExecutor(1, "hetsched-checkpoint")
        self._generation = self._iteration = self._width = 0
        self._held: tuple[Held, ...] = ()
        self._rectangles: dict[int, Rectangle] = {}
        self._frames = Parcels()
        self._thread = threading.Thread(target=self._run, name="hetsched-grid", daemon=True)

    def start(self) -> None:
        self._tell(orders.Opened(self._job.epoch, self._savings()))
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
        """Take what another host has sent."""
        if isinstance(message, Copy):
            with contextlib.suppress(RuntimeError):  # closed
                self._writer.submit(self._write_copy, message, arrays)
            return
        with self._changed:
            if message.generation >= self._newest:
                key = (message.generation, message.iteration, message.host, message.source)
                self._arrived[key] = arrays
                self._changed.notify_all()

    def close(self, *, keeps: bool) -> None:
        """Stop; without `keeps` the checkpoints go. Returns at once."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for job in list(self._running):
            job.cancel()
        self._writer.shutdown(wait=False, cancel_futures=True)
        if not keeps:  # before another job looks for what there is
            self._drop(lambda job, order: job == self._job.job)

        def end() -> None:
            if self._thread.ident is not None:
                self._thread.join()
            for peer in self._peers.values():
                peer.close()
            self._writer.shutdown()
            if not keeps:
                self._drop(lambda job, order: job == self._job.job)

        threading.Thread(target=end, daemon=True).start()

    # ---- the thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._orders or self._is_closed)
                if self._is_closed:
                    return
                order = self._orders.popleft()
            if order.generation < self._newest:
                continue
            try:
                match order:
                    case orders.Cut():
                        self._cut(order)
                    case orders.Advance():
                        self._advance(order)
                    case orders.Collect():
                        self._collect()
            except _Outdated:
                continue
            except _Unreadable as error:
                self._tell(orders.Unreadable(self._job.epoch, order.generation, str(error)))
            except BaseException as error:
                if self._is_closed or order.generation < self._newest:
                    continue
                record = errors.to_record(error)
                self._tell(channel.Failed(self._job.epoch, 0, 0, record))

    def _check(self) -> None:
        if self._is_closed or self._newest > self._generation:
            raise _Outdated

    # ---- cuts

    def _cut(self, order: orders.Cut) -> None:
        began, job = time.monotonic(), self._job
        old, self._generation, self._iteration = (
            self._rectangles,
            order.generation,
            order.iteration,
        )
        self._width, self._held = order.width // job.reach, order.targets
        self._places = order.peers
        self._rectangles = {
            index: self._rectangle(held.box, order.width)
            for index, held in enumerate(order.targets)
            if held.host == job.me
        }
        saved: dict[int, Rectangle] = {}
        if order.saved:
            for index, (host, box) in enumerate(order.sources):
                if host == job.me:
                    saved[index] = self._read(order.saved, box)
        grid = (order.width, job.shape, job.periodic)
        parcels = self._parcels(transfers(order.sources, order.targets, *grid), order.sources)
        self._exchange(parcels, order.sources, saved if order.saved else old)
        self._take_constants(order)
        frames = transfers(order.targets, order.targets, *grid, frames=True)
        self._frames = self._parcels(frames, order.targets)
        if self._rectangles:
            self._tell(orders.Ready(job.epoch, self._generation, time.monotonic() - began))

    def _rectangle(self, box: Box, width: int) -> Rectangle:
        job = self._job
        framed = box.framed(width, job.shape, job.periodic)
        rectangle = Rectangle(box, framed, job.axes)
        for layout in (*job.inputs, *job.outputs):
            shape = shape_with(layout.shape, job.axes[layout.name], framed)
            rectangle.arrays[layout.name] = self._submitter.empty(shape, layout.dtype)
        return rectangle

    @property
    def _constants(self) -> list[str]:
        """Inputs that never change."""
        return sorted(
            layout.name for layout in self._job.inputs if layout.name not in self._job.state
        )

    def _take_constants(self, order: orders.Cut) -> None:
        names = self._constants
        if not names or not self._rectangles:
            return
        whole = [Held("", Box.whole(self._job.shape))]
        plan = transfers(whole, order.targets, order.width, self._job.shape, self._job.periodic)
        own = [each for each in plan if each.target in self._rectangles]
        self._install(own, names, self._wait_for("", -1))

    # ---- between rectangles

    def _parcels(self, plan: Iterable[Transfer], sources: Sequence[Held]) -> Parcels:
        """Return what this host sends or gets: (source, host that gets it) -> transfers."""
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
        me, names = self._job.me, sorted(self._job.state)
        for (source, host), parcel in parcels.items():
            if host != me:
                self._send(host, source, parcel, names, have[source])
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
        self,
        host: str,
        source: int,
        parcel: Sequence[Transfer],
        names: Sequence[str],
        have: Rectangle,
    ) -> None:
        arrays = [
            (name, np.ascontiguousarray(have.view(name, each.here)))
            for each in parcel
            for name in names
        ]
        job = self._job
        message = Cells(
            job.job, self._generation, self._iteration, job.me, source, layouts(arrays)
        )
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
            self._changed.wait_for(
                lambda: key in self._arrived or self._is_closed or self._newest > self._generation
            )
            self._check()
            return self._arrived.pop(key)

    def _peer(self, host: str) -> Channel:
        peer = self._peers.get(host)
        if peer is None or not peer.is_open:
            try:
                peer = self._reach(host, self._places[host], _Peer(self, host))
            except (errors.HetschedError, KeyError) as error:
                self._lost(host, str(error))
                raise _Outdated from None
            self._peers[host] = peer
        return peer

    def _lost(self, host: str, reason: str) -> None:
        if not self._is_closed:
            epoch = self._job.epoch
            self._tell(orders.Unreachable(epoch, self._generation, host, reason))

    # ---- sweeps

    def _advance(self, order: orders.Advance) -> None:
        if order.keep:
            self._drop_before(order.keep)
        while self._iteration < order.until:
            self._check()
            began = time.monotonic()
            computing = self._sweep(min(self._width, order.until - self._iteration))
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

    def _sweep(self, steps: int) -> float:
        """Advance all rectangles; return the seconds that jobs computed."""
        job, computing = self._job, 0.0
        inputs = [layout.name for layout in job.inputs]
        outputs = [layout.name for layout in job.outputs]
        params = {**job.params, job.steps: steps}
        try:
            for rectangle in self._rectangles.values():
                given = {name: rectangle.arrays[name] for name in inputs}
                out = {name: rectangle.arrays[name] for name in outputs}
                self._running.append(
                    self._submitter.submit(job.workload, given, out=out, **job.options, **params)
                )
            self._check()
            for rectangle, each in zip(self._rectangles.values(), self._running, strict=True):
                each.result()
                computing += (each.report and each.report.seconds) or 0.0
                for before, after in job.state.items():
                    arrays = rectangle.arrays
                    arrays[before], arrays[after] = arrays[after], arrays[before]
        finally:
            for each in self._running:
                each.cancel()
            self._running.clear()
        self._iteration += steps
        return computing

    def _collect(self) -> None:
        job = self._job
        for rectangle in self._rectangles.values():
            # What a job has written last is an input now.
            now = {after: before for before, after in job.state.items()}
            arrays = {
                layout.name: np.ascontiguousarray(
                    rectangle.view(now.get(layout.name, layout.name), rectangle.box)
                )
                for layout in job.outputs
            }
            message = Results(job.epoch, self._generation, rectangle.box, layouts(arrays))
            self._tell(message, [bytes_of(array) for array in arrays.values()])
        self._tell(orders.Collected(job.epoch, self._generation))

    # ---- checkpoints

    def _save(self, order: orders.Advance) -> None:
        began, job = time.monotonic(), self._job
        self._drop_failed(order)
        error = ""
        for rectangle in self._rectangles.values():
            arrays = {
                name: np.ascontiguousarray(rectangle.view(name, rectangle.box))
                for name in sorted(job.state)
            }
            error = error or self._write(order.save, rectangle.box, arrays)
            if order.keeper:
                count = len(self._rectangles)
                message = Copy(job.job, order.save, job.me, count, rectangle.box, layouts(arrays))
                buffers = [bytes_of(array) for array in arrays.values()]
                self._peer(order.keeper).send(message, buffers)
        seconds = time.monotonic() - began
        self._tell(orders.Saved(job.epoch, order.save, job.me, seconds, error))

    def _write_copy(self, copy: Copy, arrays: Sequence[np.ndarray]) -> None:
        began, key = time.monotonic(), (copy.name, copy.owner)
        try:
            named = {layout.name: array for layout, array in zip(copy.arrays, arrays, strict=True)}
            error = self._write(copy.name, copy.box, named)
        except Exception as failure:  # nobody else hears of it, and the job would wait
            error = repr(failure)
        self._copies = {k: n for k, n in self._copies.items() if k[0] == copy.name}
        self._copies[key] = self._copies.get(key, 0) + 1
        if error or self._copies[key] == copy.count:
            seconds = time.monotonic() - began
            self._tell(orders.Saved(self._job.epoch, copy.name, copy.owner, seconds, error))

    def _write(self, name: str, box: Box, arrays: Mapping[str, np.ndarray]) -> str:
        """Write a rectangle's arrays; return what failed."""
        path = self._path(name, box)
        hidden = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with hidden.open("wb") as file:
                np.savez(file, **dict(arrays))  # type: ignore[arg-type]
            hidden.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                hidden.unlink(missing_ok=True)
            return f"{path}: {error.strerror or error}"
        return ""

    def _read(self, name: str, box: Box) -> Rectangle:
        path, rectangle = self._path(name, box), Rectangle(box, box, self._job.axes)
        try:
            with np.load(path, allow_pickle=False) as arrays:
                for key in self._job.state:
                    rectangle.arrays[key] = arrays[key]
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise _Unreadable(f"{path}: isn't a usable checkpoint: {error}") from None
        return rectangle

    def _path(self, name: str, box: Box) -> Path:
        return self._folder / f"{name}-{'-'.join(map(str, box))}.npz"

    def _drop_before(self, keep: str) -> None:
        """Remove checkpoints older than `keep`, and those of jobs that have ended."""
        kept, of_kept = _order_of(keep)
        self._drop(
            lambda job, order: order < of_kept if job == kept else not self._is_running(job)
        )

    def _drop_failed(self, order: orders.Advance) -> None:
        """Remove what this job has saved before `order` and no checkpoint came of elsewhere."""
        _, of_save = _order_of(order.save)
        of_kept = _order_of(order.keep) if order.keep else None
        self._drop(lambda job, of: job == self._job.job and of < of_save and (job, of) != of_kept)

    def _drop(self, is_useless: Callable[[str, tuple[int, int]], bool]) -> None:
        for name, path, _ in self._found():
            if is_useless(*_order_of(name)):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._folder.rmdir()  # if it's empty

    def _found(self) -> Iterable[tuple[str, Path, Box]]:
        """Yield the name, path and box of each file of a checkpoint."""
        with contextlib.suppress(OSError):
            for path in sorted(self._folder.glob("*.npz")):
                name, *box = path.stem.rsplit("-", 4)
                with contextlib.suppress(ValueError, TypeError):
                    _order_of(name)
                    yield name, path, Box(*map(int, box))

    def _savings(self) -> tuple[orders.Saving, ...]:
        """Return what there is of checkpoints; of other kinds of jobs, only the latest stay."""
        folders = [path for path in self._folder.parent.glob("*") if path != self._folder]
        with contextlib.suppress(OSError):
            folders.sort(key=lambda path: path.stat().st_mtime)
            for path in folders[: -KEPT + 1]:
                jobs = {file.name.split("-")[0] for file in path.glob("*.npz")}
                if not any(map(self._is_running, jobs)):
                    shutil.rmtree(path, ignore_errors=True)
        boxes: dict[str, list[Box]] = {}
        for name, _, box in self._found():
            boxes.setdefault(name, []).append(box)
        return tuple(
            orders.Saving(name, int(name.rsplit("-", 1)[1]), tuple(each))
            for name, each in boxes.items()
        )


def _order_of(name: str) -> tuple[str, tuple[int, int]]:
    """Return the job of a checkpoint, and which came later in it."""
    job, generation, iteration = name.rsplit("-", 2)
    return job, (int(generation), int(iteration))


class _Peer:
    """What hears from another host: nothing but that it's lost."""

    def __init__(self, run: GridRun, host: str) -> None:
        self._run, self._host = run, host

    def buffers(self, message: Any) -> Sequence[memoryview]:
        return ()

    def take(self, message: Any) -> None:
        pass

    def lost(self, reason: str) -> None:
        self._run._lost(self._host, reason)


class Runs:
    """The jobs on grids of this host, whichever coordinator's."""

    def __init__(self) -> None:
        self._runs: dict[str, GridRun] = {}

    def __getitem__(self, job: str) -> GridRun | None:
        return self._runs.get(job)

    def __contains__(self, job: str) -> bool:
        return job in self._runs

    def workloads(self) -> list[str]:
        return [run.workload for run in list(self._runs.values())]

    def add(self, job: str, run: GridRun) -> None:
        self._runs[job] = run

    def close(self, job: str, run: GridRun, *, keeps: bool) -> None:
        """End a run; another one of the job, of a coordinator that has come back, goes on."""
        if self._runs.get(job) is run:
            del self._runs[job]
        run.close(keeps=keeps)
