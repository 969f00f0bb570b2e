"""The jobs that one device holds: which of them it is prepared for, and which one computes next.

A core may hold several jobs. It is prepared for one of them; between two chunks it is prepared
for another, which takes some 20 us. A device with a link, a core team or a virtual clock holds one
job: its memory, its cores and its clock aren't shared.
"""

from __future__ import annotations

import time

from hetsched.device import DeviceInfo
from hetsched.device_process.held_job import HeldJob, StepFailed
from hetsched.device_process.pipeline import ChunkFailed
from hetsched.device_process.turns import Turns
from hetsched.devices.base import Device, DeviceFault, DeviceJob
from hetsched.errors import InternalError


class HeldJobs:
    """The jobs of one device, on its thread."""

    def __init__(self, device: Device, info: DeviceInfo) -> None:
        self._device = device
        self._name = info.name
        self._is_shareable = info.is_shareable
        self._jobs: dict[int, HeldJob] = {}
        self._loaded: HeldJob | None = None
        """The job that the device is prepared for."""
        self._turns = Turns()

    @property
    def next_job(self) -> HeldJob | None:
        """The job that advances next; None if no job has work."""
        jobs = self._jobs
        if len(jobs) == 1:
            (job,) = jobs.values()
            return job if job.is_busy else None
        if self._loaded is not None and self._loaded.pipeline.has_chunks_in_flight:
            return self._loaded
        return self._turns.choose(job for job in jobs.values() if job.is_busy)

    @property
    def is_empty(self) -> bool:
        """Whether the device holds no job."""
        return not self._jobs

    def require(self, number: int) -> HeldJob:
        """Return a job. Raises InternalError if the device doesn't hold it."""
        job = self._jobs.get(number)
        if job is None:
            raise InternalError(f"{self._name} is not prepared for job {number}")
        return job

    def get(self, number: int) -> HeldJob | None:
        """Return a job; None if the device doesn't hold it."""
        return self._jobs.get(number)

    def make_room(self, number: int) -> None:
        """Finish the chunks in flight, before the device is prepared for job `number`.

        An earlier preparation for the same job is dropped; so are all other jobs where they can't
        be held. Raises DeviceFault.
        """
        for other in [number] if self._is_shareable else [*self._jobs]:
            self.release(other)
        self._unload()

    def prepare(self, device_job: DeviceJob) -> None:
        """Prepare the device for a job, which `add` adds. Raises as `Device.prepare`."""
        self._device.prepare(device_job)

    def add(self, job: HeldJob) -> None:
        """Add the job that the device was just prepared for."""
        self._jobs[job.number] = self._loaded = job

    def release(self, number: int) -> None:
        """Drop a job's queued chunks, finish those in flight, drop references to its arrays."""
        job = self._jobs.pop(number, None)
        if job is None:
            return
        job.tasks.clear()  # they refer to the job: break the cycle, so that arrays are freed now
        if self._loaded is job:
            job.pipeline.drain()
            self._drop_loaded()

    def step(self, job: HeldJob) -> None:
        """Advance `job` by one chunk, or by one block of a task.

        Raises
        ------
        ChunkFailed
            The job is no longer held.
        StepFailed
            A task failed; or the device can't be prepared for the job, which is no longer held.
        DeviceFault
        """
        if len(self._jobs) == 1:
            self._step(job)
            return
        start = time.monotonic()
        has_waiting_main = any(other.is_busy and not other.is_side for other in self._others(job))
        try:
            self._step(job)
        finally:
            seconds = time.monotonic() - start
            self._turns.record(job, seconds, has_waiting_main=has_waiting_main)

    def _others(self, job: HeldJob) -> list[HeldJob]:
        return [other for other in self._jobs.values() if other is not job]

    def _step(self, job: HeldJob) -> None:
        if self._loaded is not job and job.has_chunks:
            self._load(job)
        try:
            job.step()
        except ChunkFailed:
            self._jobs.pop(job.number, None)
            self._drop_loaded()  # release the job's files now, not at the next job
            raise

    def _load(self, job: HeldJob) -> None:
        """Prepare the device for `job` again, after the turn of another one."""
        self._unload()
        try:
            self._device.prepare(job.device_job)
        except DeviceFault:
            raise
        except BaseException as error:  # also what only a plug-in would raise
            self._jobs.pop(job.number, None)
            self._device.prepare(None)
            raise StepFailed(job.number) from error
        self._loaded = job

    def _unload(self) -> None:
        loaded, self._loaded = self._loaded, None
        if loaded is None:
            return
        try:
            loaded.pipeline.finish_started()
        except ChunkFailed as failed:  # a core's chunks have ended: only we can have failed
            raise DeviceFault(f"chunk {failed.chunk.id} can't be finished") from failed

    def _drop_loaded(self) -> None:
        self._loaded = None
        self._device.prepare(None)
