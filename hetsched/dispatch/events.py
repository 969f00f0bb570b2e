"""Events of one run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Started:
    """All devices are ready. Nothing is sent before this event."""


@dataclass(frozen=True)
class ChunkFinished:
    """`device` has finished the chunk with id `chunk`."""

    device: str
    chunk: int


@dataclass(frozen=True)
class DeviceLost:
    """The process of `device` has died."""

    device: str


@dataclass(frozen=True)
class DeviceJoined:
    """A lost device is back, without chunks."""

    device: str


Event = Started | ChunkFinished | DeviceLost | DeviceJoined
