"""Where the time of an iteration goes on one device, by NEC's phases."""

from __future__ import annotations

from typing import Protocol


class DevicePhases(Protocol):
    """Seconds of one device in one iteration."""

    @property
    def compute(self) -> float: ...
    @property
    def transfer(self) -> float: ...
    @property
    def wait(self) -> float: ...
    @property
    def converge(self) -> float: ...


class ReportedPhases(DevicePhases, Protocol):
    """The same, with what the balance doesn't count: the time of saving rows."""

    @property
    def save(self) -> float: ...
