"""The device processes of one engine: starting, watching, restarting."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from hetsched.config import DeadlinesConfig
from hetsched.device import DeviceInfo
from hetsched.device_process.arrays import TailCounter
from hetsched.devices.probe import Probe, ProcessSpec
from hetsched.engine.processes.process import (
    DeviceLink,
    DeviceProcess,
    DeviceThread,
    Template,
    TemplateLost,
)
from hetsched.errors import InternalError
from hetsched.transport import device_messages
from hetsched.transport.arena import Arena, Segment
from hetsched.transport.loop import Loop, Timer
from hetsched.units import format_seconds

if TYPE_CHECKING:
    from hetsched.engine.scheduler import Scheduler

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

State = Literal["unneeded", "starting", "restarting", "ready", "absent"]
"""Of a device.

unneeded: its process starts when a job needs it; that of a core, when the next job starts.
starting: for the first time.
restarting: after a death, or a start that failed.
ready: it has sent Hello and takes commands.
absent: it has failed to start too often; or it was killed and its process doesn't end.
"""


@dataclass(frozen=True, slots=True)
class Message:
    """`device` has sent `message` about an attempt."""

    device: str
    message: device_messages.AttemptEvent


@dataclass(frozen=True, slots=True)
class Lost:
    """The process of `device` died."""

    device: str
    reason: str
    counts: bool = True  # Whether the job that hears of it may be the cause


@dataclass(frozen=True, slots=True)
class Joined:
    """The process of `device` has started or restarted, without any state of a job."""

    device: str


@dataclass(eq=False)
class Host:
    spec: ProcessSpec
    info: DeviceInfo
    state: State = "unneeded"
    process: DeviceLink | None = None
    failed_starts: int = 0  # Consecutive ones
    kill_reason: str = ""  # Why the running process was killed; "" if it wasn't
    absence: str = ""  # Why the device is absent
    deadline: Timer | None = None  # Of its hello, then of its end after a kill
    on_end: Callable[[], None] = field(default=lambda: None)  # Of a stuck process

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def is_stuck(self) -> bool:
        """Whether its process was killed and doesn't end: no other is started before it has."""
        return self.state == "absent" and self.process is not None

    def expect(self, deadline: Timer | None) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
        self.deadline = deadline


