"""The device processes of one engine: spawned, watched, respawned; devices by name.

Owns which process holds which segments and files. Knows nothing of jobs: events go to a listener.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hetsched.device import DeviceInfo
from hetsched.devices.probe import Probe, ProcessSpec
from hetsched.engine.processes.device_process import DeviceProcess
from hetsched.errors import Unavailable
from hetsched.transport.device_messages import Addressed, Attach, Detach, Event, Hello, Several
from hetsched.transport.loop import Loop

log = logging.getLogger(__name__)

MAX_STRIKES = 3
"""Deaths before a hello, after which a process isn't started again."""
AT_ONCE = 64
"""Commands in one message, so that it always fits into a socket's buffer."""
RESPAWN_SECONDS = 0.05
"""Between a death and the next start: a process that dies at once must not spin."""


@dataclass
class _Member:
    spec: ProcessSpec
    process: DeviceProcess | None = None
    ready: bool = False
    seen: bool = False
    """It has said hello before."""
    outbox: list[Addressed] = field(default_factory=list)
    strikes: int = 0
    asleep: bool = False
    """Its process is started when it is first needed."""
    attached: set[int] = field(default_factory=set)

    @property
    def given_up(self) -> bool:
        return self.strikes >= MAX_STRIKES


@dataclass(frozen=True)
class Listener:
    """Who hears of devices: all on the loop's thread."""

    event: Callable[[str, Event], None]
    """(device name, event)"""
    lost: Callable[[tuple[str, ...], str], None]
    """(devices, why)"""
    joined: Callable[[tuple[str, ...]], None]


