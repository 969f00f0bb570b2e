"""A device process for tests, which sends it commands as the engine does."""

from __future__ import annotations

import select
from collections import deque
from typing import Any, TypeVar

import msgspec
import numpy as np
from device_toys import AffineParams
from toys import ToyParams

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.probe import ProcessSpec
from hetsched.engine.processes.process import DeviceProcess, Template
from hetsched.transport.arena import Arena
from hetsched.transport.device_messages import (
    ChunksDone,
    DeviceEvent,
    DeviceNote,
    Hello,
    Prepare,
    StoredArray,
)

E = TypeVar("E", bound=Any)
CPU = ProcessSpec(
    package="hetsched.devices.cpu",
    device=DeviceInfo(name="cpu0", kind="cpu", identity="test"),
    config=DeviceConfig(kind="cpu"),
)
TIMEOUT = 60.0


class Talk:
    """A device process with two arrays of the affine workload attached as segments 1 and 2."""

    def __init__(
        self, spec: ProcessSpec, units: int = 40, template: Template | None = None
    ) -> None:
        self.units = units
        self.arena = Arena(1 << 24)
        self.process = DeviceProcess(spec, template)
        self.notes: list[str] = []
        self.last: list[Any] = []
        self._unread: deque[DeviceEvent] = deque()
        self.hello = self.expect(Hello)
        self.x = self._attach(1)
        self.y = self._attach(2)
        self.x[...] = np.random.default_rng(5).standard_normal(self.x.shape)
        self.y[...] = -7

    def close(self) -> None:
        self.process.stop()
        self.process.join(TIMEOUT, TIMEOUT)
        self.release()

    def release(self) -> None:
        """Release the arrays."""
        del self.x, self.y
        self.arena.close()

    def prepare(self, attempt: int = 1, **changes: Any) -> Prepare:
        """Send a Prepare for the attached arrays and return it."""
        command = self.prepare_command(attempt, **changes)
        self.process.send(command)
        return command

    def prepare_faulty(self, fault: str) -> Prepare:
        """Send a Prepare for kernels with `fault` (`toys.FAULTS`)."""
        params = msgspec.json.encode(ToyParams(self.units, fault=fault))
        return self.prepare(workload="toys:Faulty", params=params)

    def prepare_command(self, attempt: int = 1, **changes: Any) -> Prepare:
        """Return a Prepare for the attached arrays."""
        shape = (self.units, 4)
        settings: dict[str, Any] = {
            "workload": "device_toys:Affine",
            "params": msgspec.json.encode(AffineParams(self.units)),
            "variant": "numpy",
            "arrays": (
                StoredArray(array="x", key=1, shape=shape, dtype="<f8"),
                StoredArray(array="y", key=2, shape=shape, dtype="<f8", output=True),
            ),
            "chunk": 10,
            "window": 4,
            **changes,
        }
        return Prepare(attempt=attempt, **settings)

    def events(self) -> list[DeviceEvent]:
        """Send what hasn't been sent, wait for an event or the end, and return the events."""
        self.process.flush()
        readable, _, _ = select.select([self.process], [], [], TIMEOUT)
        assert readable, "the device process sends nothing"
        return self.process.receive()

    def expect(self, kind: type[E], count: int = 1) -> E:
        """Check that the next `count` events but notes are of `kind`; return the last."""
        self.last = [self._next() for _ in range(count)]
        assert all(isinstance(event, kind) for event in self.last), self.last
        return self.last[-1]

    def chunks_done(self, count: int) -> list[int]:
        """Wait until `count` chunks have been reported; return their ids."""
        chunks: list[int] = []
        while len(chunks) < count:
            chunks += [chunk.chunk for chunk in self.expect(ChunksDone).chunks]
        return chunks

    def wait_end(self) -> str:
        """Wait for the end of the process and return its exit reason."""
        self.process.flush()
        select.select([self.process.end_fd], [], [], TIMEOUT)
        return self.process.exit_reason()

    def _next(self) -> DeviceEvent:
        while not self._unread:
            for event in self.events():
                if isinstance(event, DeviceNote):
                    self.notes.append(event.text)
                else:
                    self._unread.append(event)
            assert self._unread or not self.process.ended, self.process.exit_reason()
        return self._unread.popleft()

    def _attach(self, key: int) -> np.ndarray:
        segment = self.arena.allocate(self.units * 32)
        self.process.attach_segment(segment)
        return segment.array((self.units, 4), "float64")
