"""The coordinator's side of a grid over many hosts: sends its inputs' cells, and takes results."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from hetsched import errors
from hetsched.cluster import orders, stencil
from hetsched.cluster.regions import Box, Held, cut, transfers
from hetsched.hosts.channel import bytes_of
from hetsched.hosts.grid_messages import Cells, Close, Layout, Open, Results
from hetsched.hosts.grid_run import layouts
from hetsched.hosts.tcp import Link, TcpHosts
from hetsched.workload.iterative import Blocks

WHOLE = 0
"""The number of the inputs among sources that are nothing else."""
CONSTANT = -1


@dataclass
class GridSpec:
    """One job: its whole arrays here. `job` is its name among others."""

    epoch: int
    workload: str
    blocks: Blocks
    steps: int
    limits: Sequence[str]
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    options: Mapping[str, Any]
    every: float
    job: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def kind(self) -> str:
        return f"{self.workload} {sorted(self.blocks.params.items())}"

    @property
    def grid(self) -> stencil.GridJob:
        name = next(iter(self.blocks.state))
        rows, columns = (self.inputs[name].shape[axis] for axis in self.blocks.axes[name])
        return stencil.GridJob(
            (rows, columns), self.blocks.periodic, self.steps, self.blocks.reach
        )

    def key(self) -> str:
        """Return what jobs have in common that can go on from each other's checkpoints."""
        digest = hashlib.blake2b(digest_size=16)
        params = {k: v for k, v in self.blocks.params.items() if k not in self.limits}
        digest.update(repr((self.workload, sorted(params.items()))).encode())
        for name, array in sorted(self.inputs.items()):
            digest.update(repr((name, array.shape, str(array.dtype))).encode())
            for part in array:
                digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


class GridHosts:
    """`hosts` for one job on a grid; they tell it what it isn't theirs to know."""

    def __init__(self, hosts: TcpHosts, spec: GridSpec) -> None:
        self._tcp, self._spec, self._key = hosts, spec, spec.key()
        self._generation = 0
        self._opened: set[str] = set()

    # ---- what a coordinator asks

    def hosts(self) -> Sequence[str]:
        return self._tcp.hosts()

    def event(self, seconds: float) -> Any:
        return self._tcp.event(seconds)

    def now(self) -> float:
        return self._tcp.now()

    def drop(self, host: str, reason: str) -> None:
        link = self._tcp.links().get(host)
        if link is not None:
            link.give_up(reason)

    def open(self, host: str) -> None:
        spec, grid = self._spec, self._spec.grid
        self._opened.add(host)
        link = self._tcp.links().get(host)
        if link is None:
            return
        link.channel.send(
            Open(
                spec.epoch,
                spec.job,
                self._key,
                host,
                spec.workload,
                dict(spec.blocks.params),
                dict(spec.options),
                grid.shape,
                grid.periodic,
                grid.reach,
                spec.blocks.steps,
                dict(spec.blocks.axes),
                dict(spec.blocks.state),
                layouts(spec.inputs),
                layouts(spec.outputs),
            )
        )

    def order(self, host: str, order: orders.Order) -> None:
        links = self._tcp.links()
        link = links.get(host)
        if link is None:
            return
        if isinstance(order, orders.Cut):
            self._generation = order.generation
            places = {name: each.place for name, each in links.items()}
            link.channel.send(msgspec.structs.replace(order, peers=places))
            self._send_inputs(host, link, order)
        else:
            link.channel.send(order)

    def _send_inputs(self, host: str, link: Link, order: orders.Cut) -> None:
        """Send a host its cells of what never changes, and of all that no host has yet."""
        spec, grid = self._spec, self._spec.grid
        whole = Held("", Box.whole(grid.shape))
        state = sorted(spec.blocks.state)
        parcels = {CONSTANT: [name for name in sorted(spec.inputs) if name not in state]}
        if order.sources == (whole,):
            parcels[WHOLE] = state
        plan = [
            each
            for each in transfers([whole], order.targets, order.width, grid.shape, grid.periodic)
            if order.targets[each.target].host == host
        ]
        for number, names in parcels.items():
            arrays = [
                (
                    name,
                    np.ascontiguousarray(
                        cut(spec.inputs[name], spec.blocks.axes[name], each.here)
                    ),
                )
                for each in plan
                for name in names
            ]
            if arrays:
                link.channel.send(
                    Cells(
                        spec.job, order.generation, order.iteration, "", number, layouts(arrays)
                    ),
                    [bytes_of(array) for _, array in arrays],
                )

    def close(self, links: Mapping[str, Link], *, keeps: bool) -> None:
        """End the job on all hosts; if they keep its checkpoints, another can go on from them."""
        for host, link in links.items():
            if host in self._opened:
                link.channel.send(Close(self._spec.epoch, keeps))

    # ---- what links tell

    def take(self, link: Link, message: Any, arrays: Sequence[np.ndarray]) -> None:
        if message.epoch != self._spec.epoch:
            return
        if not isinstance(message, Results):
            self._tcp.put(stencil.Told(link.name, message))
        elif message.generation == self._generation:
            for layout, array in zip(message.results, arrays, strict=True):
                self._place(layout, message.box)[...] = array

    def _place(self, layout: Layout, box: Box) -> np.ndarray:
        """Return where a rectangle of an output belongs. Raises DataError."""
        whole = self._spec.outputs.get(layout.name)
        if whole is None:
            raise errors.DataError(f"{layout.name} isn't an output")
        place = cut(whole, self._spec.blocks.axes[layout.name], box)
        if place.shape != layout.shape or str(place.dtype) != layout.dtype:
            raise errors.DataError(f"{layout.name}: {layout.shape}, but should be {place.shape}")
        return place
