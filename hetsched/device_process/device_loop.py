"""The loop of one device: commands from its engine, and the work of at most two jobs in turn.

It runs on one thread, in a process of its own or in one of the engine's process: it knows only
the channel to the engine.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable

from hetsched.device import DeviceInfo
from hetsched.device_process.arrays import Attachments
from hetsched.device_process.pipeline import ChunkFailed
from hetsched.device_process.prepared_job import (
    PreparedJob,
    StepFailed,
    WarmKernels,
    Work,
    command_failed,
)
from hetsched.device_process.tails import TailCounter
from hetsched.devices.base import Device, DeviceFault, MemoryKeeper, ShareableDevice
from hetsched.errors import InternalError
from hetsched.transport.device_channel import Channel, ChannelClosed
from hetsched.transport.device_messages import (
    Attach,
    Command,
    Detach,
    Fence,
    Fenced,
    Hello,
    MemoryReading,
    Prepare,
    Release,
    Run,
    Stop,
)
from hetsched.transport.sockets import close_all

MAX_JOBS = 2
"""Jobs that a core holds: a small one computes its chunks between those of a large one."""
VIRTUAL_CLOCK_WAIT = 2.0
"""Seconds that a device with a virtual clock waits for announced chunks: its times must not depend
on message latency. Only a cancelled run waits so long."""


WARM_SECONDS = 60.0
"""How long an idle device keeps memory, unless configured."""
CHECK_SECONDS = 1.0
"""Between two looks at how much memory other processes need. Arbitrary."""


class MemoryUpkeep:
    """The upkeep of one device, on its thread; does nothing for one that keeps no memory.

    Parameters
    ----------
    warm_for : float, seconds
        How long an idle device keeps memory for the next job.
    """

    def __init__(self, device: Device, warm_for: float = WARM_SECONDS) -> None:
        self._keeper = device if isinstance(device, MemoryKeeper) else None
        self._warm_for = warm_for
        self._idle_since: float | None = None
        self._retry_at = -math.inf
        """No earlier than then is memory released again that couldn't be, or not all of it."""

    @property
    def is_needed(self) -> bool:
        """Whether the device may keep memory."""
        return self._keeper is not None

    def on_busy(self) -> None:
        """Note that the device has something to do."""
        self._idle_since = None
        self._retry_at = -math.inf

    def seconds_to_check(self, now: float) -> float | None:
        """Return how long an idle device may sleep before `check`; None: for any time."""
        if self._keeper is None or not self._keeper.keeps_memory():
            return None
        if self._idle_since is None:
            self._idle_since = now
        return min(CHECK_SECONDS, max(0.0, self._due(self._idle_since) - now))

    def check(self, now: float) -> bool:
        """Release the memory if it is time; return whether it was."""
        if self._keeper is None or self._idle_since is None:
            return False
        if now < self._due(self._idle_since) and not self._keeper.is_memory_short():
            return False
        self._retry_at = now + CHECK_SECONDS
        self._keeper.release_memory()
        return True

    def _due(self, idle_since: float) -> float:
        return max(idle_since + self._warm_for, self._retry_at)

    def usable_memory(self) -> int | None:
        """Return the bytes that a job may use now; None: as the device was described."""
        return None if self._keeper is None else self._keeper.usable_memory()

    def forget_host_memory(self) -> None:
        """Drop what refers to host memory that nothing else uses."""
        if self._keeper is not None:
            self._keeper.forget_host_memory()


class DeviceLost(Exception):
    """The device is unusable: nothing may use it any more, destructors included."""


