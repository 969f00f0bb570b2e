"""The processes in which the cores of a device process compute iterative jobs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from hetsched.device_process.iterating.core_process import CoreProcess
from hetsched.device_process.iterating.iterative_run import CONTROL
from hetsched.devices.process_spec import ProcessSpec
from hetsched.errors import ErrorRecord, JobFailed
from hetsched.transport.device_messages import (
    Attach,
    CommandFailed,
    Detach,
    DeviceCommand,
    Event,
    Fenced,
    Hello,
    MemoryReading,
    Pong,
    Prepare,
    Release,
)

MIN_IDLE_SECONDS, MAX_IDLE_SECONDS = 0.05, 86_400.0
"""After which an idle process is ended: a period of polling, so neither 0 nor for years.
Arbitrary."""


class CoreProcesses:
    """The processes of a device process's cores: started at their first iterative job.

    Called by the main thread. A process that dies while it has a job takes this process with it,
    as a thread would: the engine restarts all of them.

    Parameters
    ----------
    spec : ProcessSpec
        Of the device process.
    send : callable
        Sends an event to the engine.
    die : callable
        Ends this process.
    """

    def __init__(
        self, spec: ProcessSpec, send: Callable[[Event], None], die: Callable[[], None]
    ) -> None:
        self._spec = spec
        self._send = send
        self._die = die
        self._are_needed = len(spec.devices) > 1 and all(d.is_plain_core for d in spec.devices)
        self._objects: dict[int, tuple[Attach, int]] = {}
        self._missing: set[int] = set()
        """Attached segments without a descriptor."""
        self._running: dict[int, CoreProcess] = {}
        self._jobs: dict[int, set[int]] = {index: set() for index in range(len(spec.devices))}
        self._lock = threading.Lock()

    def attach(self, command: Attach, fd: int) -> None:
        """Keep a copy of the descriptor, for processes that will need it."""
        if self._are_needed and command.kind == "segment":
            try:
                self._objects[command.key] = (command, os.dup(fd))
            except OSError:  # no descriptors are left: threads compute jobs with this segment
                self._missing.add(command.key)

    def detach(self, keys: Iterable[int]) -> None:
        """Detach objects here and in the processes."""
        keys = tuple(keys)
        self._missing.difference_update(keys)
        for key in keys:
            _, fd = self._objects.pop(key, (None, -1))
            if fd >= 0:
                os.close(fd)
        for process in list(self._running.values()):
            dropped = process.attached.intersection(keys)
            if dropped:
                process.attached -= dropped
                process.send(Detach(tuple(dropped)))

    def handle(self, command: DeviceCommand) -> bool:
        """Pass a command of an iterative job on; return False if it is one of another job."""
        index, jobs = command.device, self._jobs[command.device]
        if isinstance(command, Prepare) and self._is_for_process(command):
            try:
                with self._lock:
                    process = self._running.get(index) or self._start(index)
                    jobs.add(command.job)
            except (OSError, RuntimeError):
                # No descriptors, memory, processes or threads are left: the thread computes.
                return False
            self._attach_all(process, command)
        elif command.job not in jobs:
            return False
        elif (running := self._running.get(index)) is None:
            return True  # it has died with its jobs, and so does this process
        else:
            process = running
        process.send(msgspec.structs.replace(command, device=0))
        if isinstance(command, Release):
            with self._lock:
                jobs.discard(command.job)
        return True

    def _is_for_process(self, command: Prepare) -> bool:
        keys = (stored.key for stored in command.arrays)
        return self._are_needed and is_iterative(command) and self._missing.isdisjoint(keys)

    def stop(self) -> None:
        """End the processes."""
        with self._lock:
            processes = list(self._running.values())
            self._running.clear()
            for jobs in self._jobs.values():
                jobs.clear()
        for process in processes:
            process.end()

    def _start(self, index: int) -> CoreProcess:
        spec = msgspec.structs.replace(self._spec, devices=(self._spec.devices[index],))
        process = CoreProcess(
            spec,
            partial(self._on_event, index),
            partial(self._on_end, index),
            partial(self._may_end, index),
            min(max(self._spec.warm_for, MIN_IDLE_SECONDS), MAX_IDLE_SECONDS),
        )
        self._running[index] = process
        return process

    def _attach_all(self, process: CoreProcess, command: Prepare) -> None:
        for stored in command.arrays:
            if stored.key in process.attached or stored.key not in self._objects:
                continue  # the process says what is missing
            attach, fd = self._objects[stored.key]
            process.attached.add(stored.key)
            process.send(attach, [fd])

    # ---- on the threads that read the processes' events

    def _on_event(self, index: int, event: Event) -> None:
        if isinstance(event, Hello | Pong | MemoryReading):
            return
        if isinstance(event, Fenced):  # until then it was at work
            with self._lock:
                self._jobs[index].discard(event.job)
        self._send(msgspec.structs.replace(event, device=index))

    def _may_end(self, index: int, process: CoreProcess) -> bool:
        """Return whether a process without jobs may end; the next job starts another one."""
        with self._lock:
            if self._jobs[index] or self._running.get(index) is not process:
                return False
            del self._running[index]
            return True

    def _on_end(self, index: int, process: CoreProcess, reason: str) -> None:
        with self._lock:
            if self._running.get(index) is not process:
                return  # it was asked to end
            del self._running[index]
            jobs = tuple(self._jobs[index])
        for job in jobs:
            name = self._spec.devices[index].name
            error = ErrorRecord(JobFailed.code, f"the process of {name} has ended: {reason}")
            self._send(CommandFailed(job, index, "fault", error))
        if jobs:
            self._die()


def is_iterative(command: Prepare) -> bool:
    """Whether the job is iterative: it has control memory."""
    return any(stored.array == CONTROL for stored in command.arrays)
