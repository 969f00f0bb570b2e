"""The device processes of one engine: starting, watching, restarting; a listener gets events."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from hetsched.device import DeviceInfo
from hetsched.devices.process_spec import Probe, ProcessSpec
from hetsched.engine.deadlines import DEFAULT_DEADLINES, Deadlines
from hetsched.engine.processes.process import DeviceProcess
from hetsched.engine.processes.template import Template, TemplateLost
from hetsched.errors import InternalError
from hetsched.transport.device_messages import (
    AttemptCommand,
    AttemptEvent,
    CommandFailed,
    Event,
    Hello,
    MemoryReading,
)
from hetsched.transport.loop import Loop, Timer
from hetsched.units import format_seconds

log = logging.getLogger(__name__)

_sched_getcpu = ctypes.CDLL(None).sched_getcpu

MAX_FAILED_STARTS = 3
"""Consecutive deaths before Hello after which a process isn't restarted."""
RESTART_SECONDS = 0.05
"""Delay between a death before Hello and the next start, which may fail again."""
RETRY_SECONDS = 1.0
"""Delay after the operating system refused to start a process."""
TAIL_BYTES = 4096
"""Of the counter of a group of cores that share tails: a page."""
MAX_SHORTAGE_BYTES = 64 << 20
"""A reading that is lower by less changes nothing: the device's reserve is larger."""
MAX_UNUSED_FRACTION = 1 / 16
"""A reading that is higher by less changes nothing: with each change, all plans are dropped."""


def steady_memory(previous: int | None, reading: int) -> int:
    """Return the bytes to plan with: `previous`, unless `reading` is clearly different. Pure."""
    if previous is None:
        return reading
    most = previous + max(MAX_SHORTAGE_BYTES, int(MAX_UNUSED_FRACTION * previous))
    return previous if previous - MAX_SHORTAGE_BYTES <= reading <= most else reading


@dataclass(frozen=True)
class FleetListener:
    """Callbacks, all on the loop's thread."""

    on_event: Callable[[str, AttemptEvent], None]
    """(device, event)"""
    on_lost: Callable[[str, str], None]
    """(device, reason): its process has died."""
    on_ready: Callable[[str], None]
    """(device): its process takes commands."""
    on_stuck: Callable[[frozenset[int]], Callable[[], None]] = lambda keys: lambda: None
    """(keys of attachments): a killed process that doesn't end may still write to these. Returns
    what to call when it has ended."""
    on_memory: Callable[[str, bool, bool], None] = lambda device, has_changed, is_released: None
    """(device, has_changed, is_released): jobs may use another amount of its memory; it has
    released what it kept of earlier jobs."""


@dataclass(eq=False)
class Host:
    """One device and its process, across restarts.

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
    is_stuck : bool
        It was killed and doesn't end; no other is started before it has ended.
    absence : str
        Why the device can't be used; "" if it can or may.
    deadline : Timer or None
        Of its hello, then of its end after a kill.
    """

    name: str
    spec: ProcessSpec
    info: DeviceInfo
    on_demand: bool
    process: DeviceProcess | None = None
    is_ready: bool = False
    was_ready: bool = False
    failed_starts: int = 0
    kill_reason: str = ""
    is_stuck: bool = False
    absence: str = ""
    deadline: Timer | None = None
    on_end: Callable[[], None] = field(default=lambda: None)

    @property
    def is_starting(self) -> bool:
        """Whether it will be ready, or abandoned."""
        return not (self.is_ready or self.on_demand or self.absence)

    @property
    def has_started_or_failed(self) -> bool:
        return self.was_ready or self.failed_starts > 0 or bool(self.absence)

    def expect(self, deadline: Timer | None) -> None:
        """Replace the deadline."""
        if self.deadline is not None:
            self.deadline.cancel()
        self.deadline = deadline


