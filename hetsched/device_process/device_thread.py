"""The thread of one device: opens it, then alternates between commands and work."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue

from hetsched.device import DeviceInfo
from hetsched.device_process.attachments import Attachments
from hetsched.device_process.command_handler import (
    CommandHandler,
    HostMemoryDetached,
    ThreadCommand,
)
from hetsched.device_process.held_job import HeldJob, StepFailed
from hetsched.device_process.memory_upkeep import WARM_SECONDS, MemoryUpkeep
from hetsched.device_process.pipeline import ChunkFailed
from hetsched.device_process.reports.failures import as_hetsched_error, command_failed
from hetsched.device_process.shared_tails import SharedTails
from hetsched.devices.base import Device, DeviceFault
from hetsched.errors import HetschedError
from hetsched.transport.device_messages import Event, Fence, Release

FAULT_EXIT = 17
"""Exit status of a process whose device has become unusable."""
THREAD_EXIT = 18
"""Exit status of a process with a device thread that ended unexpectedly."""
VIRTUAL_CLOCK_WAIT = 2.0
"""Seconds that a device with a virtual clock waits for announced chunks: its times must not depend
on message latency. Arbitrary; only a cancelled run waits so long."""


class DeviceThread(threading.Thread):
    """The thread that opens the device, then handles `commands` until None arrives.

    Parameters
    ----------
    index : int
        Of the device within the process.
    open_device : callable
        Opens the device; called on this thread.
    send : callable
        Sends an event to the engine.
    on_opened : callable
        Called with the index and the description of the open device, or the error of opening it.
    tails : SharedTails, optional
        The process's; None: no other device shares one.
    warm_for : float, seconds
        How long the device keeps memory for the next job while it is idle.

    Attributes
    ----------
    device : Device or None
        Set before `on_opened` is called.
    """

    def __init__(
        self,
        index: int,
        info: DeviceInfo,
        open_device: Callable[[DeviceInfo], Device],
        attachments: Attachments,
        send: Callable[[Event], None],
        on_opened: Callable[[int, DeviceInfo | HetschedError], None],
        tails: SharedTails | None = None,
        warm_for: float = WARM_SECONDS,
    ) -> None:
        super().__init__(name=info.name, daemon=True)
        self.device: Device | None = None
        self.commands: SimpleQueue[ThreadCommand | None] = SimpleQueue()
        self._index = index
        self._info = info
        self._open_device = open_device
        self._attachments = attachments
        self._send = send
        self._on_opened = on_opened
        self._tails = tails
        self._warm_for = warm_for
        self._upkeep: MemoryUpkeep | None = None

    def run(self) -> None:
        """Open the device and handle commands.

        The process ends with this thread unless it was asked to end: the engine would wait
        forever for its answers.
        """
        try:
            self._serve()
        except BaseException:
            _end_process(THREAD_EXIT)

    def on_detached(self) -> None:
        """Have the device forget host memory that was detached. Safe from any thread."""
        if self._upkeep is not None and self._upkeep.is_needed:
            self.commands.put(HostMemoryDetached())

    def _serve(self) -> None:
        try:
            _pin_threads(self._info)
            device = self.device = self._open_device(self._info)
            self._info = device.describe()
            self._upkeep = MemoryUpkeep(device, self._warm_for)
        except BaseException as error:
            self._on_opened(self._index, as_hetsched_error(error))
            return
        self._on_opened(self._index, self._info)
        handler = CommandHandler(
            self._index,
            device,
            self._info,
            self._attachments,
            self._send,
            self._tails,
            self._upkeep,
        )
        while (command := self._next_command(handler)) is not None:
            self._handle(handler, command)

    def _next_command(self, handler: CommandHandler) -> ThreadCommand | None:
        """Advance the job until a command arrives; block if it has no work."""
        while (job := handler.busy_job) is not None:
            try:
                return self._poll_command(job)
            except Empty:
                self._step(handler, job)
        while True:
            try:
                return self.commands.get(timeout=handler.seconds_to_upkeep)
            except Empty:
                self._maintain(handler)

    def _maintain(self, handler: CommandHandler) -> None:
        try:
            handler.maintain()
        except BaseException as error:
            self._report_failure(0, error)

    def _poll_command(self, job: HeldJob) -> ThreadCommand | None:
        """Return a command that has arrived before `job` advances. Raises Empty."""
        if self._info.clock == "virtual" and job.pipeline.expects_more:
            return self.commands.get(timeout=VIRTUAL_CLOCK_WAIT)
        return self.commands.get_nowait()

    def _step(self, handler: CommandHandler, job: HeldJob) -> None:
        try:
            handler.step()
        except ChunkFailed as failed:
            self._report_failure(job.number, failed.__cause__ or failed, failed.chunk.id)
        except StepFailed as failed:
            self._report_failure(job.number, failed.__cause__ or failed)
        except DeviceFault as fault:
            self._report_failure(job.number, fault)
        except BaseException as error:
            self._report_failure(job.number, _unusable(error))

    def _handle(self, handler: CommandHandler, command: ThreadCommand) -> None:
        """Handle a command; an error of its job must not end the process.

        Except where the job can't be stopped: the engine would wait forever for the fence.
        """
        try:
            handler.handle(command)
        except BaseException as error:
            stops = isinstance(command, Fence | Release)
            self._report_failure(command.job, _unusable(error) if stops else error)

    def _report_failure(self, job: int, error: BaseException, chunk: int | None = None) -> None:
        has_link = self._info.link
        event = command_failed(job, self._index, error, chunk, has_link=has_link)
        self._send(event)
        if event.cause == "fault":
            # A normal exit would run destructors on a device that no longer responds.
            os._exit(FAULT_EXIT)


def _end_process(status: int) -> None:
    """End the process after the traceback of the present exception."""
    with contextlib.suppress(BaseException):
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(status)


def _unusable(error: BaseException) -> DeviceFault:
    """Return `error` as a fault: the device may still be working for its job."""
    if isinstance(error, DeviceFault):
        return error
    fault = DeviceFault(f"the job can't be stopped: {type(error).__name__}: {error}")
    fault.__cause__ = error
    return fault


def _pin_threads(info: DeviceInfo) -> None:
    """Pin this thread, and threads that it starts later, to the device's cores.

    It keeps the usual policy: a batch thread would wait for up to a tick, 4 ms, until what else
    runs on its core, be it the engine's thread after its last message, has used its time slice.
    """
    if info.cores:
        os.sched_setaffinity(0, info.cores)  # 0: this thread
    if info.cores and info.members:
        # A team has a separate process: also pin the threads that libraries have started.
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # the thread has just ended
                os.sched_setaffinity(int(thread.name), info.cores)
