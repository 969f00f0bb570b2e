"""One entry of the fleet: a device process across restarts, its outbox and its attachments."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from hetsched.devices.process_spec import ProcessSpec
from hetsched.engine.processes.device_process import DeviceProcess
from hetsched.engine.processes.process_watch import ProcessWatch
from hetsched.errors import InternalError
from hetsched.transport.device_messages import (
    Attach,
    Command,
    CommandBatch,
    Detach,
    DeviceCommand,
)
from hetsched.transport.loop import Loop, Timer

log = logging.getLogger(__name__)

MAX_FAILED_STARTS = 3
"""Consecutive deaths before Hello after which the process isn't restarted."""
MAX_BATCH = 64
"""Maximum commands in one message, which must fit into a socket's buffer."""
LATE_SECONDS = 0.05
"""How long a command may wait for others if no process waits for what it does: the end of a job
needs no message, and wakes no threads on cores that the client needs, if another job follows.
Arbitrary."""


@dataclass
class HostedProcess:
    """The fleet's entry for one process.

    Attributes
    ----------
    process : DeviceProcess or None
        None while it isn't running.
    is_ready : bool
        It has sent Hello and accepts commands.
    was_ready : bool
        It or a predecessor has sent Hello.
    on_demand : bool
        It starts when first needed, and hasn't been needed so far.
    failed_starts : int
        Consecutive ones.
    kill_reason : str
        Why the running process was killed; "" if it wasn't.
    overdue_device : str
        The device because of which it was killed; "" if it wasn't for one.
    is_stuck : bool
        It was killed and doesn't end; no other is started before it has ended.
    on_end : callable
        To be called when a stuck process has ended.
    watch : ProcessWatch or None
        The deadlines of the running process.
    threads : tuple of tuple of int
        Identifiers of each device's threads.
    outbox : list of DeviceCommand
        To be sent with the next `flush`.
    attached : set of int
        Keys of its attached segments and files.
    """

    spec: ProcessSpec
    process: DeviceProcess | None = None
    is_ready: bool = False
    was_ready: bool = False
    on_demand: bool = field(init=False)
    failed_starts: int = 0
    kill_reason: str = ""
    overdue_device: str = ""
    is_stuck: bool = False
    on_end: Callable[[], None] = lambda: None
    watch: ProcessWatch | None = None
    threads: tuple[tuple[int, ...], ...] = ()
    outbox: list[DeviceCommand] = field(default_factory=list)
    attached: set[int] = field(default_factory=set)
    _is_flush_due: bool = field(default=False, init=False)
    _late_flush: Timer | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.on_demand = self.spec.lazy

    @property
    def device_names(self) -> tuple[str, ...]:
        """Its devices, by index."""
        return spec_names(self.spec)

    @property
    def is_abandoned(self) -> bool:
        """Whether it failed to start too often and is never restarted."""
        return self.failed_starts >= MAX_FAILED_STARTS

    @property
    def is_unusable(self) -> bool:
        """Whether nothing can be expected from it at present."""
        return self.is_abandoned or self.is_stuck

    @property
    def is_starting(self) -> bool:
        """Whether it will be ready, or abandoned."""
        return not (self.is_ready or self.on_demand or self.is_unusable)

    def started(self, process: DeviceProcess, watch: ProcessWatch) -> None:
        """Record a new process, which has no attachments yet."""
        self.process, self.watch = process, watch
        self.kill_reason = self.overdue_device = ""
        self.attached.clear()
        self.outbox.clear()
        self._late_flush = None

    def ended(self) -> None:
        """Record the death of the process."""
        if self.watch is not None:
            self.watch.close()
        self.watch = None
        self.is_stuck = False
        self.failed_starts = 0 if self.is_ready else self.failed_starts + 1
        self.is_ready = False
        self.process = None

    def join(self, grace: float, kill_grace: float) -> None:
        """Wait `grace` seconds for the end; then kill it, and wait `kill_grace` seconds."""
        assert self.process is not None
        if self.process.join(grace, 0.0 if self.is_stuck else kill_grace) is None:
            names = ", ".join(self.device_names)
            log.error("the process of %s, pid %d, doesn't end", names, self.process.pid)

    def culprits(self) -> tuple[str, ...]:
        """Return the device whose thread has crashed or was overdue, if known; after the end."""
        if self.overdue_device:
            return (self.overdue_device,)
        if self.process is None:
            return ()
        crashed = self.process.stderr.crashed_thread
        named_threads = zip(self.device_names, self.threads, strict=False)
        return tuple(name for name, threads in named_threads if crashed in threads)

    def post(self, command: DeviceCommand, loop: Loop) -> None:
        """Send a command after this round of the loop, in one message with others."""
        self.outbox.append(command)
        if not self._is_flush_due:
            self._is_flush_due = True
            loop.call_soon(self.flush)

    def post_late(self, command: DeviceCommand, loop: Loop) -> None:
        """Send a command before the next one, in `LATE_SECONDS` at the latest."""
        self.outbox.append(command)
        if not self._is_flush_due and self._late_flush is None:
            self._late_flush = loop.call_later(LATE_SECONDS, self.flush)

    def flush(self) -> None:
        """Send the outbox in as few messages as possible."""
        self._is_flush_due = False
        if self._late_flush is not None:
            self._late_flush.cancel()
            self._late_flush = None
        commands, self.outbox = self.outbox, []
        if self.process is None:
            return
        for start in range(0, len(commands), MAX_BATCH):
            batch = commands[start : start + MAX_BATCH]
            self._send(batch[0] if len(batch) == 1 else CommandBatch(tuple(batch)))

    def attach(self, key: int, fd: int, nbytes: int, kind: str) -> None:
        """Send `fd` as attachment `key`, once."""
        if self.process is None or not self.is_ready or key in self.attached:
            return
        self.flush()  # earlier commands refer to earlier attachments
        self._send(Attach(key, kind, nbytes), fds=(fd,))
        self.attached.add(key)

    def detach(self, keys: Iterable[int]) -> None:
        """Detach those of `keys` that are attached."""
        attached = tuple(key for key in keys if key in self.attached)
        if attached and self.process is not None:
            self.attached.difference_update(attached)
            self.flush()
            self._send(Detach(attached))

    def _send(self, command: Command, fds: Sequence[int] = ()) -> None:
        """Send to the running process; kill one that hangs, so that its job goes on elsewhere."""
        assert self.process is not None
        if self.watch is not None:
            self.watch.on_sent(command)
        try:
            self.process.send(command, fds)
        except InternalError as error:
            if self.process.is_alive:
                log.error("%s: %s; killing it", ", ".join(self.device_names), error)
            self.process.kill()


def spec_names(spec: ProcessSpec) -> tuple[str, ...]:
    """Return the names of the devices of a process."""
    return tuple(info.name for info in spec.devices)