class Fleet:
    listener: Scheduler
    """Told what becomes of devices and what they say. Set it before `start`."""

    def __init__(self, probe: Probe, loop: Loop, deadlines: DeadlinesConfig, arena: Arena) -> None:
        self._loop, self._arena = loop, arena
        self._deadlines = deadlines
        arena.on_discard.append(lambda segment: self.detach([segment]))
        self._probed_absent = dict(probe.absent)
        self._hosts = {spec.device.name: Host(spec, spec.device) for spec in probe.processes}
        self._template: Template | None = None
        self._for_template: list[Host] = []  # What it will fork once it is ready
        # Group of cores -> the memfd with the counter of their tails
        self._tails: dict[str, int] = {}
        self._in_threads = False  # Loops run in threads of this process
        self._thread_tails: defaultdict[str, TailCounter] = defaultdict(
            lambda: TailCounter(bytearray(TAIL_BYTES), threading.Lock())
        )
        self._unsent: list[Host] = []  # Their processes have commands to be sent
        self._changed = asyncio.Event()  # Set at the next start or end of a process
        self._closing = self._killed = False
        # No job has needed a device since `rest`: those that were starting then rest, too
        self._is_resting = False

    def start(self) -> None:
        """Start all processes except those that few jobs need; otherwise the first job does."""
        for host in self._hosts.values():
            if host.state == "unneeded" and not host.spec.lazy:
                self._start_needed(host)

    def update(self, probe: Probe) -> None:
        """Start devices that were missing before, and again those that have failed to start."""
        self._probed_absent = dict(probe.absent)
        for host in self._hosts.values():
            if host.state == "absent" and not host.is_stuck:
                host.failed_starts, host.absence, host.state = 0, "", "restarting"
                self._spawn(host)
        for spec in probe.processes:
            if spec.device.name not in self._hosts:
                log.info("new device: %s", spec.device.name)
                self._hosts[spec.device.name] = Host(spec, spec.device)

    @property
    def infos(self) -> tuple[DeviceInfo, ...]:
        """All devices that are or may become ready, in order."""
        return tuple([host.info for host in self._hosts.values() if host.state != "absent"])

    @property
    def absent(self) -> dict[str, str]:
        """Unusable device or kind -> reason."""
        reasons = dict(self._probed_absent)
        for name, host in self._hosts.items():
            if host.state == "absent":
                reasons[name] = host.absence
        return reasons

    def info(self, device: str) -> DeviceInfo:
        """Return the description of a device, even if it is no longer usable."""
        return self._hosts[device].info

    def devices(self, *states: State) -> set[str]:
        """Return the devices in one of these states."""
        return {name for name, host in self._hosts.items() if host.state in states}

    def pids(self) -> dict[str, int]:
        """Return device -> id of its running process. Safe from any thread."""
        return {
            host.name: process.pid
            for host in list(self._hosts.values())
            if (process := host.process) is not None  # the loop's thread may end it now
        }

    def run_loops(self, devices: Iterable[str], *, in_threads: bool) -> None:
        """While no job runs, have loops end that don't run where the next job needs them."""
        self._in_threads = in_threads
        for host in [self._hosts[name] for name in devices]:
            if host.state == "ready" and not self._is_in_place(host):
                self._restart(host)

    def _is_in_place(self, host: Host) -> bool:
        return host.process is None or isinstance(host.process, DeviceThread) == self._in_threads

    def _restart(self, host: Host) -> None:
        """Start the loop of a device elsewhere, once it has ended here."""
        host.state = "starting"
        self._stop(host, "its job runs elsewhere")

    async def started(self, devices: Iterable[str]) -> None:
        """Start the unstarted ones of `devices`; wait until they are ready, or have failed to."""
        self._is_resting = False
        hosts = [host for name in devices if (host := self._hosts[name]).state == "unneeded"]
        for host in hosts:
            self._start_needed(host)
        while hosts and any(host.state == "starting" for host in hosts):
            await self._changed.wait()

    async def settled(self, devices: Collection[str], *, with_restarts: bool = False) -> None:
        """Wait for those of `devices` that start; for restarts if asked, or if none is ready."""
        self._is_resting = False
        self.start()  # all resting cores, not only those of `devices`
        while True:
            states = {self._hosts[name].state for name in devices}
            awaits_restarts = with_restarts or "ready" not in states
            if not ("starting" in states or (awaits_restarts and "restarting" in states)):
                return
            await self._changed.wait()

    def _note_change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def send(self, device: str, command: device_messages.AttemptCommand) -> None:
        """Send a command after this round of the loop, unless the device is lost."""
        host = self._hosts[device]
        if host.process is not None and host.state == "ready":
            host.process.send(command)
            self._flush_soon(host)

    def attach(self, device: str, key: int, source: Segment | int) -> None:
        """Attach a segment or an open file, unless it is. Raises OSError without descriptors."""
        host = self._hosts[device]
        process = host.process
        if process is None or host.state != "ready" or key in process.attached:
            return
        try:
            if isinstance(source, Segment):
                process.attach_segment(source)
            else:
                process.attach_file(key, source)
        except InternalError as error:
            self.kill_process(host.name, str(error))
        self._flush_soon(host)

    def attached(self, device: str) -> Collection[int]:
        """Return the keys of what is attached to the process of `device`."""
        process = self._hosts[device].process
        return () if process is None else process.attached

    def detach(self, keys: Collection[int]) -> None:
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
        if len(unsent) > 1:
            own = _sched_getcpu()
            unsent.sort(key=lambda host: own in host.info.cores)
        for host in unsent:
            if host.process is None or host.state == "absent":
                continue
            try:
                host.process.flush()
            except InternalError as error:  # so that its job goes on elsewhere
                self.kill_process(host.name, str(error))
            except OSError as error:
                log.warning("%s: no commands can be sent: %s", host.name, error)
                self._unsent.append(host)
        if self._unsent:
            self._loop.call_later(RETRY_SECONDS, self._flush)

    def silent_seconds(self, device: str, since: float) -> float:
        process = self._hosts[device].process
        return 0.0 if process is None else process.silent_seconds(since)

    def rest(self) -> None:
        """End the processes of cores, which no job uses; the next job forks them again."""
        self._is_resting = True
        for host in self._hosts.values():
            self._rest(host)

    def _rest(self, host: Host) -> None:
        if host.state == "ready" and (host.spec.forks or host.spec.lazy):
            host.state = "unneeded"
            self._stop(host, "it was idle")

    def _stop(self, host: Host, why: str) -> None:
        if host.process is None:
            return
        host.process.stop()
        stop = self._deadlines.device_stop
        reason = f"{why} and it didn't end"
        host.expect(self._loop.call_later(stop, self.kill_process, host.name, reason))
        self.listener.on_lost(host.name, why)

    def close(self) -> None:
        """Stop all processes and wait for their end, or for a deadline, whichever is first."""
        self._closing = True
        hosts = self._hosts.values()
        running = [(host, host.process) for host in hosts if host.process is not None]
        for host, process in running:
            self._unwatch(process)
            host.expect(None)
            if not host.is_stuck:
                process.stop()
        deadline = time.monotonic() + self._deadlines.device_stop
        for host, process in running:
            grace = max(0.0, deadline - time.monotonic())
            kill_grace = 0.0 if host.is_stuck else self._deadlines.device_stop / 2
            if not process.join(grace, kill_grace):
                log.error("%s: %s doesn't end", host.name, process.name)
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

    def _start_needed(self, host: Host) -> None:
        host.state = "starting"
        self._spawn(host)

    def _spawn(self, host: Host) -> None:
        if self._closing or self._killed or host.process is not None:
            return
        try:
            process: DeviceLink
            if self._in_threads:
                process = DeviceThread(host.spec)
            elif not host.spec.forks:
                process = DeviceProcess(host.spec, None)
            elif (template := self._ready_template()) is None:
                self._for_template.append(host)
                return
            else:
                process = DeviceProcess(host.spec, template)
        except (TemplateLost, OSError) as error:  # OSError: no descriptors or memory
            if isinstance(error, TemplateLost):
                self._drop_template()
            self._on_refused_start(host, str(error))
            return
        host.process, host.kill_reason = process, ""
        hello = self._deadlines.start
        reason = f"its device wasn't open after {format_seconds(hello)} (deadlines.start)"
        host.expect(self._loop.call_later(hello, self.kill_process, host.name, reason))
        self._loop.add_reader(process.fileno(), self._read_events, host, process)
        if isinstance(process, DeviceProcess):
            self._loop.add_reader(process.stderr, self._read_stderr, process)
        self._loop.add_reader(process.end_fd, self._on_death, host, process)

    def _on_refused_start(self, host: Host, reason: str) -> None:
        log.warning("device process of %s can't be started: %s", host.name, reason)
        if self._fail_start(host, reason):
            self.listener.on_lost(host.name, reason)
        else:
            self._loop.call_later(RETRY_SECONDS, self._spawn, host)
        self._note_change()

    def _fail_start(self, host: Host, reason: str) -> bool:
        host.failed_starts += 1
        if host.failed_starts < MAX_FAILED_STARTS:
            host.state = "restarting"
            return False
        host.state = "absent"
        host.absence = f"its process failed to start {MAX_FAILED_STARTS} times: {reason}"
        return True

    def _unwatch(self, process: DeviceLink) -> None:
        for fd in (process.fileno(), process.end_fd):
            self._loop.remove_reader(fd)
        if isinstance(process, DeviceProcess):
            self._loop.remove_reader(process.stderr)

    def _ready_template(self) -> Template | None:
        """Return the template; None if it is still starting: `_on_template` goes on. OSError."""
        if self._template is None:
            template = self._template = Template()
            self._loop.add_reader(template.fileno(), self._on_template, template)
            self._loop.call_later(
                self._deadlines.start, lambda: None if template.is_ready else template.kill()
            )
        return self._template if self._template.is_ready else None

    def _on_template(self, template: Template) -> None:
        """Fork what waits for the template, which is ready or has ended."""
        waiting, self._for_template = self._for_template, []
        if template.on_readable():
            for host in waiting:
                self._spawn(host)
            return
        reason = self._drop_template()
        for host in waiting:
            self._on_refused_start(host, reason)

    def _drop_template(self) -> str:
        template, self._template = self._template, None
        if template is None:
            return ""
        self._loop.remove_reader(template.fileno())
        return template.close()

    def _read_stderr(self, process: DeviceProcess) -> None:
        if not process.read_stderr():
            self._loop.remove_reader(process.stderr)

    def _read_events(self, host: Host, process: DeviceLink) -> bool:
        """Handle messages; return whether there were any. An error costs the process."""
        events: list[device_messages.DeviceEvent] = []
        try:
            events = process.receive()
            for event in events:
                self._on_event(host, process, event)
        except Exception as error:
            log.exception("%s: a message can't be handled", host.name)
            process.ended = True
            self.kill_process(host.name, f"a message can't be handled: {error}")
        if process.ended:
            self._loop.remove_reader(process.fileno())
        return bool(events) and not process.ended

    def _on_event(
        self, host: Host, process: DeviceLink, event: device_messages.DeviceEvent
    ) -> None:
        if isinstance(event, device_messages.Hello):
            self._on_hello(host, process, event)
        elif isinstance(event, device_messages.MemoryReading):
            has_changed = (known := host.info.memory) is None
            if known is not None:
                most = max(MAX_SHORTAGE_BYTES, int(MAX_UNUSED_FRACTION * known))
                has_changed = not -MAX_SHORTAGE_BYTES <= event.nbytes - known <= most
            if has_changed:
                host.info = msgspec.structs.replace(host.info, memory=event.nbytes)
            self.listener.on_memory(host.name, has_changed, event.released)
        elif isinstance(event, device_messages.CommandFailed) and not event.attempt:
            log.warning("%s: between two jobs: %s", host.name, event.error.message)
        else:
            self.listener.tell(Message(host.name, event))

    def _on_hello(self, host: Host, process: DeviceLink, hello: device_messages.Hello) -> None:
        if host.kill_reason:
            return
        if not self._is_in_place(host):
            self._restart(host)
            return
        host.expect(None)
        host.info, host.state, host.failed_starts = hello.info, "ready", 0
        if group := hello.info.tail_group:
            if isinstance(process, DeviceThread):
                process.hand_over(0, self._thread_tails[group])
            else:
                if group not in self._tails:
                    self._tails[group] = os.memfd_create(f"hetsched-tails-{group}")
                    os.ftruncate(self._tails[group], TAIL_BYTES)
                process.attach_file(0, self._tails[group], TAIL_BYTES, "tail")
            self._flush_soon(host)
        log.info("device ready: %s", host.name)
        self.listener.tell(Joined(host.name))
        self._note_change()
        if self._is_resting:
            self._rest(host)

    def kill_process(self, device: str, reason: str) -> None:
        """Kill the process of `device`, which has done wrong or nothing; its loss follows."""
        host = self._hosts[device]
        process = host.process
        if process is None or host.kill_reason or self._closing:
            return
        log.warning("killing the device process of %s: %s", host.name, reason)
        host.kill_reason = reason
        process.kill()

        def on_stuck() -> None:
            absence = f"{reason}; {process.name} doesn't end"
            log.error("device process of %s: %s", host.name, absence)
            self._loop.remove_reader(process.fileno())
            host.state, host.absence = "absent", absence
            # It may still write to these: no other job gets that memory.
            host.on_end = self._arena.hold(frozenset(process.attached))
            self.listener.on_lost(host.name, absence)
            self._note_change()

        host.expect(self._loop.call_later(self._deadlines.device_stop, on_stuck))

    def _on_death(self, host: Host, process: DeviceLink) -> None:
        self._unwatch(process)
        if host.is_stuck:
            process.close()
            host.process, host.state, host.absence = None, "restarting", ""
            host.on_end()
            self._loop.call_later(RESTART_SECONDS, self._spawn, host)
            return
        if process.is_stopping:
            process.close()
            host.process = None
            host.expect(None)
            if host.state == "starting":  # a job needs it by now
                self._spawn(host)
            return
        while self._read_events(host, process):  # a child process may hold the socket open
            pass
        exit_reason = process.exit_reason()
        reason = host.kill_reason or exit_reason
        was_ready, host.process = host.state == "ready", None
        host.expect(None)
        if not self._killed:
            log.warning("device process of %s died: %s", host.name, reason)
        if was_ready:
            host.state = "restarting"
        is_last = not was_ready and self._fail_start(host, reason)
        if not is_last:
            self._loop.call_later(0.0 if was_ready else RESTART_SECONDS, self._spawn, host)
        if was_ready or is_last:  # nothing waits for its restart
            self.listener.on_lost(host.name, reason)
        self._note_change()