class DeviceLoop:
    """The loop of one open device.

    Parameters
    ----------
    device : Device
        Opened by the thread that calls `run`.
    warm_for : float, seconds
        How long the device keeps memory for the next job while it is idle.
    """

    def __init__(self, channel: Channel, device: Device, warm_for: float = WARM_SECONDS) -> None:
        self._channel = channel
        self._device = device
        self._beside: Device | None = None
        """The same core for a second job; made when there is one."""
        self._info: DeviceInfo = device.describe()
        self._upkeep = MemoryUpkeep(device, warm_for)
        self._attachments = Attachments()
        self._warm_kernels = WarmKernels()
        self._counter: TailCounter | None = None
        self._jobs: list[PreparedJob] = []
        """The one whose turn it is first."""

    def run(self, on_ready: Callable[[], None] = lambda: None) -> bool:
        """Say hello, call `on_ready`, then serve; return True at Stop, False at the engine's end.

        Raises DeviceLost.
        """
        self._channel.send(Hello(self._info))
        on_ready()
        try:
            while True:
                job = self._busy_job()
                if self._channel.poll(self._patience(job)):
                    commands, fds = self._channel.receive()
                    for command in commands:
                        if isinstance(command, Stop):
                            return True
                        self._handle(command, fds)
                    close_all(fds)  # of no command
                elif job is None:
                    self._check_memory()
                else:
                    self._jobs.remove(job)
                    self._jobs.append(job)
                    self._step(job)
        except ChannelClosed:
            return False

    def _busy_job(self) -> PreparedJob | None:
        for job in self._jobs:
            if job.is_busy:
                return job
        return None

    def _patience(self, job: PreparedJob | None) -> float | None:
        """Return for how long a command may be waited for before `job`, which is busy, goes on."""
        if job is not None:
            is_early = self._info.clock == "virtual" and job.expects_more
            return VIRTUAL_CLOCK_WAIT if is_early else 0.0
        if self._jobs:
            self._upkeep.on_busy()
            return None
        return self._upkeep.seconds_to_check(time.monotonic())

    def _check_memory(self) -> None:
        try:
            if self._upkeep.check(time.monotonic()):
                self._report_memory(released=True)
        except BaseException as error:
            self._report_failure(0, error)

    def _step(self, job: PreparedJob) -> None:
        try:
            job.step()
        except ChunkFailed as failed:
            self._fail(job, failed.__cause__ or failed, failed.chunk.id)
        except StepFailed as failed:
            self._fail(job, failed.__cause__ or failed)
        except ChannelClosed:
            raise
        except BaseException as error:
            self._report_failure(job.attempt, _unusable(error))

    def _fail(self, job: PreparedJob, error: BaseException, chunk: int | None = None) -> None:
        """Report why a job can't go on, after what it has computed, and give it up."""
        job.report()
        is_over = chunk is not None or not job.is_prepared
        if is_over and not isinstance(error, DeviceFault):
            try:
                self._drop(job)  # release the job's files now, not at the next job
            except BaseException as fault:
                error = _unusable(fault)
        self._report_failure(job.attempt, error, chunk)

    # ---- commands

    def _handle(self, command: Command, fds: list[int]) -> None:
        """Handle a command; an error of its job must not end the loop."""
        if isinstance(command, Attach):
            self._attach(command, fds)
        elif isinstance(command, Detach):
            self._attachments.detach(command.keys)
            self._upkeep.forget_host_memory()
        elif not isinstance(command, Stop):  # `run` has seen that
            try:
                self._order(command)
            except ChannelClosed:
                raise
            except BaseException as error:
                if isinstance(command, Release | Fence):
                    error = _unusable(error)  # else the engine would wait forever for the fence
                self._report_failure(command.attempt, error)

    def _attach(self, command: Attach, fds: list[int]) -> None:
        if not fds:
            raise InternalError(f"attach {command.key} without a descriptor")
        fd = fds.pop(0)
        if command.kind == "tail":
            self._counter = TailCounter(fd)
        else:
            self._attachments.attach(command, fd)

    def _order(self, command: Prepare | Work | Release | Fence) -> None:
        if isinstance(command, Prepare):
            self._upkeep.on_busy()
            self._jobs.insert(0, self._new_job(command))
            return
        job = self._find(command.attempt)
        if isinstance(command, Release | Fence):
            self._release(command, job)
        elif job is not None:
            job.order(command)
        elif not isinstance(command, Run):  # whose job may have failed here, as was reported
            raise InternalError(f"{self._info.name} isn't prepared for attempt {command.attempt}")

    def _new_job(self, command: Prepare) -> PreparedJob:
        return PreparedJob(
            command,
            self._free_device(),
            self._info,
            self._attachments,
            self._channel.send,
            self._warm_kernels,
            self._counter,
        )

    def _free_device(self) -> Device:
        """Return the device as one that computes no job; drop the oldest job if there is none."""
        is_shareable = self._info.is_plain_core and isinstance(self._device, ShareableDevice)
        if len(self._jobs) >= (MAX_JOBS if is_shareable else 1):
            self._drop(min(self._jobs, key=lambda job: job.attempt))
        if all(job.device is not self._device for job in self._jobs):
            return self._device
        if self._beside is None:
            assert isinstance(self._device, ShareableDevice), "it holds two jobs"
            self._beside = self._device.beside()
        return self._beside

    def _release(self, command: Release | Fence, job: PreparedJob | None) -> None:
        if job is not None:
            self._drop(job)
        if isinstance(command, Fence):
            self._channel.send(Fenced(command.attempt))
        if self._upkeep.is_needed and not self._jobs:
            self._report_memory()

    def _find(self, attempt: int) -> PreparedJob | None:
        for job in self._jobs:
            if job.attempt == attempt:
                return job
        return None

    def _drop(self, job: PreparedJob) -> None:
        self._jobs.remove(job)
        job.drop()

    # ---- reports

    def _report_memory(self, *, released: bool = False) -> None:
        usable = self._upkeep.usable_memory()
        nbytes = (self._info.memory or 0) if usable is None else usable
        self._channel.send(MemoryReading(nbytes, released))

    def _report_failure(
        self, attempt: int, error: BaseException, chunk: int | None = None
    ) -> None:
        event = command_failed(attempt, error, chunk, has_link=self._info.link)
        with contextlib.suppress(ChannelClosed):
            self._channel.send(event)
        if event.cause == "fault":
            raise DeviceLost(event.error.message) from error


def _unusable(error: BaseException) -> DeviceFault:
    """Return `error` as a fault: the device may still be working for its job."""
    if isinstance(error, DeviceFault):
        return error
    fault = DeviceFault(f"the job can't be stopped: {type(error).__name__}: {error}")
    fault.__cause__ = error
    return fault
