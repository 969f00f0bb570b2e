"""The device processes of one engine: starting, monitoring, restarting; a listener gets events."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from hetsched.device import DeviceInfo
from hetsched.devices.process_spec import Probe, ProcessSpec
from hetsched.engine.deadlines import DEFAULT_DEADLINES, Deadlines
from hetsched.engine.processes.device_process import DeviceProcess
from hetsched.engine.processes.fleet_devices import FleetDevices, steady_memory
from hetsched.engine.processes.fleet_listener import FleetListener
from hetsched.engine.processes.hosted_process import MAX_FAILED_STARTS, HostedProcess, spec_names
from hetsched.engine.processes.process_watch import ProcessWatch
from hetsched.engine.processes.start_waits import StartWaits, have_started_or_failed, is_settled
from hetsched.transport.device_messages import (
    CommandFailed,
    DeviceCommand,
    Hello,
    MemoryReading,
    Pong,
)
from hetsched.transport.loop import Loop

log = logging.getLogger(__name__)

RESTART_SECONDS = 0.05
"""Delay between a death before Hello and the next start, which may fail again."""
STDERR_SECONDS = 0.01
STDERR_RETRIES = 10
"""How often they pass before a dead process's last lines count as read: one that it has started
may keep its stderr open."""
RETRY_SECONDS = 1.0
"""Delay after the operating system refused to start a process."""


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
        self._devices = FleetDevices(probe.absent)
        self._hosts: list[HostedProcess] = []
        self._host_of: dict[str, tuple[HostedProcess, int]] = {}
        """Device -> its process and its index there."""
        self._waits = StartWaits()
        self._closing = self._killed = False
        for spec in probe.processes:
            self._add(spec)

    def start(self) -> None:
        """Start all processes except on-demand ones."""
        self._start_needed(self._hosts)

    def _start_needed(self, hosts: Iterable[HostedProcess]) -> None:
        for host in hosts:
            if not host.on_demand:
                self._spawn(host)

    def update(self, probe: Probe) -> tuple[str, ...]:
        """Start the processes of devices that were missing before; return their names."""
        known = self._host_of.keys()
        new = [spec for spec in probe.processes if known.isdisjoint(spec_names(spec))]
        self._devices.on_probed(probe.absent)
        self._start_needed([self._add(spec) for spec in new])
        return tuple(name for spec in new for name in spec_names(spec))

    def retry_abandoned(self) -> None:
        """Start the processes again that have failed to start too often."""
        for host in self._hosts:
            if host.is_abandoned and not host.is_stuck and host.process is None:
                host.failed_starts = 0
                self._devices.readmit(host.device_names)
                self._spawn(host)

    @property
    def infos(self) -> tuple[DeviceInfo, ...]:
        """All devices that are or may become ready, in order."""
        return self._devices.infos

    @property
    def absent(self) -> Mapping[str, str]:
        """Unusable device or kind -> reason."""
        return self._devices.absent

    def info(self, device: str) -> DeviceInfo:
        """Return the description of a device, even if it is no longer usable."""
        return self._devices[device]

    def any_remaining(self, devices: Iterable[str]) -> bool:
        """Return whether any of these devices is or may become ready."""
        return self._devices.any_remaining(devices)

    def ready(self) -> set[str]:
        """Return the devices that accept commands."""
        return {name for name, (host, _) in self._host_of.items() if host.is_ready}

    def unstarted(self) -> set[str]:
        """Return the devices whose on-demand process hasn't been needed so far."""
        return {name for name, (host, _) in self._host_of.items() if host.on_demand}

    def starting_ahead(self) -> set[str]:
        """Return the unstarted devices whose process is starting, though no job waits for it."""
        return {name for name in self.unstarted() if self._host_of[name][0].process is not None}

    def starting(self, devices: Iterable[str]) -> frozenset[str]:
        """Return those of `devices` that aren't ready yet, or not again."""
        return frozenset(name for name in devices if self._host_of[name][0].is_starting)

    def usable(self, devices: Iterable[str]) -> list[DeviceInfo]:
        """Return those of `devices` that are ready, or will be once started."""
        usable = (self.ready() | self.unstarted()).intersection(devices)
        return [info for info in self.infos if info.name in usable]

    def ensure_started(self, devices: Iterable[str], callback: Callable[[], None]) -> None:
        """Start the unstarted ones of `devices`, then call back; at once if there are none.

        They are ready then, or have failed to start.
        """
        unstarted = [name for name in devices if self._host_of[name][0].on_demand]
        self.start_ahead(unstarted)
        for name in unstarted:
            self._host_of[name][0].on_demand = False
        hosts = [self._host_of[name][0] for name in unstarted]
        self._waits.call_when(lambda: have_started_or_failed(hosts), callback)

    def start_ahead(self, devices: Iterable[str]) -> None:
        """Start the processes of `devices`, which count as unstarted until they are ready."""
        for host in [self._host_of[name][0] for name in devices]:
            if host.on_demand and host.process is None and not host.is_unusable:
                self._spawn(host)

    def when_settled(
        self, devices: Iterable[str], callback: Callable[[], None], *, with_restarts: bool = False
    ) -> None:
        """Call back once it is certain which of `devices` are usable, possibly at once.

        Waits for processes that start for the first time, until they are ready or have failed;
        for one that restarts only `with_restarts`, or if no other is ready; never for on-demand
        ones.
        """
        hosts = [self._host_of[name][0] for name in devices]
        self._waits.call_when(lambda: is_settled(hosts, with_restarts=with_restarts), callback)

    def send(self, device: str, make_command: Callable[[int], DeviceCommand]) -> None:
        """Send ``make_command(index of the device in its process)``, unless the device is lost.

        Commands to a process within one round of the loop share a message.
        """
        host, index = self._host_of[device]
        if host.is_ready:
            host.post(make_command(index), self._loop)

    def send_late(self, device: str, make_command: Callable[[int], DeviceCommand]) -> None:
        """Send a command for which nothing waits with the next one, or after a while."""
        host, index = self._host_of[device]
        if host.is_ready:
            host.post_late(make_command(index), self._loop)

    def attach(self, device: str, key: int, fd: int, nbytes: int, kind: str) -> None:
        """Attach segment or file `key` to the process of `device`, unless already attached."""
        self._host_of[device][0].attach(key, fd, nbytes, kind)

    def attached(self, device: str) -> Collection[int]:
        """Return the keys of what is attached to the process of `device`."""
        return self._host_of[device][0].attached

    def detach(self, keys: Iterable[int]) -> None:
        """Detach these objects from every process."""
        keys = tuple(keys)
        for host in self._hosts:
            if not host.is_stuck:
                host.detach(keys)

    def kill_process_of(self, device: str, reason: str) -> None:
        """Kill the process of `device`, which has missed a deadline; its loss follows.

        If it doesn't even end then, its devices are lost as well, until it has ended.
        """
        host, _ = self._host_of[device]
        if host.process is not None and not host.kill_reason:
            self._kill(host, host.process, reason)
            host.overdue_device = device

    def close(self) -> None:
        """Stop all processes and wait for their end, or for a deadline, whichever is first."""
        self._closing = True
        hosts = [host for host in self._hosts if host.process is not None]
        for host in hosts:
            assert host.process is not None
            self._unwatch(host.process)
            if host.watch is not None:
                host.watch.close()
            if not host.is_stuck:
                host.process.stop()
        deadline = time.monotonic() + self._deadlines.exit
        for host in hosts:
            host.join(max(0.0, deadline - time.monotonic()), self._deadlines.exit / 2)

    def kill(self) -> None:
        """Kill all processes for good, without logging their deaths. Thread-safe."""
        self._killed = True
        for pid in self.pids().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def pids(self) -> Mapping[str, int]:
        """Return device -> process id, for running processes."""
        return {
            name: process.pid
            for name, (host, _) in self._host_of.items()
            if (process := host.process) is not None  # the loop's thread may end it now
        }

    def _spawn(self, host: HostedProcess) -> None:
        if self._closing or self._killed or host.process is not None:
            return
        try:
            process = DeviceProcess(host.spec)
        except OSError as error:  # no descriptors or memory: retry later
            self._on_refused_start(host, error)
            return
        host.started(
            process,
            ProcessWatch(
                process,
                self._loop,
                self._deadlines,
                lambda reason: self._kill(host, process, reason),
            ),
        )
        self._loop.add_reader(process.fileno(), lambda: self._read_events(host, process))
        self._loop.add_reader(process.pidfd, lambda: self._on_death(host, process))

    def _on_refused_start(self, host: HostedProcess, error: OSError) -> None:
        host.failed_starts += 1
        names = host.device_names
        log.warning("device process of %s can't be started: %s", ", ".join(names), error)
        if host.is_abandoned:
            self._abandon(names, str(error))
            self._listener.on_lost(names, str(error), ())
            self._waits.recheck()
        else:
            self._loop.call_later(RETRY_SECONDS, lambda: self._spawn(host))

    def _unwatch(self, process: DeviceProcess) -> None:
        self._loop.remove_reader(process.fileno())
        self._loop.remove_reader(process.pidfd)

    def _read_events(self, host: HostedProcess, process: DeviceProcess) -> None:
        events = process.receive()
        if events and host.watch is not None:
            host.watch.on_received()
        for event in events:
            if isinstance(event, Hello):
                self._on_hello(host, event)
            elif isinstance(event, Pong):
                continue  # the watch has seen it
            elif isinstance(event, MemoryReading):
                self._on_memory(host.device_names[event.device], event)
            elif isinstance(event, CommandFailed) and not event.job:
                name = host.device_names[event.device]
                log.warning("%s: between two jobs: %s", name, event.error.message)
            else:
                self._listener.on_event(host.device_names[event.device], event)
        if process.ended:
            self._loop.remove_reader(process.fileno())

    def _on_hello(self, host: HostedProcess, hello: Hello) -> None:
        if host.kill_reason:
            return
        host.is_ready = host.was_ready = True
        host.on_demand = False
        host.threads = hello.threads
        if host.watch is not None:
            host.watch.on_hello()
        names = tuple(info.name for info in hello.devices)
        self._devices.describe(hello.devices)
        log.info("devices ready: %s", ", ".join(names))
        self._listener.on_ready(names)
        self._waits.recheck()

    def _on_memory(self, device: str, reading: MemoryReading) -> None:
        previous = self._devices[device].memory
        memory = steady_memory(previous, reading.nbytes)
        has_changed = memory != previous
        if has_changed:
            self._devices.set_memory(device, memory)
        self._listener.on_memory(device, has_changed, reading.released)

    def _kill(self, host: HostedProcess, process: DeviceProcess, reason: str) -> None:
        if host.process is not process or host.kill_reason or self._closing:
            return
        names = ", ".join(host.device_names)
        log.warning("killing the device process of %s: %s", names, reason)
        host.kill_reason = reason
        process.kill()
        assert host.watch is not None
        host.watch.expect_end(lambda: self._on_stuck(host, process))

    def _on_stuck(self, host: HostedProcess, process: DeviceProcess) -> None:
        """Give up the devices of a killed process until it ends: two must not share a GPU."""
        reason = f"killed, {host.kill_reason}, but process {process.pid} doesn't end"
        log.error("device process of %s: %s", ", ".join(host.device_names), reason)
        self._loop.remove_reader(process.fileno())
        host.is_stuck, host.is_ready = True, False
        host.on_end = self._listener.on_stuck(frozenset(host.attached))
        self._devices.abandon(host.device_names, reason)
        self._listener.on_lost(host.device_names, reason, ())
        self._waits.recheck()

    def _on_stuck_end(self, host: HostedProcess, process: DeviceProcess) -> None:
        """Start the successor of a process that has ended at last."""
        self._unwatch(process)
        process.exit_reason()
        host.ended()
        host.on_end()
        host.failed_starts = 0
        self._devices.readmit(host.device_names)
        self._loop.call_later(RESTART_SECONDS, lambda: self._spawn(host))

    def _on_death(
        self, host: HostedProcess, process: DeviceProcess, retries: int = STDERR_RETRIES
    ) -> None:
        """Handle the remaining messages of the process, then its death."""
        if host.process is not process:
            return
        if retries and not process.stderr.has_ended:  # its last lines are still being read
            self._loop.remove_reader(process.pidfd)
            self._loop.call_later(
                STDERR_SECONDS, lambda: self._on_death(host, process, retries - 1)
            )
            return
        if host.is_stuck:
            self._on_stuck_end(host, process)
            return
        while not process.ended:
            self._read_events(host, process)
        self._unwatch(process)
        was_ready, reason = host.is_ready, process.exit_reason()
        reason = host.kill_reason or reason
        culprits = host.culprits()
        host.ended()
        names = host.device_names
        if not self._killed:
            log.warning("device process of %s died: %s", ", ".join(names), reason)
        if host.is_abandoned:
            self._abandon(names, reason)
        else:
            delay = 0.0 if was_ready else RESTART_SECONDS
            self._loop.call_later(delay, lambda: self._spawn(host))
        if was_ready or host.is_abandoned:  # nothing waits for its restart
            self._listener.on_lost(names, reason, culprits)
        self._waits.recheck()

    def _abandon(self, names: tuple[str, ...], reason: str) -> None:
        tries = f"its process failed to start {MAX_FAILED_STARTS} times"
        self._devices.abandon(names, f"{tries}: {reason}")

    def _add(self, spec: ProcessSpec) -> HostedProcess:
        host = HostedProcess(spec)
        self._hosts.append(host)
        for index, info in enumerate(spec.devices):
            self._host_of[info.name] = (host, index)
        self._devices.describe(spec.devices)
        return host
