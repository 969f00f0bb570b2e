"""Sends the commands of one job to its devices."""

from __future__ import annotations

import functools

from hetsched.engine.job import commands as do
from hetsched.engine.job.arrays import JobArrays
from hetsched.engine.processes.fleet import Fleet
from hetsched.transport import device_messages


class DeviceOrders:
    """The commands of one job, as messages. `is_side`: it runs beside a larger job."""

    def __init__(self, fleet: Fleet, arrays: JobArrays, *, is_side: bool) -> None:
        self._fleet = fleet
        self._arrays = arrays
        self._is_side = is_side

    def prepare_device(self, command: do.PrepareDevice) -> None:
        assignment = command.assignment
        self._arrays.attach(self._fleet, assignment.device)
        self._fleet.send(
            assignment.device,
            lambda index: self._arrays.prepare_message(
                command.attempt_id,
                index,
                assignment,
                command.answer,
                side=self._is_side,
            ),
        )

    def fill_units(self, command: do.FillUnits) -> None:
        order = command.order
        self._fleet.send(
            order.device,
            lambda index: device_messages.Fill(
                command.attempt_id,
                index,
                order.array,
                order.first,
                order.count,
                order.seed,
                order.poison,
            ),
        )

    def run_chunks(self, command: do.RunChunks) -> None:
        self._fleet.send(
            command.device,
            lambda index: device_messages.Run(
                command.attempt_id, index, command.chunks, command.opens_tail
            ),
        )

    def check_units(self, command: do.CheckUnits) -> None:
        order = command.order
        self._fleet.send(
            order.device,
            lambda index: device_messages.Check(
                command.attempt_id, index, order.first, order.count, order.samples, command.seed
            ),
        )

    def fence_device(self, command: do.FenceDevice) -> None:
        attempt_id = command.attempt_id
        self._fleet.send(command.device, lambda index: device_messages.Fence(attempt_id, index))

    def kill_device(self, command: do.KillDevice) -> None:
        self._fleet.kill_process_of(command.device, command.reason)

    def release(self, command: do.FinishJob) -> None:
        """Release the attempt, at once where that is answered: the next plan reads the answer."""
        attempt_id = command.attempt_id
        if attempt_id is None:
            return
        for device in command.devices:
            is_answered = self._fleet.info(device).shares_memory
            send = self._fleet.send if is_answered else self._fleet.send_late
            send(device, functools.partial(device_messages.Release, attempt_id))
