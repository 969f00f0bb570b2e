"""The coordinator's side of a grid over many hosts: sends its inputs' cells, and takes results."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from hetsched import errors
from hetsched.cluster import orders, stencil
from hetsched.cluster.regions import Box, Held, cut, transfers
from hetsched.hosts.channel import bytes_of
from hetsched.hosts.grid_messages import Cells, Close, Layout, Open, Results, layouts
from hetsched.hosts.tcp import Link, TcpHosts

WHOLE = 0
"""The number of the inputs among sources that are nothing else."""
CONSTANT = -1


@dataclass
class GridSpec:
    """One job: what hosts are told of it, but `me` and `key`, and its whole arrays here."""

    opening: Open
    limits: Sequence[str]
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    every: float

    @property
    def kind(self) -> str:
        return f"{self.opening.workload} {sorted(self.opening.params.items())}"

    @property
    def grid(self) -> stencil.GridJob:
        opening = self.opening
        return stencil.GridJob(opening.shape, opening.periodic, opening.steps, opening.reach)

    def key(self) -> str:
        """Return what jobs have in common that can go on from each other's checkpoints."""
        digest = hashlib.blake2b(digest_size=16)
        params = {k: v for k, v in self.opening.params.items() if k not in self.limits}
        digest.update(repr((self.opening.workload, sorted(params.items()))).encode())
        for name, array in sorted(self.inputs.items()):
            digest.update(repr((name, array.shape, str(array.dtype))).encode())
            for part in array:
                digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


class GridHosts:
    """`hosts` for one job on a grid; they tell it what it isn't theirs to know."""

    def __init__(self, hosts: TcpHosts, spec: GridSpec) -> None:
        self._tcp, self._spec = hosts, spec
        self._opening = msgspec.structs.replace(spec.opening, key=spec.key())
        self._generation = 0
        self._opened: set[str] = set()
        self.hosts, self.event, self.now = hosts.hosts, hosts.event, hosts.now

    # ---- what a coordinator asks

    def drop(self, host: str, reason: str) -> None:
        link = self._tcp.links().get(host)
        if link is not None:
            link.give_up(reason)

    def open(self, host: str) -> None:
        self._opened.add(host)
        link = self._tcp.links().get(host)
        if link is not None:
            link.channel.send(msgspec.structs.replace(self._opening, me=host))

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
        spec, job = self._spec, self._opening
        whole = Held("", Box.whole(job.shape))
        state = sorted(job.state)
        parcels = {CONSTANT: [name for name in sorted(spec.inputs) if name not in state]}
        if order.sources == (whole,):
            parcels[WHOLE] = state
        plan = [
            each
            for each in transfers([whole], order.targets, order.width, job.shape, job.periodic)
            if order.targets[each.target].host == host
        ]
        for number, names in parcels.items():
            arrays = [
                (name, np.ascontiguousarray(cut(spec.inputs[name], job.axes[name], each.here)))
                for each in plan
                for name in names
            ]
            if arrays:
                cells = Cells(
                    job.job, order.generation, order.iteration, "", number, layouts(arrays)
                )
                link.channel.send(cells, [bytes_of(array) for _, array in arrays])

    def close(self, links: Mapping[str, Link], *, keeps: bool) -> None:
        """End the job on all hosts; if they keep its checkpoints, another can go on from them."""
        for host, link in links.items():
            if host in self._opened:
                link.channel.send(Close(self._opening.epoch, keeps))

    # ---- what links tell

    def take(self, link: Link, message: Any, arrays: Sequence[np.ndarray]) -> None:
        if message.epoch != self._opening.epoch:
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
        place = cut(whole, self._opening.axes[layout.name], box)
        if place.shape != layout.shape or str(place.dtype) != layout.dtype:
            raise errors.DataError(f"{layout.name}: {layout.shape}, but should be {place.shape}")
        return place