class Fleet:
    """All device processes. `ready` devices have said hello and take commands."""

    def __init__(self, probe: Probe, loop: Loop, listener: Listener) -> None:
        self._loop = loop
        self._listener = listener
        self.absent: dict[str, str] = dict(probe.absent)
        self._members = [_Member(spec, asleep=spec.lazy) for spec in probe.processes]
        self._where: dict[str, tuple[_Member, int]] = {}
        self._infos: dict[str, DeviceInfo] = {}
        self._gone: set[str] = set()
        self._waiting: list[tuple[tuple[str, ...], Callable[[], None]]] = []
        self._closing = self._killed = False
        for member in self._members:
            for index, info in enumerate(member.spec.devices):
                self._where[info.name] = (member, index)
                self._infos[info.name] = info

    def start(self) -> None:
        for member in self._members:
            if not member.asleep:
                self._spawn(member)

    @property
    def infos(self) -> tuple[DeviceInfo, ...]:
        """All devices that exist, ready or not yet; in order."""
        return tuple(info for info in self._infos.values() if info.name not in self._gone)

    def info(self, device: str) -> DeviceInfo:
        """What is known of a device, be it gone by now."""
        return self._infos[device]

    def present(self, devices: Iterable[str]) -> bool:
        """Whether one of these devices is there or may come back."""
        return not self._gone.issuperset(devices)

    def ready(self) -> set[str]:
        return {name for name, (member, _) in self._where.items() if member.ready}

    def asleep(self) -> set[str]:
        """Devices that aren't ready because nobody has needed them so far."""
        return {name for name, (member, _) in self._where.items() if member.asleep}

    def usable(self, devices: Iterable[str]) -> list[DeviceInfo]:
        """Those of `devices` that are ready, or would be if they were woken."""
        there = (self.ready() | self.asleep()).intersection(devices)
        return [info for info in self.infos if info.name in there]

    def wake(self, devices: Iterable[str], callback: Callable[[], None]) -> None:
        """Start those of `devices` that are asleep, then call back; at once if none is."""
        woken = [name for name in devices if self._where[name][0].asleep]
        for name in woken:
            member, _ = self._where[name]
            if member.asleep:
                member.asleep = False
                self._spawn(member)
        self.when_settled(woken, callback)

    def when_settled(self, devices: Iterable[str], callback: Callable[[], None]) -> None:
        """Call back once it is clear which of `devices` can be used now; at once if it is already.

        A process that starts for the first time is waited for; one that comes back after a death
        is only if there is no other; one that is asleep is not.
        """
        waiting = (tuple(devices), callback)
        if self._settled(waiting[0]):
            callback()
        else:
            self._waiting.append(waiting)

    def send(self, device: str, make: Callable[[int], Addressed]) -> None:
        """Send ``make(index of the device in its process)`` soon; to a lost device: nothing.

        What a process is sent in one round of the loop goes there in one message.
        """
        member, index = self._where[device]
        if member.process is None or not member.ready:
            return
        if not member.outbox:
            self._loop.soon(lambda: self._flush(member))
        member.outbox.append(make(index))

    def _flush(self, member: _Member) -> None:
        commands, member.outbox = member.outbox, []
        if member.process is None:
            return
        for first in range(0, len(commands), AT_ONCE):
            some = commands[first : first + AT_ONCE]
            member.process.send(some[0] if len(some) == 1 else Several(tuple(some)))

    def attach(self, device: str, key: int, fd: int, nbytes: int, kind: str) -> None:
        """Make segment or file `key` known to the process of `device`, once."""
        member, _ = self._where[device]
        if member.process is None or not member.ready or key in member.attached:
            return
        member.attached.add(key)
        self._flush(member)  # commands before this one are about what the process knew then
        member.process.send(Attach(key, kind, nbytes), fds=(fd,))

    def detach(self, keys: Iterable[int]) -> None:
        """Every process forgets these keys."""
        for member in self._members:
            known = tuple(key for key in keys if key in member.attached)
            if known and member.process is not None:
                member.attached.difference_update(known)
                self._flush(member)
                member.process.send(Detach(known))

    def close(self) -> None:
        self._closing = True
        for member in self._members:
            if member.process is not None:
                self._unwatch(member.process)
                member.process.stop()
        for member in self._members:
            if member.process is not None:
                member.process.join()

    def kill(self) -> None:
        """End all processes at once; from any thread. Nobody need be told that they died."""
        self._killed = True
        for pid in self.pids().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def pids(self) -> Mapping[str, int]:
        """Device name -> process id, of the processes that run."""
        return {
            name: process.pid
            for name, (member, _) in self._where.items()
            if (process := member.process) is not None  # the loop's thread may end it now
        }

    def _settled(self, devices: Iterable[str]) -> bool:
        members = [self._where[device][0] for device in devices]
        members = [member for member in members if not member.asleep]
        if any(member.ready for member in members):
            return all(member.ready or member.seen or member.given_up for member in members)
        return all(member.given_up for member in members)

    def _spawn(self, member: _Member) -> None:
        if self._closing:
            return
        try:
            process = DeviceProcess(member.spec)
        except OSError as error:  # no descriptors, no memory: perhaps later
            self._not_started(member, error)
            return
        member.process = process
        member.attached.clear()
        member.outbox.clear()
        self._loop.reader(process.fileno(), lambda: self._readable(member, process))
        self._loop.reader(process.pidfd, lambda: self._died(member, process))

    def _not_started(self, member: _Member, error: OSError) -> None:
        names = tuple(info.name for info in member.spec.devices)
        member.strikes += 1
        log.warning("device process of %s can't be started: %s", ", ".join(names), error)
        if member.given_up:
            self._give_up(names, str(error))
            self._listener.lost(names, str(error))
            self._wake()
        else:
            self._loop.later(1.0, lambda: self._spawn(member))

    def _unwatch(self, process: DeviceProcess) -> None:
        self._loop.forget(process.fileno())
        self._loop.forget(process.pidfd)

    def _readable(self, member: _Member, process: DeviceProcess) -> None:
        for event in process.receive():
            if isinstance(event, Hello):
                self._hello(member, event)
            else:
                name = member.spec.devices[event.device].name
                self._listener.event(name, event)
        if process.ended:
            self._loop.forget(process.fileno())

    def _hello(self, member: _Member, hello: Hello) -> None:
        member.ready = member.seen = True
        for info in hello.devices:
            self._infos[info.name] = info
        log.info("devices ready: %s", ", ".join(info.name for info in hello.devices))
        self._listener.joined(tuple(info.name for info in hello.devices))
        self._wake()

    def _died(self, member: _Member, process: DeviceProcess) -> None:
        """What it had sent before it died counts: read that first."""
        if member.process is not process:
            return
        while not process.ended:
            self._readable(member, process)
        self._unwatch(process)
        was_ready, member.ready = member.ready, False
        member.process = None
        reason = process.obituary()
        names = tuple(info.name for info in member.spec.devices)
        member.strikes = 0 if was_ready else member.strikes + 1
        if not self._killed:
            log.warning("device process of %s died: %s", ", ".join(names), reason)
        if member.given_up:
            self._give_up(names, reason)
        else:
            self._loop.later(RESPAWN_SECONDS, lambda: self._spawn(member))
        if was_ready or member.given_up:  # now nobody need wait for it to come back
            self._listener.lost(names, reason)
        self._wake()

    def _give_up(self, names: tuple[str, ...], reason: str) -> None:
        for name in names:
            self.absent[name] = f"its process died at its start {MAX_STRIKES} times: {reason}"
            self._gone.add(name)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for devices, callback in waiting:
            self.when_settled(devices, callback)


def none_left(absent: Mapping[str, str]) -> Unavailable:
    """The error when no device is left to work with."""
    reasons = "; ".join(f"{name}: {why}" for name, why in absent.items())
    return Unavailable(f"no device is left to compute on ({reasons or 'none configured'})")
