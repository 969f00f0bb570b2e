"""A daemon in a thread of the test, with an engine that only doubles its input."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import zmq

from hetsched import __version__
from hetsched.daemon.core import Core
from hetsched.daemon.records import DaemonInfo, Limits
from hetsched.daemon.server import Server
from hetsched.device import DeviceInfo
from hetsched.engine.engine import Readmission
from hetsched.engine.run.publish import OnPrepared
from hetsched.errors import (
    DataError,
    ErrorRecord,
    HetschedError,
    InputMissing,
    UsageError,
    to_record,
)
from hetsched.explain import Explanation
from hetsched.job import (
    ArenaOut,
    ArenaRef,
    Done,
    Failed,
    JobReport,
    JobSpec,
    JobState,
    Queued,
    Running,
)
from hetsched.store.journal.records import Record
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop
from hetsched.transport.messages import DeviceActivity

T = TypeVar("T")

UNTIL_SECONDS = 60.0
"""For what other threads and processes do, however slow the machine is."""


class FakeEngine:
    """The engine's interface. Workload "double" is done at once, "wait" when it is told to be.

    "queue" never starts: it is held, released and prioritized.
    """

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.held: set[int] = set()
        self.priorities: dict[int, int] = {}
        self.waiting: dict[int, tuple[JobSpec, Callable[[JobState], None]]] = {}
        self.specs: list[JobSpec] = []
        self.probes = 0
        self.disabled: set[str] = set()

    def submit(
        self,
        spec: JobSpec,
        reply: Callable[[int | ErrorRecord], None],
        on_state: Callable[[JobState], None],
        *,
        number: int | None = None,
        attempts: int = 0,
        on_prepared: OnPrepared | None = None,
        readmission: Readmission | None = None,
    ) -> None:
        assert number is not None
        listen = on_state
        if spec.workload == "refuse":
            reply(to_record(DataError("no")))
            return
        self.specs.append(spec)
        for ref in _inputs(spec):
            self.arena.retain(ref.segment)
        reply(number)
        listen(Queued(number, 0, "held" if spec.hold else "resources"))
        if spec.workload == "queue":
            self.waiting[number] = (spec, listen)
            self.held |= {number} if spec.hold else set()
            self.priorities[number] = spec.priority
            return
        listen(Running(number, "computing"))
        self.waiting[number] = (spec, listen)
        if spec.workload == "double":
            self.finish(number)

    def finish(self, number: int) -> None:
        spec, listen = self.waiting.pop(number)
        refs = _inputs(spec)
        results = {"Y": self._double(refs[0], spec)} if refs else {}
        for ref in refs:
            self.arena.release(ref.segment)
        listen(Done(number, report(number, "done"), results))

    def progress(self, number: int, text: str = "") -> None:
        self.waiting[number][1](Running(number, "computing", text=text))

    def cancel(self, number: int) -> None:
        job = number
        if job in self.waiting:
            spec, listen = self.waiting.pop(job)
            self.priorities.pop(job, None)
            for ref in _inputs(spec):
                self.arena.release(ref.segment)
            error = ErrorRecord(130, f"job {job} was cancelled")
            listen(Failed(job, report(job, "cancelled"), error))

    def hold(self, number: int) -> bool:
        return self._set_held(number, True)

    def release(self, number: int) -> bool:
        return self._set_held(number, False)

    def _set_held(self, number: int, is_held: bool) -> bool:
        if (number in self.held) == is_held:
            return False
        self.held ^= {number}
        self.waiting[number][1](self._queued(number))
        return True

    def prioritize(self, number: int, priority: int) -> bool:
        before, self.priorities[number] = self.priorities[number], priority
        return before != priority

    def position(self, number: int) -> Queued | None:
        return self._queued(number) if number in self.priorities else None

    def is_idle(self) -> bool:
        return set(self.waiting) <= self.held

    def _queued(self, number: int) -> Queued:
        return Queued(number, 5, "held" if number in self.held else "priority")

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def expect(self, number: int) -> None:
        """Note a job that is still to come."""

    def remember(self, number: int, state: Done | Failed) -> None:
        pass

    def explain(
        self, number: int, then: Callable[[Explanation | None, BaseException | None], None]
    ) -> None:
        """Job number 1 is explained, of the others nothing is known any more."""
        if number == 1:
            then(Explanation(job=1, state="done", workload="double", load=1), None)
        else:
            then(None, InputMissing(f"job {number} ended too long ago"))

    def devices(self) -> tuple[tuple[DeviceInfo, ...], dict[str, str]]:
        return (DeviceInfo(name="cpu0", kind="cpu", identity="fake"),), {"gpu": "none here"}

    def activities(self) -> tuple[DeviceActivity, ...]:
        return tuple(
            DeviceActivity(device="cpu0", job=job, workload="wait", variant="fake", share=1)
            for job in self.waiting
        )

    def restricted_devices(self) -> dict[str, str]:
        if self.disabled:
            return dict.fromkeys(sorted(self.disabled), "disabled")
        return {} if self.probes else {"cpu0": "takes no jobs of kind fft"}

    def switch_devices(self, enable: Sequence[str], disable: Sequence[str]) -> None:
        for name in (*enable, *disable):
            if name != "cpu0":
                raise UsageError(f"no device {name!r}")
        self.disabled = (self.disabled | {*disable}) - {*enable}

    def probe_devices(self, on_done: Callable[[], None]) -> None:
        """As if every device were well afterwards."""
        self.probes += 1
        on_done()

    def _double(self, ref: ArenaRef, spec: JobSpec) -> ArenaRef:
        x = self.arena.segment(ref.segment).array(ref.shape, ref.dtype, ref.offset)
        target = next((o.into for o in spec.outputs.values() if isinstance(o, ArenaOut)), None)
        if target is None:
            target = ArenaRef(self.arena.allocate(x.nbytes).id, ref.shape, ref.dtype)
        else:
            self.arena.retain(target.segment)
        y = self.arena.segment(target.segment).array(target.shape, target.dtype, target.offset)
        np.multiply(x, 2, out=y)
        return target


class MemoryJournal:
    """The journal's interface: everything is on disk at the loop's next round."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.records: list[Record] = []
        self.error: HetschedError | None = None

    def write(
        self,
        records: Sequence[Record],
        on_done: Callable[[BaseException | None], None] | None = None,
        urgent: bool = False,
    ) -> None:
        if self.error is None:
            self.records += records
        if on_done is not None:
            self._loop.call_soon(functools.partial(on_done, self.error))


