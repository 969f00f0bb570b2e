"""The job that a device is prepared for: one at a time, on the device's thread."""

from __future__ import annotations

from hetsched.device_process.held_job import HeldJob
from hetsched.device_process.pipeline import ChunkFailed
from hetsched.devices.base import Device
from hetsched.errors import InternalError


class CurrentJob:
    """The present job of one device.

    Attributes
    ----------
    job : HeldJob or None
        The device is prepared for it.
    """

    def __init__(self, device: Device, name: str) -> None:
        self.job: HeldJob | None = None
        self._device = device
        self._name = name

    def get(self, number: int) -> HeldJob | None:
        """Return job `number`; None if it isn't the present one."""
        return self.job if self.job is not None and self.job.number == number else None

    def require(self, number: int) -> HeldJob:
        """Return job `number`. Raises InternalError if it isn't the present one."""
        job = self.get(number)
        if job is None:
            raise InternalError(f"{self._name} is not prepared for job {number}")
        return job

    def release(self, number: int) -> None:
        """Drop job `number`, if it is the present one."""
        if self.get(number) is not None:
            self.drop()

    def drop(self) -> None:
        """Drop the job: its queued chunks, and all references to its arrays.

        Chunks in flight are finished. Raises DeviceFault.
        """
        job, self.job = self.job, None
        if job is None:
            return
        job.tasks.clear()  # they refer to the job: break the cycle, so that arrays are freed now
        job.pipeline.drain()
        self._device.prepare(None)

    def step(self) -> None:
        """Advance the job by one chunk, or by one block of a task.

        Raises
        ------
        ChunkFailed
            The job has been dropped.
        StepFailed, DeviceFault
        """
        assert self.job is not None, "the caller has checked it"
        try:
            self.job.step()
        except ChunkFailed:
            self.job = None
            self._device.prepare(None)  # release the job's files now, not at the next job
            raise