def _is_settled(hosts: Sequence[Host], with_restarts: bool) -> bool:
    if with_restarts:
        return not any(host.is_starting for host in hosts)
    eager = [host for host in hosts if not host.on_demand]
    if any(host.is_ready for host in eager):
        return all(host.has_started_or_failed for host in eager)
    return all(host.absence for host in eager)


class Fleet:
    """All device processes. A device is ready once its process has sent Hello."""

    def __init__(
        self,
        probe: Probe,
        loop: Loop,
        listener: FleetListener,
        deadlines: Deadlines = DEFAULT_DEADLINES,
    ) -> None:
        self._loop = loop
        self._deadlines = deadlines
        self._listener = listener
        self._probed_absent = dict(probe.absent)
        self._hosts: dict[str, Host] = {}
        self._template: Template | None = None
        self._for_template: list[Host] = []
        """What it will fork once it is ready."""
        self._template_deadline: Timer | None = None
        self._tails: dict[str, int] = {}
        """Group of cores -> the memfd with the counter of their tails."""
        self._unsent: list[Host] = []
        """Their processes have commands to be sent."""
        self._waiting: list[asyncio.Future[None]] = []
        self._closing = self._killed = False
        for spec in probe.processes:
            self._add(spec)

    def start(self) -> None:
        """Start all processes except on-demand ones."""
        for host in self._hosts.values():
            if not host.on_demand:
                self._spawn(host)

    def update(self, probe: Probe) -> tuple[str, ...]:
        """Start the processes of devices that were missing before; return their names."""
        self._probed_absent = dict(probe.absent)
        new = [spec for spec in probe.processes if spec.device.name not in self._hosts]
        for host in [self._add(spec) for spec in new]:
            if not host.on_demand:
                self._spawn(host)
        return tuple(spec.device.name for spec in new)

    def retry_abandoned(self) -> None:
        """Start the processes again that have failed to start too often."""
        for host in self._hosts.values():
            if host.absence and not host.is_stuck and host.process is None:
                host.failed_starts, host.absence = 0, ""
                self._spawn(host)

    # ---- the devices

    @property
    def infos(self) -> tuple[DeviceInfo, ...]:
        """All devices that are or may become ready, in order."""
        return tuple([host.info for host in self._hosts.values() if not host.absence])

    @property
    def absent(self) -> Mapping[str, str]:
        """Unusable device or kind -> reason."""
        unusable = {host.name: host.absence for host in self._hosts.values() if host.absence}
        return {**self._probed_absent, **unusable}

    def info(self, device: str) -> DeviceInfo:
        """Return the description of a device, even if it is no longer usable."""
        return self._hosts[device].info

    def any_remaining(self, devices: Iterable[str]) -> bool:
        """Return whether any of these devices is or may become ready."""
        return not all(self._hosts[name].absence for name in devices)

    def ready(self) -> set[str]:
        """Return the devices that accept commands."""
        return {host.name for host in self._hosts.values() if host.is_ready}

    def unstarted(self) -> set[str]:
        """Return the devices whose on-demand process hasn't been needed so far."""
        return {host.name for host in self._hosts.values() if host.on_demand}

    def starting(self, devices: Iterable[str]) -> frozenset[str]:
        """Return those of `devices` that aren't ready yet, or not again."""
        return frozenset([name for name in devices if self._hosts[name].is_starting])

    def usable(self, devices: Iterable[str]) -> list[DeviceInfo]:
        """Return those of `devices` that are ready, or will be once started."""
        names = set(devices)
        return [
            host.info
            for host in self._hosts.values()
            if host.name in names and (host.is_ready or (host.on_demand and not host.absence))
        ]

    def pids(self) -> Mapping[str, int]:
        """Return device -> process id, for running processes. Safe from any thread."""
        return {
            host.name: process.pid
            for host in list(self._hosts.values())
            if (process := host.process) is not None  # the loop's thread may end it now
        }

    # ---- waiting for processes

    async def started(self, devices: Iterable[str]) -> None:
        """Start the unstarted ones of `devices`; wait until they are ready, or have failed to."""
        hosts = [host for name in devices if (host := self._hosts[name]).on_demand]
        if not hosts:
            return
        for host in hosts:
            if not host.absence:
                self._spawn(host)
            host.on_demand = False
        while not all(host.has_started_or_failed for host in hosts):
            await self._next_change()

    async def settled(self, devices: Iterable[str], *, with_restarts: bool = False) -> None:
        """Wait until it is certain which of `devices` are usable.

        Until processes that start for the first time are ready or have failed; for one that
        restarts only `with_restarts`, or if no other is ready; never for on-demand ones.
        """
        hosts = [self._hosts[name] for name in devices]
        while not _is_settled(hosts, with_restarts):
            await self._next_change()

    def _next_change(self) -> Awaitable[None]:
        """Return a future of the next start or end of a process."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(future)
        return future

    def _note_change(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    # ---- commands

    def send(self, device: str, command: AttemptCommand) -> None:
        """Send a command after this round of the loop, unless the device is lost."""
        host = self._hosts[device]
        if host.process is not None and host.is_ready:
            host.process.send(command)
            self._flush_soon(host)

    def attach(self, device: str, key: int, fd: int, nbytes: int, kind: str) -> None:
        """Attach segment or file `key` to the process of `device`, unless already attached.

        Raises OSError: no descriptors are left.
        """
        host = self._hosts[device]
        if host.process is not None and host.is_ready and key not in host.process.attached:
            try:
                host.process.attach(key, fd, nbytes, kind)
            except InternalError as error:
                self._kill(host, host.process, str(error))
            self._flush_soon(host)

    def attached(self, device: str) -> Collection[int]:
        """Return the keys of what is attached to the process of `device`."""
        process = self._hosts[device].process
        return () if process is None else process.attached

    def detach(self, keys: Collection[int]) -> None:
        """Detach these objects from every process."""
        for host in self._hosts.values():
            if host.process is not None and not host.process.attached.isdisjoint(keys):
                host.process.detach(keys)
                self._flush_soon(host)

    def _flush_soon(self, host: Host) -> None:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        if host not in self._unsent:
            self._unsent.append(host)

    def _flush(self) -> None:
        """Send all commands, those for the core of this thread last: they wake a process there.

        It would preempt this thread before other cores have got theirs, for some milliseconds.
        """
        unsent, self._unsent = self._unsent, []
        own = _sched_getcpu()
        for host in sorted(unsent, key=lambda host: own in host.info.cores):
            process = host.process
            if process is None or host.is_stuck:
                continue
            try:
                process.flush()
            except InternalError as error:  # so that its job goes on elsewhere
                self._kill(host, process, str(error))
            except OSError as error:
                log.warning("%s: no commands can be sent: %s", host.name, error)
                self._unsent.append(host)
        if self._unsent:
            self._loop.call_later(RETRY_SECONDS, self._flush)

    def silent_seconds(self, device: str, since: float) -> float:
        """Return for how long a device that works since then has given no sign of life."""
        process = self._hosts[device].process
        return 0.0 if process is None else process.silent_seconds(since)

    def kill_process_of(self, device: str, reason: str) -> None:
        """Kill the process of `device`, which has missed a deadline; its loss follows.

        If it doesn't even end then, the device is lost as well, until it has ended.
        """
        host = self._hosts[device]
        if host.process is not None:
            self._kill(host, host.process, reason)

    # ---- the end

    def close(self) -> None:
        """Stop all processes and wait for their end, or for a deadline, whichever is first."""
        self._closing = True
        hosts = [host for host in self._hosts.values() if host.process is not None]
        for host in hosts:
            assert host.process is not None
            self._unwatch(host.process)
            host.expect(None)
            if not host.is_stuck:
                host.process.stop()
        deadline = time.monotonic() + self._deadlines.exit
        for host in hosts:
            assert host.process is not None
            grace = max(0.0, deadline - time.monotonic())
            kill_grace = 0.0 if host.is_stuck else self._deadlines.exit / 2
            if not host.process.join(grace, kill_grace):
                log.error("the process of %s, pid %d, doesn't end", host.name, host.process.pid)
        self._drop_template()
        for fd in self._tails.values():
            os.close(fd)
        self._tails.clear()

    def kill(self) -> None:
        """Kill all processes for good, without logging their deaths. Safe from any thread."""
        self._killed = True
        for host in list(self._hosts.values()):
            if (process := host.process) is not None:
                process.kill()

    # ---- starting

    def _add(self, spec: ProcessSpec) -> Host:
        host = self._hosts[spec.device.name] = Host(spec.device.name, spec, spec.device, spec.lazy)
        return host

    def _spawn(self, host: Host) -> None:
        if self._closing or self._killed or host.process is not None:
            return
        try:
            template = self._ready_template() if host.spec.forks else None
            if host.spec.forks and template is None:
                self._for_template.append(host)
                return
            process = DeviceProcess(host.spec, template)
        except TemplateLost as error:
            self._drop_template()
            self._on_refused_start(host, str(error))
            return
        except OSError as error:  # no descriptors or memory: retry later
            self._on_refused_start(host, str(error))
            return
        host.process, host.kill_reason = process, ""
        hello = self._deadlines.start
        reason = f"its device wasn't open after {format_seconds(hello)} (deadlines.start)"
        host.expect(self._loop.call_later(hello, lambda: self._kill(host, process, reason)))
        self._loop.add_reader(
            process.fileno(), functools.partial(self._read_events, host, process)
        )
        self._loop.add_reader(process.stderr, lambda: self._read_stderr(process))
        self._loop.add_reader(process.pidfd, lambda: self._on_death(host, process))

    def _on_refused_start(self, host: Host, reason: str) -> None:
        log.warning("device process of %s can't be started: %s", host.name, reason)
        if self._fail_start(host, reason):
            self._listener.on_lost(host.name, reason)
        else:
            self._loop.call_later(RETRY_SECONDS, lambda: self._spawn(host))
        self._note_change()

    def _fail_start(self, host: Host, reason: str) -> bool:
        """Count a failed start; return whether it was the last one."""
        host.failed_starts += 1
        if host.failed_starts < MAX_FAILED_STARTS:
            return False
        host.absence = f"its process failed to start {MAX_FAILED_STARTS} times: {reason}"
        return True

    def _unwatch(self, process: DeviceProcess) -> None:
        for fd in (process.fileno(), process.stderr, process.pidfd):
            self._loop.remove_reader(fd)

    # ---- the template

    def _ready_template(self) -> Template | None:
        """Return the template; None if it is still starting: `_on_template` goes on. OSError."""
        if self._template is None:
            template = self._template = Template()
            self._loop.add_reader(template.fileno(), lambda: self._on_template(template))
            self._template_deadline = self._loop.call_later(
                self._deadlines.start, self._template.kill
            )
        return self._template if self._template.is_ready else None

    def _on_template(self, template: Template) -> None:
        """Fork what waits for the template, which is ready or has ended."""
        waiting, self._for_template = self._for_template, []
        if template.on_readable():
            if self._template_deadline is not None:
                self._template_deadline.cancel()
            for host in waiting:
                self._spawn(host)
            return
        reason = template.end_reason()
        self._drop_template()
        for host in waiting:
            self._on_refused_start(host, reason)

    def _drop_template(self) -> None:
        if self._template_deadline is not None:
            self._template_deadline.cancel()
        if self._template is not None:
            self._loop.remove_reader(self._template.fileno())
            self._template.close()
            self._template = None

    # ---- events of a process

    def _read_stderr(self, process: DeviceProcess) -> None:
        if not process.read_stderr():
            self._loop.remove_reader(process.stderr)

    def _read_events(self, host: Host, process: DeviceProcess) -> bool:
        """Handle messages; return whether there were any.

        An error in doing so costs the process, or its job would wait.
        """
        events: list[Event] = []
        try:
            events = process.receive()
            for event in events:
                self._on_event(host, event)
        except Exception as error:
            log.exception("%s: a message can't be handled", host.name)
            process.ended = True
            self._kill(host, process, f"a message can't be handled: {error}")
        if process.ended:
            self._loop.remove_reader(process.fileno())
        return bool(events) and not process.ended

    def _on_event(self, host: Host, event: Event) -> None:
        if isinstance(event, Hello):
            self._on_hello(host, event)
        elif isinstance(event, MemoryReading):
            previous = host.info.memory
            memory = steady_memory(previous, event.nbytes)
            host.info = msgspec.structs.replace(host.info, memory=memory)
            self._listener.on_memory(host.name, memory != previous, event.released)
        elif isinstance(event, CommandFailed) and not event.attempt:
            log.warning("%s: between two jobs: %s", host.name, event.error.message)
        else:
            self._listener.on_event(host.name, event)

    def _on_hello(self, host: Host, hello: Hello) -> None:
        assert host.process is not None, "it has sent a message"
        if host.kill_reason:
            return
        host.expect(None)
        host.is_ready = host.was_ready = True
        host.on_demand = False
        host.failed_starts = 0
        host.info = hello.info
        if host.info.tail_group:
            host.process.attach(0, self._tail(host.info.tail_group), TAIL_BYTES, "tail")
            self._flush_soon(host)
        log.info("device ready: %s", host.name)
        self._listener.on_ready(host.name)
        self._note_change()

    def _tail(self, group: str) -> int:
        if group not in self._tails:
            fd = os.memfd_create(f"hetsched-tails-{group}", os.MFD_CLOEXEC)
            os.ftruncate(fd, TAIL_BYTES)
            self._tails[group] = fd
        return self._tails[group]

    # ---- deaths

    def _kill(self, host: Host, process: DeviceProcess, reason: str) -> None:
        if host.process is not process or host.kill_reason or self._closing:
            return
        log.warning("killing the device process of %s: %s", host.name, reason)
        host.kill_reason = reason
        process.kill()
        host.expect(
            self._loop.call_later(self._deadlines.exit, lambda: self._on_stuck(host, process))
        )

    def _on_stuck(self, host: Host, process: DeviceProcess) -> None:
        """Give up the device of a killed process until it ends: two must not share a GPU."""
        reason = f"killed, {host.kill_reason}, but process {process.pid} doesn't end"
        log.error("device process of %s: %s", host.name, reason)
        self._loop.remove_reader(process.fileno())
        host.is_stuck, host.is_ready, host.absence = True, False, reason
        host.on_end = self._listener.on_stuck(frozenset(process.attached))
        self._listener.on_lost(host.name, reason)
        self._note_change()

    def _on_death(self, host: Host, process: DeviceProcess) -> None:
        """Handle the remaining messages of the process, then its death."""
        if host.process is not process:
            return
        if host.is_stuck:
            self._unwatch(process)
            process.close()
            host.process, host.is_stuck, host.absence = None, False, ""
            host.failed_starts = 0
            host.on_end()
            self._loop.call_later(RESTART_SECONDS, lambda: self._spawn(host))
            return
        while self._read_events(host, process):  # a child process may hold the socket open
            pass
        self._unwatch(process)
        exit_reason = process.exit_reason()
        reason = host.kill_reason or exit_reason
        was_ready, host.is_ready, host.process = host.is_ready, False, None
        host.expect(None)
        if not self._killed:
            log.warning("device process of %s died: %s", host.name, reason)
        is_last = not was_ready and self._fail_start(host, reason)
        if not is_last:
            delay = 0.0 if was_ready else RESTART_SECONDS
            self._loop.call_later(delay, lambda: self._spawn(host))
        if was_ready or is_last:  # nothing waits for its restart
            self._listener.on_lost(host.name, reason)
        self._note_change()
