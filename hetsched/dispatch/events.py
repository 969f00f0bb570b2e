"""Events of one run."""

from __future__ import annotations

import msgspec


class Started(msgspec.Struct, frozen=True):
    """All devices are ready. Nothing is sent before this event."""


class ChunkFinished(msgspec.Struct, frozen=True):
    """`device` has finished the chunk with id `chunk`."""

    device: str
    chunk: int


class TailChunkFinished(msgspec.Struct, frozen=True):
    """`device` has finished `count` units of its tail from unit `first` on."""

    device: str
    first: int
    count: int


class TailLeft(msgspec.Struct, frozen=True):
    """Nothing of its tail remains for `device`."""

    device: str


class DeviceLost(msgspec.Struct, frozen=True):
    """The process of `device` has died."""

    device: str


class DeviceJoined(msgspec.Struct, frozen=True):
    """A lost device is back, without chunks."""

    device: str


Event = Started | ChunkFinished | TailChunkFinished | TailLeft | DeviceLost | DeviceJoined
