"""A daemon in a thread of the test, with an engine that only doubles its input."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import zmq

from hetsched.client.control import Control
from hetsched.daemon.requests import Requests
from hetsched.daemon.router import Router
from hetsched.daemon.sessions import Sessions
from hetsched.device import DeviceInfo
from hetsched.errors import (
    DataError,
    ErrorRecord,
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
    Running,
)
from hetsched.jobs.durability import Durability
from hetsched.jobs.followers import Followers
from hetsched.jobs.queue import JobQueue
from hetsched.jobs.table import JobRecord, JobTable, Limits
from hetsched.store.journal import Journal
from hetsched.store.journal_records import NumberBlocks
from hetsched.transport import messages
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop
from hetsched.transport.messages import DeviceActivity
from hetsched.transport.sockets import connect, listen, receive_message
from hetsched.units import NUMBER_LIMIT

T = TypeVar("T")

UNTIL_SECONDS = 60.0
"""For what other threads and processes do, however slow the machine is."""


class FakeEngine:
    """The engine's interface. Workload "double" is done at once, "wait" when it is told to be.

    "queue" never starts: it is held, released and prioritized.
    """

    def __init__(self, arena: Arena, durability: Durability) -> None:
        self.arena, self.durability = arena, durability
        self.queue = JobQueue()
        self.waiting: dict[int, JobRecord] = {}
        self.specs: list[JobSpec] = []
        self.probes = 0
        self.disabled: set[str] = set()

    def admit(self, job: JobRecord) -> None:
        if job.spec.workload == "refuse":
            self.durability.refuse(job, to_record(DataError("no")))
            return
        if job.spec.workload == "queue":
            job.is_durable = False  # `life` has no journal for its changes
        self.specs.append(job.spec)
        for ref in _inputs(job.spec):
            self.arena.retain(ref.segment)
        asyncio.get_running_loop().create_task(self._enqueue(job))

    async def _enqueue(self, job: JobRecord) -> None:
        await self.durability.accept(job)
        self.queue.add(job, time.time())
        self.durability.change(job, self.queue.position(job))
        self.waiting[job.number] = job
        if job.spec.workload == "queue":
            return
        self.queue.start(job)
        self.durability.change(job, Running(job.number, "computing"))
        if job.spec.workload == "double":
            self.finish(job.number)

    def finish(self, number: int) -> None:
        job = self.waiting.pop(number)
        refs = _inputs(job.spec)
        results = {"Y": self._double(refs[0], job.spec)} if refs else {}
        for ref in refs:
            self.arena.release(ref.segment)
        self.queue.end(job, "done")
        self.durability.report_end(job, Done(number, report(number, "done"), results))

    def progress(self, number: int, text: str = "") -> None:
        self.durability.change(self.waiting[number], Running(number, "computing", text=text))

    def cancel(self, job: JobRecord) -> None:
        number = job.number
        if self.waiting.pop(number, None) is not None:
            for ref in _inputs(job.spec):
                self.arena.release(ref.segment)
            self.queue.end(job, "cancelled")
            error = ErrorRecord(130, f"job {number} was cancelled")
            self.durability.report_end(job, Failed(number, report(number, "cancelled"), error))

    def change_queue(self, job: JobRecord, change: messages.Hold | messages.Prioritize) -> bool:
        if isinstance(change, messages.Hold):
            is_changed = self.queue.hold(job, change.is_held)
        else:
            is_changed = self.queue.prioritize(job, change.priority)
        job.state = self.queue.position(job)
        return is_changed

    def rest(self) -> None:
        """There are no processes to end."""

    def is_idle(self) -> bool:
        return self.queue.is_idle

    def explain(
        self, job: JobRecord, then: Callable[[Explanation | None, BaseException | None], None]
    ) -> None:
        """Job number 1 is explained, of the others nothing is known any more."""
        if job.number == 1:
            then(Explanation(job=1, state="done", workload="double", load=1), None)
        else:
            then(None, InputMissing(f"job {job.number} ended too long ago"))

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
    requests: Requests
    router: Router
    journal: Journal

    def ask(self, function: Callable[[], T]) -> T:
        """What `function` returns on the loop's thread, after all that was sent there before."""
        answer: Future[T] = Future()
        self.loop.call_soon_threadsafe(lambda: answer.set_result(function()))
        return answer.result(60)

    def serves(self) -> bool:
        with Control(self.folder) as client:
            return client.ping().pid == os.getpid()

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
        table = JobTable(limits or Limits(), NumberBlocks(1, NUMBER_LIMIT - 1))
        durability = Durability(table, Followers(loop), arena, loop)
        engine = FakeEngine(arena, durability)
        endpoint = folder / "control.sock"
        sessions = Sessions(endpoint, durability, cast(Any, engine), arena, loop)
        state = stack.enter_context(tempfile.TemporaryDirectory(prefix="hs-"))
        journal = Journal(Path(state) / "journal.db", loop.call_soon_threadsafe)
        stack.callback(journal.close, UNTIL_SECONDS)
        requests = Requests(sessions, durability, cast(Any, engine), arena, loop, journal)
        router = Router(requests, loop, context, table.limits.unread)
        stack.callback(sessions.end_all)
        stack.callback(context.term)
        stack.callback(sessions.close)
        stack.callback(router.close)
        for path, kind, accept in (
            (endpoint, socket.SOCK_STREAM, router.open),
            (folder / "session.sock", socket.SOCK_SEQPACKET, sessions.open),
        ):
            accept(listen(path, kind))
            stack.callback(path.unlink)
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        stack.callback(thread.join)
        stack.callback(loop.stop)
        yield Harness(folder, loop, arena, engine, requests, router, journal)


class RawClient:
    """Both sockets of a client. It has sent its hello, unless it `is_silent`."""

    def __init__(self, harness: Harness, is_silent: bool = False) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.session = connect(harness.folder / "session.sock")
        self.session.settimeout(10)
        self.token = "" if is_silent else self.greet()
        self.dealer = self._context.socket(zmq.DEALER)
        for option, value in ((zmq.LINGER, 0), (zmq.RCVTIMEO, 10_000), (zmq.RCVHWM, 1)):
            self.dealer.setsockopt(option, value)
        self.dealer.connect(f"ipc://{harness.folder / 'control.sock'}")

    def close(self) -> None:
        self.session.close()
        self.dealer.close()
        self._context.term()

    def greet(self) -> str:
        self.session.send(messages.encode(messages.Hello(messages.PROTOCOL, "test", os.getpid())))
        welcome = self.session_answer()
        assert isinstance(welcome, messages.Welcome)
        return welcome.token

    def session_answer(self) -> messages.SessionAnswer | None:
        """The next message; None: the session has been closed."""
        payload, _ = receive_message(self.session, 65536)
        decode: messages.Decoder[messages.SessionAnswer] = messages.Decoder(messages.SessionAnswer)
        return decode(payload) if payload else None

    def ask(self, number: Any, request: Any) -> None:
        envelope = {"token": self.token, "number": number, "request": request}
        self.dealer.send(messages.encode(envelope))

    def reply(self) -> messages.Reply:
        decode: messages.Decoder[messages.Reply] = messages.Decoder(messages.Reply)
        return decode(self.dealer.recv())