def report(job: int, state: str, **more: Any) -> JobReport:
    return JobReport(job=job, state=state, workload="double", load=1, **more)


def _inputs(spec: JobSpec) -> list[ArenaRef]:
    return [ref for ref in spec.inputs.values() if isinstance(ref, ArenaRef)]


@dataclass
class Harness:
    """`folder` is what Client(endpoint=...) takes; the rest lives on the loop's thread."""

    folder: Path
    loop: Loop
    arena: Arena
    engine: FakeEngine
    core: Core
    server: Server
    journal: MemoryJournal

    def ask(self, function: Callable[[], T]) -> T:
        """What `function` returns on the loop's thread, after all that was sent there before."""
        answer: Future[T] = Future()
        self.loop.call_soon_threadsafe(lambda: answer.set_result(function()))
        return answer.result(60)

    def until(self, condition: Callable[[], bool]) -> bool:
        """Whether it comes to `condition` within a minute; looked at in each round of the loop."""
        deadline = time.monotonic() + UNTIL_SECONDS
        while not self.ask(condition):
            if time.monotonic() > deadline:
                return False
        return True


@contextlib.contextmanager
def daemon(
    folder: Path, limits: Limits | None = None, size: int = 64 << 20, first_segment: int = 1
) -> Iterator[Harness]:
    """Serve in `folder` until the end of the block."""
    with contextlib.ExitStack() as stack:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        loop, arena = Loop(), Arena(size, first_segment)
        stack.callback(loop.close)
        stack.callback(arena.close)
        engine = FakeEngine(arena)
        endpoint = folder / "control.sock"
        daemon_info = DaemonInfo(os.getpid(), __version__, str(endpoint), uid=os.getuid())
        core = Core(daemon_info, limits or Limits())
        journal = MemoryJournal(loop)
        server = Server(
            core, loop, arena, engine, journal, context, endpoint, folder / "session.sock"
        )
        stack.callback(server.close_sessions)
        stack.callback(context.term)
        stack.callback(server.close)
        server.open()
        thread = threading.Thread(target=loop.run)
        thread.start()
        stack.callback(thread.join)
        stack.callback(loop.stop)
        yield Harness(folder, loop, arena, engine, core, server, journal)
