"""The loop of one device: commands from its engine, and the work of at most two jobs in turn.

It runs on one thread and knows only the channel to the engine.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import MutableMapping
from typing import Any

from hetsched.device import DeviceInfo
from hetsched.device_process.arrays import Attachments
from hetsched.device_process.prepared_job import (
    PreparedJob,
    StepFailed,
    error_record,
    failure_cause,
)
from hetsched.devices.base import Device, DeviceFault, MemoryKeeper, ShareableDevice
from hetsched.errors import InternalError
from hetsched.transport import device_messages
from hetsched.transport.sockets import close_all

MAX_JOBS = 2
"""Jobs that a core holds: a small one computes its chunks between those of a large one."""
VIRTUAL_CLOCK_WAIT = 2.0
"""Seconds that a device with a virtual clock waits for announced chunks: its times must not depend
on message latency. Only a cancelled run waits so long."""
CHECK_SECONDS = 1.0
"""Between two looks of an idle device at whether to release memory. Arbitrary."""


class DeviceUnusable(Exception):
    """The device is unusable: nothing may use it any more, destructors included."""


class DeviceLoop:
    """The loop of a device that the thread which calls `run` has opened."""

    def __init__(
        self,
        channel: device_messages.Channel,
        device: Device,
        warm_for: float = 60.0,
        handed: MutableMapping[int, Any] | None = None,
    ) -> None:
        self._channel = channel
        self._device = device
        self._beside: Device | None = None  # The same core for a second job, if there was one
        self._info: DeviceInfo = device.describe()
        self._keeper = device if isinstance(device, MemoryKeeper) else None
        self._warm_for = warm_for
        self._idle_since = 0.0
        self._attachments = Attachments(handed)
        self._warm_kernels: set[tuple[str, bytes, str]] = set()
        self._jobs: list[PreparedJob] = []  # The one whose turn it is first

    def run(self) -> None:
        with contextlib.suppress(device_messages.ChannelClosed):
            self._channel.send(device_messages.Hello(self._info))
            while True:
                job, patience = self._next()
                if self._channel.poll(patience):
                    commands, fds = self._channel.receive()
                    for command in commands:
                        if isinstance(command, device_messages.Stop):
                            return
                        self._handle(command, fds)
                    if fds:  # of no command
                        close_all(fds)
                elif job is None:
                    assert self._keeper is not None, "or it would have waited for a command"
                    self._check_memory(self._keeper)
                else:
                    self._jobs.remove(job)
                    self._jobs.append(job)
                    self._step(job)

    def _next(self) -> tuple[PreparedJob | None, float | None]:
        """Return the job whose turn it is, and for how long a command may be waited for first."""
        for job in self._jobs:
            if job.is_busy:
                is_early = self._info.clock == "virtual" and job.expects_more
                return job, VIRTUAL_CLOCK_WAIT if is_early else 0.0
        keeps_memory = not self._jobs and self._keeper is not None and self._keeper.keeps_memory()
        return None, CHECK_SECONDS if keeps_memory else None

    def _check_memory(self, keeper: MemoryKeeper) -> None:
        try:
            is_warm = time.monotonic() < self._idle_since + self._warm_for
            if not is_warm or keeper.is_memory_short():
                keeper.release_memory()
                self._report_memory(keeper, released=True)
        except BaseException as error:
            self._report_failure(0, error)

    def _step(self, job: PreparedJob) -> None:
        try:
            job.step()
        except StepFailed as failed:
            error, chunk = failed.__cause__ or failed, failed.chunk
            job.report()  # what it has computed
            is_over = chunk is not None or not job.is_prepared
            if is_over and not isinstance(error, DeviceFault):
                try:
                    self._drop(job)  # release the job's files now, not at the next job
                except BaseException as fault:
                    error = _unusable(fault)
            self._report_failure(job.attempt, error, None if chunk is None else chunk.id)
            del error  # its traceback refers to the caller's arrays
        except device_messages.ChannelClosed:
            raise
        except BaseException as error:
            self._report_failure(job.attempt, _unusable(error))

    # ---- commands

    def _handle(
        self,
        command: device_messages.Attach | device_messages.Detach | device_messages.AttemptCommand,
        fds: list[int],
    ) -> None:
        match command:
            case device_messages.Attach(key=key, kind="handed"):
                self._attachments.take(key)
            case device_messages.Attach(key=key):
                if not fds:
                    raise InternalError(f"attach {key} without a descriptor")
                self._attachments.attach(command, fds.pop(0))
            case device_messages.Detach(keys=keys):
                for job in list(self._jobs):
                    if any(stored.key in keys for stored in job.command.arrays):
                        self._drop(job)  # it has ended, or its arrays wouldn't be detached
                self._attachments.detach(keys)
                if self._keeper is not None:
                    self._keeper.forget_host_memory()
            case _:
                try:
                    self._order(command)
                except device_messages.ChannelClosed:
                    raise
                except BaseException as error:
                    if isinstance(command, device_messages.Release):
                        error = _unusable(error)  # else the engine would wait for ever
                    self._report_failure(command.attempt, error)

    def _order(self, command: device_messages.AttemptCommand) -> None:
        if isinstance(command, device_messages.Prepare):
            self._prepare(command)
            return
        attempt = command.attempt
        job = next((job for job in self._jobs if job.attempt == attempt), None)
        if isinstance(command, device_messages.Release):
            if job is not None:
                self._drop(job)
            if command.answer:
                self._channel.send(device_messages.Released(attempt))
            if self._keeper is not None and not self._jobs:
                self._report_memory(self._keeper)
        elif job is not None:
            job.order(command)
        elif not isinstance(
            command, device_messages.Run
        ):  # whose job may have failed here, as was reported
            raise InternalError(f"{self._info.name} isn't prepared for attempt {attempt}")

    def _prepare(self, command: device_messages.Prepare) -> None:
        """Prepare a job on the device, or beside its other job; drop the oldest of two."""
        is_shareable = self._info.is_plain_core and isinstance(self._device, ShareableDevice)
        if len(self._jobs) >= (MAX_JOBS if is_shareable else 1):
            self._drop(min(self._jobs, key=lambda job: job.attempt))
        device = self._device
        if any(job.device is device for job in self._jobs):
            if self._beside is None:
                assert isinstance(device, ShareableDevice), "it holds two jobs"
                self._beside = device.beside()
            device = self._beside
        send, warm = self._channel.send, self._warm_kernels
        job = PreparedJob(command, device, self._info, self._attachments, send, warm)
        self._jobs.insert(0, job)

    def _drop(self, job: PreparedJob) -> None:
        self._idle_since = time.monotonic()
        self._jobs.remove(job)
        job.drop()

    # ---- reports

    def _report_memory(self, keeper: MemoryKeeper, *, released: bool = False) -> None:
        self._channel.send(device_messages.MemoryReading(keeper.usable_memory(), released))

    def _report_failure(
        self, attempt: int, error: BaseException, chunk: int | None = None
    ) -> None:
        cause, record = failure_cause(error, self._info.link), error_record(error)
        with contextlib.suppress(device_messages.ChannelClosed):
            self._channel.send(device_messages.CommandFailed(attempt, cause, record, chunk))
        if cause == "fault":
            raise DeviceUnusable(record.message) from error


def _unusable(error: BaseException) -> DeviceFault:
    """Return `error` as a fault: the device may still be working for its job."""
    if isinstance(error, DeviceFault):
        return error
    fault = DeviceFault(f"the job can't be stopped: {type(error).__name__}: {error}")
    fault.__cause__ = error
    return fault
