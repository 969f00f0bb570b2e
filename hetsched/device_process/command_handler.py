"""Handling of the commands to one open device; answers are sent as events."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from hetsched.device import Chunk, ChunkTimes, DeviceInfo
from hetsched.device_process import filling, verification
from hetsched.device_process.attachments import Attachments
from hetsched.device_process.current_job import (
    ColdKernels,
    CurrentJob,
    build_pipeline,
    device_job,
)
from hetsched.device_process.pipeline import ChunkFailed, Pipeline
from hetsched.devices.base import Device
from hetsched.errors import InternalError
from hetsched.transport.device_messages import (
    Check,
    Checked,
    ChunkDone,
    DeviceCommand,
    DeviceNote,
    Event,
    Fence,
    Fenced,
    Fill,
    Filled,
    Prepare,
    Prepared,
    Release,
    Run,
)
from hetsched.workload import Workload, find


class CommandHandler:
    """The handler of one device's commands, with the job that the device is prepared for.

    Parameters
    ----------
    index : int
        Of the device within the process.
    """

    def __init__(
        self,
        index: int,
        device: Device,
        info: DeviceInfo,
        attachments: Attachments,
        send: Callable[[Event], None],
    ) -> None:
        self._index = index
        self._device = device
        self._info = info
        self._attachments = attachments
        self._send = send
        self._current: CurrentJob | None = None
        self._workloads: dict[str, Workload] = {}
        self._cold_kernels = ColdKernels()

    @property
    def current_job(self) -> CurrentJob | None:
        """The job that the device is prepared for."""
        return self._current

    @property
    def busy_pipeline(self) -> Pipeline | None:
        """The pipeline, while it has chunks."""
        if self._current is None or not self._current.pipeline.busy:
            return None
        return self._current.pipeline

    def step(self) -> None:
        """Advance the pipeline by one chunk.

        Raises
        ------
        ChunkFailed
            The job is no longer prepared.
        DeviceFault
        """
        assert self._current is not None, "nothing to advance"
        try:
            self._current.pipeline.step()
        except ChunkFailed:
            self._current = None
            self._device.prepare(None)  # release the job's files now, not at the next job
            raise

    def handle(self, command: DeviceCommand) -> None:
        """Handle one command. Raises any error of the job or the device."""
        match command:
            case Prepare():
                self._prepare(command)
            case Run():
                self._run(command)
            case Fill():
                self._fill(command)
            case Check():
                self._check(command)
            case Release():
                self._release(command)
            case Fence():
                self._release(command)
                self._send(Fenced(command.job, self._index))

    def _prepare(self, command: Prepare) -> None:
        self._drop_job()
        workload = self._workload(command.workload)
        params = msgspec.json.decode(command.params, type=workload.Params)
        specs = workload.arrays(params)
        arrays = self._attachments.host_arrays(command.job, command.arrays, specs)
        job = device_job(command, self._info, workload, params, arrays, self._note_sender(command))
        self._device.prepare(job)
        on_done = self._chunk_reporter(command)
        pipeline = build_pipeline(self._device, self._info, command, job, on_done)
        self._current = CurrentJob(command.job, workload, params, arrays, pipeline)
        if command.answer:
            self._send(Prepared(command.job, self._index))

    def _note_sender(self, command: Prepare) -> Callable[[str], None]:
        return lambda text: self._send(DeviceNote(command.job, self._index, text))

    def _chunk_reporter(self, command: Prepare) -> Callable[[Chunk, ChunkTimes], None]:
        def report(chunk: Chunk, times: ChunkTimes) -> None:
            if self._cold_kernels.is_first_chunk(command):
                times = msgspec.structs.replace(times, cold=True)
            self._send(ChunkDone(command.job, self._index, chunk.id, times))

        return report

    def _run(self, command: Run) -> None:
        """Add the chunks; drop them if the job failed here, which was already reported."""
        if self._current is not None and self._current.number == command.job:
            self._current.pipeline.add(command.chunks)

    def _fill(self, command: Fill) -> None:
        job = self._require_job(command.job)
        inputs, outputs = job.arrays
        first, count = command.first, command.count
        if command.poison:
            filling.poison(outputs[command.array], first, count)
        else:
            array = inputs[command.array]
            filling.generate(job.workload, job.params, array, first, count, command.seed)
        self._send(Filled(command.job, self._index))

    def _check(self, command: Check) -> None:
        job = self._require_job(command.job)
        result = verification.verify_units(
            job.workload,
            job.params,
            job.arrays,
            command.first,
            command.count,
            command.samples,
            command.seed,
        )
        self._send(
            Checked(
                command.job,
                self._index,
                result.worst,
                result.unit,
                result.max_error,
                result.sample_error,
            )
        )

    def _release(self, command: Release | Fence) -> None:
        if self._current is not None and self._current.number == command.job:
            self._drop_job()
        self._attachments.forget_job(command.job)

    def _drop_job(self) -> None:
        """Finish the chunks in flight, then drop every reference to the job's arrays."""
        if self._current is not None:
            self._current.pipeline.drain()
        self._current = None
        self._device.prepare(None)

    def _require_job(self, number: int) -> CurrentJob:
        if self._current is None or self._current.number != number:
            raise InternalError(f"{self._info.name} is not prepared for job {number}")
        return self._current

    def _workload(self, reference: str) -> Workload:
        if reference not in self._workloads:
            self._workloads[reference] = find(reference)
        return self._workloads[reference]
