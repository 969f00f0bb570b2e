"""Sends commands to device processes before their job orders them, and checks that it does."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hetsched.engine.processes.hosted_process import HostedProcess
from hetsched.transport.device_messages import DeviceCommand, Prepare, Run


@dataclass(frozen=True, eq=False)
class RecordedOrders:
    """The commands with which a job began: no device had to answer any.

    Attributes
    ----------
    fleet : list
        State of each process of the fleet at that time.
    orders : tuple
        Process and commands, for each process that got any.
    attachments : frozenset of int
        Keys of the segments in which these processes find the arrays.
    """

    fleet: list[tuple[Any, ...]]
    orders: tuple[tuple[HostedProcess, tuple[DeviceCommand, ...]], ...]
    attachments: frozenset[int]


class OrdersAhead:
    """Records the first commands of jobs, and repeats them for equal jobs. On the loop's thread.

    Parameters
    ----------
    hosts : sequence of HostedProcess
        Of a fleet, which may add more.
    """

    def __init__(self, hosts: Sequence[HostedProcess]) -> None:
        self._hosts = hosts

    def record(self, attempt_id: int, attachments: Collection[int]) -> RecordedOrders | None:
        """Return the commands of an attempt that has begun, in this round of the loop.

        None if there are none, or some that aren't the same for an equal job.
        """
        orders = tuple(
            (host, commands) for host in self._hosts if (commands := host.unsent(attempt_id))
        )
        is_repeatable = all(
            isinstance(command, Run) or (isinstance(command, Prepare) and not command.answer)
            for _, commands in orders
            for command in commands
        )
        if not orders or not is_repeatable:
            return None
        return RecordedOrders(self._states(), orders, frozenset(attachments))

    def can_repeat(self, recorded: RecordedOrders) -> bool:
        """Return whether the same processes run, and have the arrays attached."""
        return self._states() == recorded.fleet and all(
            recorded.attachments <= host.attached for host, _ in recorded.orders
        )

    def repeat(self, recorded: RecordedOrders, attempt_id: int) -> None:
        """Send the commands now, as those of attempt `attempt_id`, which has to order them."""
        for host, commands in recorded.orders:
            host.send_ahead([_renumbered(command, attempt_id) for command in commands])

    def end(self, recorded: RecordedOrders) -> None:
        """Kill the processes that got commands which their job hasn't ordered.

        They write to its arrays. The job goes on as after any loss of a process.
        """
        for host, _ in recorded.orders:
            if host.ahead:
                host.kill_misled()

    def _states(self) -> list[tuple[Any, ...]]:
        """Return what decides which devices a job may use, and what they have in memory."""
        return [(host.process, host.is_ready, host.on_demand) for host in self._hosts]


def _renumbered(command: DeviceCommand, attempt_id: int) -> DeviceCommand:
    renumbered: DeviceCommand = msgspec.structs.replace(command, job=attempt_id)
    return renumbered
