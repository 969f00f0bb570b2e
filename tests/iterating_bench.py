"""Devices that compute an iterative job together, in threads.

The bench is the engine: it allocates the arrays, sends commands and collects reports.
"""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import prod
from queue import Queue
from typing import Any

import msgspec
import numpy as np

from hetsched.device import DeviceInfo
from hetsched.device_process.device_loop import DeviceLoop
from hetsched.devices.base import Device
from hetsched.iterations.home import (
    partials_shape,
    state_shape,
)
from hetsched.iterations.saved_state import saved_shapes
from hetsched.transport.arena import Arena
from hetsched.transport.control import IterationControl, control_words
from hetsched.transport.device_messages import (
    Attach,
    Channel,
    ChannelClosed,
    Command,
    DeviceEvent,
    DeviceNote,
    Hello,
    Iterate,
    IterationRecord,
    IterationsDone,
    IterationsStopped,
    Prepare,
    Stop,
    StoredArray,
)
from hetsched.transport.messages import encode
from hetsched.transport.sockets import send_message
from hetsched.workload import find

PATIENCE = 60.0
JOB = 1
CORE = DeviceInfo(name="cpu", kind="cpu", identity="test")

Opener = tuple[DeviceInfo, Callable[[DeviceInfo], Device]]


class ThreadDevices:
    """Devices in threads of this process."""

    def __init__(self, devices: Sequence[Opener]) -> None:
        self.count = len(devices)
        self.events: Queue[tuple[int, Any]] = Queue()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        for slot, (info, opener) in enumerate(devices):
            own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._sockets.append(own)
            self._start(self._serve, other, info, opener)
            self._start(self._read, slot, Channel(own, DeviceEvent))

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        self._threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self._threads[-1].start()

    def _serve(
        self, end: socket.socket, info: DeviceInfo, opener: Callable[[DeviceInfo], Device]
    ) -> None:
        with end:
            DeviceLoop(Channel(end, list[Command]), opener(info)).run()

    def _read(self, slot: int, channel: Channel) -> None:
        with contextlib.suppress(ChannelClosed):
            while True:
                event, _ = channel.receive()
                if not isinstance(event, Hello):
                    self.events.put((slot, event))

    def attach(self, command: Attach, fd: int) -> None:
        for end in self._sockets:
            send_message(end, encode([command]), [fd])

    def order(self, slot: int, command: Any) -> None:
        send_message(self._sockets[slot], encode([command]))

    def close(self) -> None:
        for slot in range(self.count):
            self.order(slot, Stop())
        for thread in self._threads:
            thread.join()
        for end in self._sockets:
            end.close()


class IteratingBench:
    """A job; `x`: its input, or inputs by name.

    `saves`: devices save their rows now and then, for the loss of one with its own memory.
    """

    def __init__(
        self,
        params: Any,
        x: np.ndarray | Mapping[str, np.ndarray],
        devices: Sequence[Opener],
        workload: str,
        arena: int = 1 << 22,
        saves: bool = False,
    ) -> None:
        self.params = params
        self.devices = ThreadDevices(devices)
        self.slots = self.devices.count
        self.events = self.devices.events
        self.reports: dict[int, list[IterationsDone]] = defaultdict(list)
        self.arena = Arena(arena)
        self._workload = workload
        self.declaration: Any = find(workload)
        self.load: int = self.declaration.load(params)
        self._saves = saves
        self._stored: list[StoredArray] = []
        self.arrays: dict[str, np.ndarray] = {}
        self._allocate()
        for name, values in (x if isinstance(x, Mapping) else {"x": x}).items():
            self.arrays[name][...] = values
        self.control = IterationControl(self.arrays["control"])

    def _allocate(self) -> None:
        workload, load = self.declaration, self.load
        for spec in workload.arrays(self.params):
            self._add(spec.name, spec.shape(load), spec.dtype, output=spec.is_output)
        for state in workload.state(self.params):
            self._add(state.name, state_shape(state, load), state.dtype)
            self.arrays[state.name][...] = 77
        for reduction in workload.reductions(self.params):
            shape = partials_shape(reduction, self.slots)
            self._add(f"partials/{reduction.name}", shape, reduction.dtype)
            self.arrays[f"partials/{reduction.name}"][...] = 77
        if self._saves:
            for name, (shape, dtype) in saved_shapes(workload, self.params).items():
                self._add(f"saved/{name}", shape, dtype)
                self.arrays[f"saved/{name}"][...] = 77
        self._add("control", (control_words(self.slots),), "int32")

    def _add(self, name: str, shape: tuple[int, ...], dtype: str, *, output: bool = False) -> None:
        key = len(self._stored)
        segment = self.arena.allocate(prod(shape) * np.dtype(dtype).itemsize)
        self.devices.attach(Attach(key, "segment", segment.nbytes), segment.fd)
        self.arrays[name] = segment.array(shape, dtype)
        stored = StoredArray(
            array=name, key=key, shape=shape, dtype=np.dtype(dtype).str, output=output
        )
        self._stored.append(stored)

    def prepare(
        self, slots: Iterable[int] | None = None, variant: str = "numpy", memory: int = 0
    ) -> None:
        for slot in range(self.slots) if slots is None else slots:
            self.devices.order(
                slot,
                Prepare(
                    attempt=JOB,
                    workload=self._workload,
                    params=msgspec.json.encode(self.params),
                    variant=variant,
                    arrays=tuple(self._stored),
                    chunk=self.load,
                    memory=memory,
                    answer=False,
                ),
            )

    def iterate(
        self,
        shares: Mapping[int, int],
        *,
        last: int | None = None,
        paced: bool = False,
    ) -> None:
        """Start an epoch of the devices with these slots and rows."""
        self.control.begin(0)
        slots = tuple(shares)
        for rank, slot in enumerate(slots):
            self.devices.order(
                slot,
                Iterate(
                    attempt=JOB,
                    epoch=1,
                    rank=rank,
                    slots=slots,
                    bounds=(0, *accumulate(shares.values())),
                    first=0,
                    last=self.declaration.max_iterations(self.params) if last is None else last,
                    paced=paced,
                ),
            )

    def answers(self, kind: type, count: int) -> list[Any]:
        """The next events of `kind`, by device; reports are kept, any others fail the test."""
        answers: list[tuple[int, Any]] = []
        while len(answers) < count:
            slot, event = self.events.get(timeout=PATIENCE)
            if isinstance(event, IterationsDone):
                self.reports[slot].append(event)
            elif not isinstance(event, DeviceNote):
                assert isinstance(event, kind), event
                answers.append((slot, event))
        return [event for _, event in sorted(answers, key=lambda answer: answer[0])]

    def wait_for_report(self, slot: int, iteration: int) -> None:
        """Wait until the device has reported an iteration."""
        while all(record.last != iteration for record in self.records(slot)):
            reporter, event = self.events.get(timeout=PATIENCE)
            assert isinstance(event, IterationsDone), event
            self.reports[reporter].append(event)

    def stopped(self, count: int) -> list[IterationsStopped]:
        return self.answers(IterationsStopped, count)

    def records(self, slot: int) -> list[IterationRecord]:
        return [record for report in self.reports[slot] for record in report.records]

    def close(self) -> None:
        self.control.abort()
        self.devices.close()
        self.arena.close()
        gc.collect()  # what devices have mapped, with its descriptors: processes would have ended
